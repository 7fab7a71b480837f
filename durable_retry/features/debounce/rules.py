"""Debouncing: of submissions that follow each other closely, only the last one runs.

    submitted  A    B  C              D
               |    |  |              |
    waits      A----B--C---------> C runs      D----------> D runs

A submission waits until no other has come for its `debounce_seconds`; if another comes, it ends as cancelled.
One that comes after the waiting one has begun waits anew. The entity `debounce`, one for each key and target,
decides: an operation arrives when it begins to wait, and asks when the wait is over.

    arrive(series, request)    it waits, in place of the one before, or was replaced before it came
    begin(series, request)     its wait is over: it begins, or was replaced meanwhile
    withdraw(series, request)  it was cancelled while it waited
    forget(series, request)    nothing came for `KEPT_FOR` after it began

The instants at which two were accepted say which is the later one, since their orchestrations may begin in
another order. A repeated message changes nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.json_forms import JsonShape, UnreadableRecordError
from durable_retry.base.names import OperationState
from durable_retry.base.validation import Label, Problem, Strict
from durable_retry.features.debounce.names import DEBOUNCE
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.keys import canonical_json
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, Part


class DebounceOutcome(StrEnum):
    """What became of an operation with a debounce key."""

    REPLACED = "replaced"
    RAN = "ran"


def debounce_outcome(document: Mapping[str, Any]) -> DebounceOutcome | None:
    """Return what became of the operation of a last status document.

    None without a debounce key, and for one that was cancelled while it waited.
    """
    if document.get("replaced_by") is not None:
        return DebounceOutcome.REPLACED
    has_begun = document["attempt_count"] > 0 or document["status"] != OperationState.CANCELLED
    return DebounceOutcome.RAN if document.get("debounce_key") is not None and has_begun else None


LONGEST_WAIT: Final = 10
"""The latest of a series begins after so many times its `debounce_seconds` at the latest, unless it brings a
maximum: a stream of submissions without a gap would put it off for ever."""

OVERDUE: Final = timedelta(minutes=1)
"""An operation that has not begun so long after it was due was paused, or terminated by hand: what
comes then begins a series of its own."""

KEPT_FOR: Final = timedelta(hours=1)
"""How long the last run of a key is remembered: an earlier submission whose orchestration was held up for
less is recognized as replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debounce(JsonShape):
    """How an operation waits for a later one that replaces it."""

    entity: str  # the key of its entity: the same for the same target and `key`
    key: str  # the caller's `debounce_key`
    seconds: float  # the caller's `debounce_seconds`
    accepted_at: datetime  # stays when upkeep starts the operation anew
    max_seconds: float | None = None  # see `DebounceMembers`

    def replaced_by(self, event: Any) -> str | None:
        """Return the operation that replaces this one, as the data of an event says; None where none does.

        A hub may deliver an event of an earlier life of the operation, and anyone may send one in any form.
        """
        try:
            later = DebounceRequest.from_json(event)
        except UnreadableRecordError:
            return None
        return later.operation_id if later.accepted_at >= self.accepted_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DebounceRequest(JsonShape):
    """What every operation of the entity takes: which submission asks."""

    operation_id: str
    accepted_at: datetime
    seconds: float
    # For so long its series waits at most; None is `LONGEST_WAIT`.
    max_seconds: float | None = None

    @property
    def due_at(self) -> datetime:
        return self.accepted_at + timedelta(seconds=self.seconds)

    def latest_in(self, began_at: datetime) -> datetime:
        """Return when it begins at the latest, in a series that began then."""
        longest = LONGEST_WAIT * self.seconds if self.max_seconds is None else self.max_seconds
        return began_at + timedelta(seconds=longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(JsonShape):
    """State of the entity: the latest submission, and the series that it belongs to."""

    operation_id: str  # the latest submission
    accepted_at: datetime
    due_at: datetime  # when it begins
    began_at: datetime  # when the first submission of the series was accepted
    is_over: bool = False  # whether the latest has begun, or was cancelled: the next one is of a new series

    def is_of(self, request: DebounceRequest) -> bool:
        """Whether it is this submission that is the latest."""
        return (self.operation_id, self.accepted_at) == (request.operation_id, request.accepted_at)

    def is_later_than(self, request: DebounceRequest) -> bool:
        """Whether the latest was accepted after this one; in one instant the ids decide."""
        return (self.accepted_at, self.operation_id) > (request.accepted_at, request.operation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebouncePlace(JsonShape):
    """The answer to `arrive` and `begin`."""

    due_at: datetime  # when the submission begins, unless it is replaced
    replaced_by: str | None = None  # the operation that replaced it; None while none has
    replaces: str | None = None  # the operation that it replaced now; None where none waited
    begins: bool = False  # whether it begins at once, and asks no more


_IN_ORDER: Final = "cannot stand beside order_key, or that of its source: those in an order are not replaced"


def _problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    present = [name for name in ("debounce_key", "debounce_seconds") if document.get(name) is not None]
    for name in ("start_at", "delay_seconds"):
        if present and document.get(name) is not None:
            yield Problem(f"/{name}", f"cannot stand beside {present[0]}: one of them says when it begins")
    if present and document.get("order_key") is not None:
        yield Problem(f"/{present[0]}", _IN_ORDER)
    if len(present) == 1:  # the pointer names what is there: without it the rest is checked all the same
        yield Problem(f"/{present[0]}", "needs debounce_key and debounce_seconds")
    most, seconds = document.get("debounce_max_seconds"), document.get("debounce_seconds")
    if most is not None and seconds is None:
        yield Problem("/debounce_max_seconds", "needs debounce_key and debounce_seconds")
    elif isinstance(most, int | float) and isinstance(seconds, int | float) and most < seconds:
        detail = f"is {most:g}, less than debounce_seconds, which is {seconds:g}"
        yield Problem("/debounce_max_seconds", detail)


MAX_SECONDS: Final = 86_400


class DebounceMembers(Strict):
    """The members that a submission has of it."""

    debounce_key: Label | None = Field(
        default=None,
        description="A later submission with it, to the same target, replaces this while it waits.",
    )
    debounce_seconds: Annotated[
        float | None, Field(gt=0, le=MAX_SECONDS, description="How long it waits for a later one.")
    ] = None
    debounce_max_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            le=LONGEST_WAIT * MAX_SECONDS,
            description="For how long it and those that it replaced wait at most, from the first of them; "
            "ten times `debounce_seconds` unless given.",
        ),
    ] = None


