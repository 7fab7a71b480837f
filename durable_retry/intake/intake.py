"""What all message sources share: each message becomes an operation, or a dead letter, one by one.

A message that is wrong itself becomes a dead letter at once: it would be wrong the next time too. A failure
of the app or of Azure raises `NotAcceptedError`, and the source delivers the message again. There is no third
result.

Backpressure: while the task hub or a dependency is far behind, a source's message waits before it is started.
An HTTP caller would wait too, so beyond its limits a submission is refused at once (`HttpAdmission`).
`BackpressureMonitor` samples one started operation per dependency, the probe: it reads its status at most
once a second while more operations arrive. `rules.intake` judges that status.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any, Final

import azure.functions as func
from azure.core.exceptions import AzureError

from durable_retry.base.documents import MalformedJsonError
from durable_retry.base.errors import OverloadedError, TaskHubUnavailableError
from durable_retry.base.names import QUEUE_SOURCE, DeadLetterReason
from durable_retry.base.text import kept_text
from durable_retry.base.validation import InvalidInputError
from durable_retry.dead_letters.records import keep_message
from durable_retry.hub.platform_retries import is_last_run, note_retry
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import KeyReused, Started, SubmitResult, end_within, submit
from durable_retry.operations.status import document_of
from durable_retry.rules.config.dependency import UnknownTargetError
from durable_retry.rules.dead_letters.record import Deliveries, of_message
from durable_retry.rules.intake import (
    Arrival,
    Backpressure,
    LagThresholds,
    id_of_body,
    lag_reading,
    read_message,
)
from durable_retry.rules.operations.envelope import parse_envelope
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import OperationDocument
from durable_retry.rules.operations.submission import Naming, read_operation
from durable_retry.rules.retry.history import WaitKind
from durable_retry.runtime import clock
from durable_retry.settings.configuration import app_settings, targets
from durable_retry.settings.intake import IntakeSettings, intake_settings
from durable_retry.telemetry.spans import DEAD_LETTER_ID, DEAD_LETTER_REASON, SOURCE

SAMPLE_INTERVAL: Final = timedelta(seconds=1)

_log = logging.getLogger(__name__)


class BehindError(Exception):
    """Something is far behind; the arrival should be delivered again later."""

    def __init__(self, backpressure: Backpressure, dependency: str) -> None:
        what = "the task hub" if backpressure is Backpressure.TASK_HUB else f"the dependency {dependency}"
        super().__init__(f"{what} is far behind")


@dataclass(slots=True)
class BackpressureProbe:
    """One started operation whose status is sampled."""

    operation_id: str
    started_at: datetime
    sampled_at: datetime
    backpressure: Backpressure | None = None


@dataclass(slots=True)
class BackpressureMonitor:
    """How far the task hub and dependencies are behind, as this process sampled it."""

    limits: LagThresholds
    pause_seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    probes: dict[str, BackpressureProbe] = field(default_factory=dict)

    def note_start(self, operation: OperationInput) -> None:
        """Make a started operation the probe of its dependency, unless there is one."""
        now = clock.now()
        self.probes.setdefault(operation.dependency, BackpressureProbe(operation.operation_id, now, now))

    async def admit(self, hub: TaskHub, dependency: str, *, may_be_left: bool) -> None:
        """Wait until nothing is behind, at most `pause_seconds`.

        Raises:
            BehindError: Something is still behind, and the arrival may be given back.
        """
        until = clock.now() + timedelta(seconds=self.pause_seconds)
        while (backpressure := await self.backpressure(hub, dependency)) is not None:
            left_seconds = (until - clock.now()).total_seconds()
            if left_seconds > 0:
                await self.sleep(min(left_seconds, SAMPLE_INTERVAL.total_seconds()))
            elif may_be_left:
                raise BehindError(backpressure, dependency)
            else:
                _log.warning("%s is far behind; an arrival is started all the same", backpressure.value)
                return

    async def backpressure(self, hub: TaskHub, dependency: str) -> Backpressure | None:
        """Return what is behind for a dependency's operations; None when nothing is."""
        for name in tuple(self.probes):  # any dependency's probe can show that the task hub is behind
            await self._sample_probe(hub, name)
        delays = {name: probe.backpressure for name, probe in self.probes.items()}
        if Backpressure.TASK_HUB in delays.values():
            return Backpressure.TASK_HUB
        return delays.get(dependency)

    async def _sample_probe(self, hub: TaskHub, dependency: str) -> None:
        probe, now = self.probes.get(dependency), clock.now()
        if probe is None or now - probe.sampled_at < SAMPLE_INTERVAL:
            return
        probe.sampled_at = now  # before the read: concurrent callers use the last result
        instance = await hub.read_instance(probe.operation_id)
        document = {} if instance is None else document_of(instance)
        # An operation that waits for a hold of everything shows no lag: submissions are accepted meanwhile.
        is_held = [wait["kind"] for wait in document.get("waits", ())][-1:] == [WaitKind.FREEZE]
        reading = lag_reading(
            None if is_held else document.get("status"), (now - probe.started_at).total_seconds(), self.limits
        )
        probe.backpressure = reading.backpressure
        if reading.is_over and self.probes.get(dependency) is probe:
            del self.probes[dependency]


