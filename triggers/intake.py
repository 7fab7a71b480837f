"""The one way in that all sources share: parse, name, validate, start or dead-letter, item by item.

What is wrong with an arrival itself makes it a dead letter at once: it would be wrong the next time too. What
is wrong on our side raises `NotTakenOverError`, so that the source delivers again. Nothing else comes out.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Final

from azure.core.exceptions import AzureError

from engine.intake import Arrival, MalformedBodyError, Wanted, id_of_body, kept_text, read_arrival
from engine.operation import OperationInput
from engine.problem import InvalidInputError
from engine.vocabulary import DeadLetterReason
from stores import clock
from stores.dead_letters import keep_message
from stores.intake_settings import IntakeSettings, intake_settings
from stores.pressure import BehindError, Gauge
from stores.settings import app_settings
from stores.submission import KeyReused, Started, submit
from stores.task_hub import TaskHubUnavailableError
from telemetry.attributes import DEAD_LETTER_ID, DEAD_LETTER_REASON, SOURCE
from triggers.resolution import Origin, UnknownTargetError, resolve

_OUR_SIDE: Final = (TaskHubUnavailableError, AzureError, BehindError, OSError)
"""What an arrival is not to blame for."""

MAX_DETAIL_CHARS: Final = 2_000
"""A document can have more mistakes than a person reads."""

_log = logging.getLogger(__name__)


class NotTakenOverError(Exception):
    """Some arrivals are left to their source, which delivers them again; the others were taken over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an arrival can never become an operation."""

    reason: DeadLetterReason
    detail: str


@dataclass(slots=True)
class Intake:
    """What the sources of one process share.

    Attributes:
        settings: Of the ways in.
        gauge: Knows whether something is far behind.
        starts: Bounds how many starts are under way at once.
    """

    settings: IntakeSettings
    gauge: Gauge
    starts: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.starts = asyncio.Semaphore(self.settings.concurrency)

    async def take(self, hub: str, arrival: Arrival) -> None:
        """Take one arrival over: afterwards it is an operation, or a dead letter.

        Args:
            hub: Configuration of the durable client.
            arrival: As its source delivered it.

        Raises:
            NotTakenOverError: It is neither, and should be delivered again.
        """
        try:
            refusal = await self._started(hub, arrival)
            if refusal is not None:
                await keep(arrival, refusal)
        except _OUR_SIDE as error:
            raise NotTakenOverError(f"{arrival.source} {arrival.native_id}: {error}") from error

    async def take_all(self, hub: str, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Take a batch over: one bad arrival neither fails nor blocks its neighbours.

        Arrivals of one partition follow each other where the settings ask for it: one that is left holds up
        those behind it, so that none overtakes. Otherwise all are taken side by side.

        Returns:
            What is left. The whole batch may come again, which starts nothing twice.
        """
        lines = _lines(arrivals) if self.settings.keeps_order else [[arrival] for arrival in arrivals]
        left = await asyncio.gather(*(self._take_line(hub, line) for line in lines))
        return [arrival for line in left for arrival in line]

    async def _take_line(self, hub: str, line: Sequence[Arrival]) -> Sequence[Arrival]:
        """Take arrivals one after the other; return those that are left because one could not be taken."""
        for position, arrival in enumerate(line):
            try:
                await self.take(hub, arrival)
            except NotTakenOverError as error:
                _log.warning("left for later: %s", error)
                return line[position:]
        return ()

    async def _started(self, hub: str, arrival: Arrival) -> Refusal | None:
        """Start what an arrival asks for, or say why it never can be."""
        try:
            return await self._submit(hub, arrival, self.operation_of(arrival))
        except MalformedBodyError as error:
            return Refusal(DeadLetterReason.MALFORMED_JSON, str(error))
        except UnknownTargetError as error:
            return Refusal(DeadLetterReason.UNKNOWN_DEPENDENCY, str(error))
        except InvalidInputError as error:
            return Refusal(DeadLetterReason.VALIDATION_FAILED, str(error))
        except _OUR_SIDE:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not hold up the source for ever
            _log.exception("an arrival from %s cannot be taken over", arrival.source)
            return Refusal(DeadLetterReason.POISON_MESSAGE, f"taking it over failed: {type(error).__name__}")

    def operation_of(self, arrival: Arrival) -> OperationInput:
        """Return the operation that an arrival asks for.

        Raises:
            InvalidInputError: It asks for none.
        """
        wanted = self._wanted(arrival)
        name = wanted.name
        origin = Origin(source=arrival.source, scope=name.scope, key=name.key, trace=wanted.trace)
        return resolve(wanted.request, origin, clock.now())

    def _wanted(self, arrival: Arrival) -> Wanted:
        pointers = self.settings.pointers_for(arrival.source)
        return read_arrival(arrival, max_bytes=app_settings().max_body_bytes, key_pointers=pointers)

    async def _submit(self, hub: str, arrival: Arrival, operation: OperationInput) -> Refusal | None:
        await self.gauge.admit(hub, operation.dependency, may_be_left=arrival.may_be_left)
        async with self.starts:
            submission = await submit(hub, operation)
        match submission:
            case KeyReused():
                return Refusal(DeadLetterReason.VALIDATION_FAILED, "the key belongs to another request")
            case Started():
                self.gauge.note_start(operation)
        return None


async def keep(arrival: Arrival, refusal: Refusal) -> None:
    """Keep an arrival for a person, with its raw text.

    Raises:
        azure.core.exceptions.AzureError: It could not be kept.
    """
    message_id = arrival.native_id or id_of_body(arrival.body)
    dead_letter_id = await keep_message(
        kept_text(arrival.body),
        source=arrival.source,
        message_id=message_id,
        reason=refusal.reason,
        detail=refusal.detail[:MAX_DETAIL_CHARS],
        now=clock.now(),
    )
    reason = refusal.reason.value
    _log.warning(
        "%s %s is dead letter %s: %s",
        arrival.source,
        message_id,
        dead_letter_id,
        reason,
        extra={SOURCE: arrival.source, DEAD_LETTER_ID: dead_letter_id, DEAD_LETTER_REASON: reason},
    )


async def keep_all(arrivals: Iterable[Arrival], refusal: Refusal) -> None:
    """Keep what no delivery will bring again."""
    for arrival in arrivals:
        await keep(arrival, refusal)


@cache
def intake() -> Intake:
    """Return this process's intake, made at first use."""
    settings = intake_settings()
    return Intake(settings, Gauge(settings.lag, settings.pause_seconds))


def _lines(arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    """Sort arrivals by partition; within one they keep their order."""
    by_partition = sorted(arrivals, key=lambda arrival: arrival.partition)
    return [list(line) for _, line in groupby(by_partition, key=lambda arrival: arrival.partition)]