class _Debouncing(Members):
    model = DebounceMembers

    def problems(self, document: Mapping[str, Any]) -> Iterator[Problem]:
        return _problems(document)

    def part_of(
        self, members: DebounceMembers, target: str, _dependency: Dependency, now: datetime
    ) -> Part | None:
        key, seconds = members.debounce_key, members.debounce_seconds
        if key is None or seconds is None:
            return None
        debounce = Debounce(
            entity=debounce_entity_for(target, key),
            key=key,
            seconds=seconds,
            accepted_at=now,
            max_seconds=members.debounce_max_seconds,
        )
        return Part(debounce.to_json(), now + timedelta(seconds=seconds))


MEMBERS: Final = _Debouncing()


def debounce_of(operation: OperationInput) -> Debounce | None:
    """Return how an operation waits for a later one; None where it does not."""
    part = (operation.parts or {}).get(DEBOUNCE)
    return None if part is None else Debounce.from_json(part)


def debounce_entity_for(target: str, debounce_key: str) -> str:
    """Return the key of the entity of a debounce key: one for each target.

    Args:
        target: As for `fingerprint`, such as `handler ship-order`.
        debounce_key: As the caller chose it.
    """
    return sha256(canonical_json([target, debounce_key]).encode()).hexdigest()[:40]


def arrive(series: Series | None, request: DebounceRequest) -> tuple[Series, DebouncePlace]:
    """Let a submission wait, in place of the one that waits."""
    if series is not None and series.is_of(request):
        return series, DebouncePlace(due_at=series.due_at, begins=series.is_over)
    if series is not None and series.is_later_than(request):
        return series, _replaced(series, request)
    waits = series is not None and not series.is_over
    is_overdue = series is not None and request.accepted_at > series.due_at + OVERDUE
    began_at = series.began_at if series is not None and waits and not is_overdue else request.accepted_at
    due_at = min(request.due_at, request.latest_in(began_at))
    # It begins now: one that comes before it has asked must not put it off any more.
    begins = due_at <= request.accepted_at
    joined = Series(
        operation_id=request.operation_id,
        accepted_at=request.accepted_at,
        due_at=due_at,
        began_at=began_at,
        is_over=begins,
    )
    replaces = series.operation_id if series is not None and waits else None
    replaces = None if replaces == request.operation_id else replaces
    return joined, DebouncePlace(due_at=due_at, replaces=replaces, begins=begins)


def begin(series: Series | None, request: DebounceRequest) -> tuple[Series, DebouncePlace]:
    """Let a submission begin, unless it was replaced; also before its wait is over, which people may end."""
    if series is not None and series.is_later_than(request):
        return series, _replaced(series, request)
    if series is None or not series.is_of(request):
        # The state was lost, or forgotten: nothing is known that would replace it.
        series, _ = arrive(None, request)
    return replace(series, is_over=True), DebouncePlace(due_at=series.due_at, begins=True)


def withdraw(series: Series | None, request: DebounceRequest) -> Series | None:
    """End the series of a submission that was cancelled."""
    return replace(series, is_over=True) if series is not None and series.is_of(request) else series


def forget(series: Series | None, request: DebounceRequest, now: datetime) -> Series | None:
    """Forget a series that is over, unless a later one was begun.

    One that is past its time is over, too: the message that ended it may have come before the one that
    began it.
    """
    if series is None or not series.is_of(request):
        return series
    return None if series.is_over or series.due_at <= now else series


def _replaced(series: Series, request: DebounceRequest) -> DebouncePlace:
    return DebouncePlace(due_at=request.due_at, replaced_by=series.operation_id)