@dataclass(slots=True)
class HttpAdmission:
    """Refuses submissions over HTTP before they pile up: in this process, or in the task hub.

    A caller that waits for the end of its operation holds no place: it costs a call that sleeps. One too many
    is not refused either, but answered at once: its operation is started.

    Attributes:
        limit: Submissions under way at once; 0 means no limit.
        most_waiting: Callers that wait for an end at once; 0 means no limit.
    """

    limit: int
    most_waiting: int
    monitor: BackpressureMonitor
    under_way: int = 0
    waiting: int = 0

    def require_place(self) -> None:
        """Refuse a submission for which there is no place, before anything is done for it.

        Raises:
            OverloadedError: Too many are under way.
        """
        if 0 < self.limit <= self.under_way:
            raise OverloadedError(f"{self.limit} submissions are under way in this process already")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place among the submissions under way; raises as `require_place` does."""
        self.require_place()
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    @asynccontextmanager
    async def admitted(self, hub: TaskHub) -> AsyncIterator[None]:
        """Hold a place for what the task hub starts.

        Raises:
            OverloadedError: There is none, or the task hub is far behind.
        """
        with self.place():
            seconds = self.monitor.limits.task_hub_seconds
            if seconds > 0 and await self.monitor.backpressure(hub, "") is not None:
                raise OverloadedError(f"an operation has not begun within {seconds:g} s of its start")
            yield

    async def submit(self, hub: TaskHub, operation: OperationInput) -> SubmitResult:
        """Start an operation in a place among those under way; raises as `admitted` and as `submit` do."""
        async with self.admitted(hub):
            result = await submit(hub, operation)
        if isinstance(result, Started):
            self.monitor.note_start(operation)
        return result

    async def end_within(self, hub: TaskHub, operation_id: str, seconds: float) -> OperationDocument | None:
        """Wait for the end of an operation as `actions.end_within`; None at once where too many wait."""
        if 0 < self.most_waiting <= self.waiting:
            return None
        self.waiting += 1
        try:
            return await end_within(hub, operation_id, seconds)
        finally:
            self.waiting -= 1


# Failures that another delivery of the same message may not meet.
_NOT_THE_MESSAGE: Final = (TaskHubUnavailableError, AzureError, BehindError, OSError)

_MOST_LEFT: Final = 1_000
"""Most messages left to their source of which a process remembers when it first left them."""

MAX_DETAIL_CHARS: Final = 2_000
"""A document can have more mistakes than a person reads."""


class NotAcceptedError(Exception):
    """Some messages are left to their source, which delivers them again; the others were accepted."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message can never become an operation."""

    reason: DeadLetterReason
    detail: str


