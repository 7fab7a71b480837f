"""What is asked for with a freeze and a thaw, what they show, and how a thaw goes on: pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry.base.json_forms import JsonShape, from_ms, to_ms
from durable_retry.base.text import time_text
from durable_retry.base.validation import Strict, checked, with_example
from durable_retry.features.freeze.names import FREEZE, PREFIX
from durable_retry.rules.circuit.breaker import (
    BY_CHARACTERS,
    REASON_CHARACTERS,
    Breaker,
    advanced,
)
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.snapshot import release_seconds
from durable_retry.rules.circuit.states import CircuitState

_YEAR_SECONDS: Final = 31_536_000.0
_MOST_WAVES: Final = 20
_HOUR_SECONDS: Final = 3600.0
_BEFORE: Final = "; before: "


class FreezeBody(Strict):
    """The body of a freeze.

    Attributes:
        reason: Why; every operation that waits for its end shows it. 200 characters of it are kept.
        for_seconds: How long it lasts; null means until a thaw.
        stops_deadline: Whether the deadlines of operations that wait for its end stop meanwhile.
    """

    model_config = with_example(reason="The ledger shows wrong amounts.", for_seconds=3600.0)

    reason: Annotated[
        str, Field(max_length=2_000), checked(lambda text: None if text.strip() else "must say why")
    ]
    for_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS)] | None = None
    stops_deadline: bool = True

    def freeze(self, now: datetime, by: str, present: Freeze | None) -> Freeze:
        """Return the freeze that it asks for, in place of the present one."""
        now = from_ms(to_ms(now))
        if present is not None:
            now = max(now, present.since + timedelta(milliseconds=1))
        until = None if self.for_seconds is None else now + timedelta(seconds=self.for_seconds)
        reason = self.reason.strip()[:REASON_CHARACTERS]
        stops = self.stops_deadline or None
        return Freeze(now, now, by[:BY_CHARACTERS], reason, until, stops)


def _waves_problem(waves: list[float]) -> str | None:
    is_rising = all(before < after for before, after in pairwise(waves))
    return None if is_rising and waves[-1] == 1 else "must rise, and end with 1"


class ThawBody(Strict):
    """The body of a thaw.

    Attributes:
        waves: The share of the operations that may go from each wave on, rising to 1.
        wave_seconds: For how long the circuits are watched once a wave has gone.
    """

    model_config = with_example(waves=[0.01, 0.1, 1.0])

    waves: Annotated[
        list[Annotated[float, Field(gt=0, le=1)]],
        Field(min_length=1, max_length=_MOST_WAVES),
        checked(_waves_problem),
    ] = Field(default_factory=lambda: [0.01, 0.1, 1.0])
    wave_seconds: Annotated[float, Field(ge=0, le=_HOUR_SECONDS)] = 60.0


@dataclass(frozen=True, slots=True)
class Thaw(JsonShape):
    """A thaw, between two of its waves."""

    by: str
    began_at: datetime  # a circuit that opened before is no reason to stop
    waves: tuple[float, ...]
    wave_seconds: float
    number: int = 0  # of the waves that went

    @property
    def share(self) -> float:
        """The share of the next wave."""
        return self.waves[self.number]

    def next(self) -> Self | None:
        """Return the thaw after the next wave; None after the last."""
        gone = replace(self, number=self.number + 1)
        return gone if gone.number < len(self.waves) else None


@dataclass(frozen=True, slots=True)
class Crowd(JsonShape):
    """Operations that wait for one dependency."""

    waiting: int
    first: float  # the least share that lets one of them go

    def with_more(self, other: Self) -> Self:
        """Return both together."""
        return replace(self, waiting=self.waiting + other.waiting, first=min(self.first, other.first))

    def share(self, of_wave: float) -> float:
        """Return the share that a wave lets go: at least one operation, to try the dependency."""
        return max(of_wave, self.first)


@dataclass(frozen=True, slots=True)
class Wave(JsonShape):
    """How far a thaw is; its orchestration shows it."""

    number: int  # from 1
    waves: tuple[float, ...]
    by: str
    waiting: int  # when the wave began
    released: int = 0  # by this wave


@dataclass(frozen=True, slots=True)
class Release(JsonShape):
    """A wave that went, while the circuits are watched."""

    crowds: Mapping[str, Crowd]  # who waited before it, by dependency
    wave: Wave
    until: datetime  # as in `watched_until`


@dataclass(frozen=True, slots=True)
class Seen(JsonShape):
    """What the activity `keep_frozen` saw."""

    is_latest: bool = True  # whether no other freeze was requested since
    told: int = 0  # circuits that did not have the freeze, and to which it was sent
    opened: str | None = None  # which circuit opened during a thaw, for a person; None for none


def instance_id_of(freeze: Freeze) -> str:
    """Return the id of the orchestration that keeps a freeze."""
    return f"{PREFIX}{FREEZE}-{to_ms(freeze.since)}"


def opened_during(breaker: Breaker, circuit: str, began_at: datetime, now: datetime) -> str | None:
    """Return that a circuit has opened by itself since a thaw began, for a person; None where it has not."""
    current = advanced(breaker, now)
    since = current.closed_to_calls_since
    if current.state not in {CircuitState.OPEN, CircuitState.HALF_OPEN} or since is None or since < began_at:
        return None
    why = "" if current.last_error is None else f" ({current.last_error})"
    return f"the circuit of {circuit} opened at {time_text(since)}{why}"


def stopped(freeze: Freeze, opened: str, thaw: Thaw, now: datetime) -> Freeze:
    """Return the freeze that holds everything again; its reason ends with that of the first hold."""
    wave, first = f"in wave {thaw.number + 1} of {len(thaw.waves)}", freeze.reason.rpartition(_BEFORE)[2]
    return freeze.then(now, share=None, reason=f"{opened} {wave}{_BEFORE}{first}"[:REASON_CHARACTERS])


def watched_until(thaw: Thaw, wave: Wave, now: datetime) -> datetime:
    """Return until when the circuits are watched after a wave: until it has gone, and `wave_seconds` more.

    A wave in which no operation waits shows nothing, and is not watched.
    """
    seconds = release_seconds(wave.released) + thaw.wave_seconds if wave.waiting else 0.0
    return now + timedelta(seconds=seconds)


def joined(crowds: Mapping[str, Crowd], others: Mapping[str, Crowd]) -> dict[str, Crowd]:
    """Return who waits for each dependency on both pages."""
    both = {name: crowds[name].with_more(others[name]) for name in crowds.keys() & others.keys()}
    return {**crowds, **others, **both}


def crowds_to_json(crowds: Mapping[str, Crowd]) -> dict[str, Any]:
    """Return the JSON form of who waits for each dependency."""
    return {name: crowd.to_json() for name, crowd in sorted(crowds.items())}


def crowds_in(document: Mapping[str, Any]) -> dict[str, Crowd]:
    """Read what `crowds_to_json` has written, as the member `crowds`."""
    return {name: Crowd.from_json(crowd) for name, crowd in document["crowds"].items()}


class HoldState(StrEnum):
    """Whether operations start."""

    FREE = "free"
    HELD = "held"
    THAWING = "thawing"


class HoldWave(Answer):
    """The wave of a thaw that is under way."""

    number: int = Field(description="From 1.")
    waves: tuple[float, ...] = Field(description="The share of operations that each lets through.")
    by: str = Field(description="Who asked for the thaw.")
    waiting: int = Field(description="Operations that waited when the wave began.")
    released: int = Field(description="Those that it let go.")


class DuePart(Answer):
    """Operations of one dependency that would run within the hour."""

    dependency: str = Field(description="Its name.")
    operations: int = Field(description="How many would begin an attempt.")
    held: int = Field(description="Those of them that wait for their circuit, or for the thaw.")
    first_at: Instant | None = Field(description="When the first is due, or asks again; null for at once.")


class DuePreview(Answer):
    """What would run within the hour, were nothing held."""

    until: Instant = Field(description="The end of the hour.")
    operations: int = Field(description="How many would begin an attempt.")
    complete: bool = Field(description="False when there were more than were looked at.")
    by_dependency: tuple[DuePart, ...] = Field(description="Most first.")


class HoldFigures(Answer):
    """A hold of every dependency."""

    reason: str | None = Field(description="Why, or what stopped the thaw; null while free.")
    by: str | None = Field(description="Who asked for it; null while free.")
    since: Instant | None = Field(description="Since when; null while free.")
    until: Instant | None = Field(description="When it ends by itself; null for never.")
    stops_deadline: bool = Field(description="Whether deadlines of operations that wait for its end stop.")


class HoldDocument(HoldFigures):
    """Whether operations start, and what would run within the hour."""

    status: HoldState = Field(description="`thawing`: some of them do.")
    wave: HoldWave | None = left_out("How far a thaw is. Left out without one.")
    preview: DuePreview = Field(description="What would run, held or not.")


class StartedThaw(Answer):
    """A thaw that was accepted."""

    since: Instant = Field(description="Since when everything was held.")
    waves: tuple[float, ...] = Field(description="The share of operations that each lets through.")
    wave_seconds: float = Field(description="For how long circuits are watched after each.")


@dataclass(frozen=True, slots=True)
class Due:
    """An operation that would run: what it calls, when, and whether its circuit holds it."""

    dependency: str
    at: datetime | None
    is_held: bool


def preview_of(due: list[Due], until: datetime, *, is_complete: bool) -> DuePreview:
    """Return what would run, by dependency."""
    parts: dict[str, list[Due]] = {}
    for operation in due:
        parts.setdefault(operation.dependency, []).append(operation)
    documents = [
        DuePart(
            dependency=name,
            operations=len(part),
            held=sum(operation.is_held for operation in part),
            first_at=None if None in (starts := [due.at for due in part]) else min(filter(None, starts)),
        )
        for name, part in parts.items()
    ]
    documents.sort(key=lambda part: (-part.operations, part.dependency))
    return DuePreview(until=until, operations=len(due), complete=is_complete, by_dependency=tuple(documents))