@dataclass(slots=True)
class Intake:
    """What the sources of one process share."""

    settings: IntakeSettings
    backpressure: BackpressureMonitor
    starts: asyncio.Semaphore = field(init=False)
    # When this process first left a message to its source, by the id of its body; the latest `_MOST_LEFT`.
    left_since: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.starts = asyncio.Semaphore(self.settings.intake_concurrency)

    async def accept(self, hub: TaskHub, arrival: Arrival) -> None:
        """Accept one message: afterwards it is an operation, or a dead letter.

        Raises:
            NotAcceptedError: It is neither, and should be delivered again.
        """
        try:
            refusal = await self._start_or_refuse(hub, arrival)
            if refusal is not None:
                await self.keep_refused(arrival, refusal)
            elif self.left_since:
                self.left_since.pop(id_of_body(arrival.body), None)
        except _NOT_THE_MESSAGE as error:
            self.left_since.setdefault(id_of_body(arrival.body), clock.now())
            if len(self.left_since) > _MOST_LEFT:
                del self.left_since[next(iter(self.left_since))]
            raise NotAcceptedError(f"{arrival.source} {arrival.native_id}: {error}") from error

    async def keep_refused(self, arrival: Arrival, refusal: Refusal, last_at: datetime | None = None) -> None:
        """Keep a refused message as a dead letter; a poison message with its deliveries.

        Args:
            last_at: When it was delivered last; None means now.
        """
        deliveries = None
        if refusal.reason is DeadLetterReason.POISON_MESSAGE:
            last_at = last_at or clock.now()
            since = self.left_since.pop(id_of_body(arrival.body), None)
            first_at = last_at if arrival.deliveries == 1 else since
            deliveries = Deliveries(arrival.deliveries, first_at, last_at)
        await keep_refused(arrival, refusal, deliveries)

    async def accept_all(self, hub: TaskHub, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Accept a batch: one bad message neither fails nor blocks the others.

        Where the settings ask for order, messages of one partition follow each other: one that is not
        accepted holds up those behind it. Otherwise all are accepted side by side.

        Returns:
            The messages that were not accepted. The whole batch may come again, which starts nothing twice.
        """
        lines = (
            _lines_by_partition(arrivals)
            if self.settings.keeps_order
            else [[arrival] for arrival in arrivals]
        )
        not_accepted = await asyncio.gather(*(self._accept_line(hub, line) for line in lines))
        return [arrival for line in not_accepted for arrival in line]

    async def _accept_line(self, hub: TaskHub, line: Sequence[Arrival]) -> Sequence[Arrival]:
        for position, arrival in enumerate(line):
            try:
                await self.accept(hub, arrival)
            except NotAcceptedError as error:
                _log.warning("left for later: %s", error)
                return line[position:]
        return ()

    async def _start_or_refuse(self, hub: TaskHub, arrival: Arrival) -> Refusal | None:
        try:
            return await self._submit_arrival(hub, arrival, self.operation_of(arrival))
        except MalformedJsonError as error:
            hint = "; it is not base64 of JSON either" if arrival.source == QUEUE_SOURCE else ""
            return Refusal(DeadLetterReason.MALFORMED_JSON, f"{error}{hint}")
        except UnknownTargetError as error:
            return Refusal(DeadLetterReason.UNKNOWN_DEPENDENCY, str(error))
        except InvalidInputError as error:
            return Refusal(DeadLetterReason.VALIDATION_FAILED, str(error))
        except _NOT_THE_MESSAGE:
            raise
        except Exception as error:  # noqa: BLE001 - an unforeseen one must not block the source for ever
            _log.exception("a message from %s cannot be accepted", arrival.source)
            return Refusal(DeadLetterReason.POISON_MESSAGE, f"accepting it failed: {type(error).__name__}")

    def operation_of(self, arrival: Arrival) -> OperationInput:
        """Return the operation that a message starts.

        Raises:
            InvalidInputError: It starts none.
        """
        naming = Naming(
            fields=tuple(self.settings.pointers_for(arrival.source)),
            own=arrival.name,
            order_key=arrival.order_key if self.settings.gives_order_keys else None,
        )

        def read_document(document: Any) -> OperationInput:
            return read_operation(
                parse_envelope(document),
                naming,
                targets(),
                source=arrival.source,
                now=clock.now(),
                trace=arrival.trace,
            )

        return read_message(arrival.body, read_document, max_bytes=app_settings().max_body_bytes)

    async def _submit_arrival(
        self, hub: TaskHub, arrival: Arrival, operation: OperationInput
    ) -> Refusal | None:
        await self.backpressure.admit(hub, operation.dependency, may_be_left=arrival.may_be_left)
        async with self.starts:
            result = await submit(hub, operation)
        match result:
            case KeyReused():
                return Refusal(DeadLetterReason.VALIDATION_FAILED, "the key belongs to another request")
            case Started():
                self.backpressure.note_start(operation)
        return None


async def keep_refused(arrival: Arrival, refusal: Refusal, deliveries: Deliveries | None = None) -> None:
    """Keep a message as a dead letter, with its raw text.

    Args:
        deliveries: Before it was given up; None where it was refused at once.

    Raises:
        azure.core.exceptions.AzureError: It could not be kept.
    """
    letter = of_message(
        kept_text(arrival.body),
        source=arrival.source,
        message_id=arrival.message_id,
        reason=refusal.reason,
        detail=refusal.detail[:MAX_DETAIL_CHARS],
        now=clock.now(),
        deliveries=deliveries,
    )
    dead_letter_id = await keep_message(letter)
    reason = refusal.reason.value
    _log.warning(
        "%s %s is dead letter %s: %s",
        arrival.source,
        arrival.message_id,
        dead_letter_id,
        reason,
        extra={SOURCE: arrival.source, DEAD_LETTER_ID: dead_letter_id, DEAD_LETTER_REASON: reason},
    )


_RAN_OUT: Final = Refusal(
    DeadLetterReason.POISON_MESSAGE, "the platform's retries ran out before it could start"
)


async def accept_batch(hub: TaskHub, arrivals: Sequence[Arrival], context: func.Context) -> None:
    """Accept a batch; in the last run that the platform grants, keep what is not_accepted as dead letters.

    Raises:
        NotAcceptedError: The host should run it again.
        azure.core.exceptions.AzureError: In the last run, and the dead letters could not be kept either.
    """
    note_retry(context)
    not_accepted = await intake().accept_all(hub, arrivals)
    if not_accepted and not is_last_run(context):
        raise NotAcceptedError(f"{len(not_accepted)} of {len(arrivals)} arrivals were not accepted")
    for arrival in not_accepted:
        run = replace(arrival, deliveries=context.retry_context.retry_count + 1)
        await intake().keep_refused(run, _RAN_OUT)


@cache
def intake() -> Intake:
    """Return this process's intake, made at first use."""
    settings = intake_settings()
    return Intake(settings, BackpressureMonitor(settings.lag, settings.intake_pause_seconds))


@cache
def http_admission() -> HttpAdmission:
    """Return this process's admission of submissions over HTTP, made at first use."""
    settings = intake_settings()
    monitor = BackpressureMonitor(settings.http_lag, pause_seconds=0.0)
    return HttpAdmission(settings.http_concurrency, settings.http_waits, monitor)


def _lines_by_partition(arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    # Sorting is stable: within a partition they keep their order.
    by_partition = sorted(arrivals, key=lambda arrival: arrival.partition)
    return [list(line) for _, line in groupby(by_partition, key=lambda arrival: arrival.partition)]
