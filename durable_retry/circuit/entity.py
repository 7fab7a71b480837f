"""The shared circuits in the task hub: the entity `circuit_breaker`, one per dependency, and its waiters.

With `circuit.by = "limit_key"` there is one more for each limit key.

Workers read its state, and a `CircuitReporter` sends it what their attempts showed. Operations, and events,
that wait for a circuit are found page by page, and woken. Every call of the hub raises
`TaskHubUnavailableError` where it does not answer, or does not take what is sent.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from durabletask.client import OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_object
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import (
    CIRCUIT_EVENT,
    FORGET,
    FREEZE,
    MANUAL_CONTROL,
    REPORT,
    OperationState,
)
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.hub.orchestrations import orchestrations
from durable_retry.hub.task_hub import ID_PREFIX, Selection, TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.calls import Report
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependency import Bounds
from durable_retry.rules.operations.status import WAITS_FOR
from durable_retry.runtime import clock
from durable_retry.settings.configuration import present_name
from durable_retry.telemetry.spans import DEPENDENCY

_log = logging.getLogger(__name__)


class SharedCircuit(Protocol):
    """One dependency's shared circuit."""

    async def read(self) -> Breaker:
        """Return its state; the initial one when nothing was ever reported.

        ValueError where a later version of the engine wrote it.
        """

    async def report(self, message: ReportMessage) -> None:
        """Send a worker's report. Idempotent: a report sent twice is counted once."""


@dataclass(frozen=True, slots=True)
class CircuitEntity:
    """The circuit of one dependency in one task hub; a `SharedCircuit`."""

    hub: TaskHub
    dependency: str  # its name
    limit_key: str | None = None  # whose circuit it is; None for the dependency's own

    @property
    def id(self) -> EntityInstanceId:
        return circuit_id(self.dependency, self.limit_key)

    async def read(self) -> Breaker:
        """See `SharedCircuit`."""
        return _breaker_of_text(await self.hub.read_entity(self.id))

    async def readable(self) -> tuple[Breaker, str | None]:
        """Return its state; the initial one, and why, where what is stored cannot be read."""
        text = await self.hub.read_entity(self.id)
        return read_or(lambda: (_breaker_of_text(text), None), lambda reason: (Breaker(), reason))

    async def report(self, message: ReportMessage) -> None:
        """See `SharedCircuit`."""
        await self.hub.signal_entity(self.id, REPORT, message.to_json())

    async def control(self, action: ManualAction) -> None:
        """Signal a manual control of the circuit."""
        await self.hub.signal_entity(self.id, MANUAL_CONTROL, action.to_json())

    async def freeze(self, freeze: Freeze) -> None:
        """Signal the latest state of the freeze of every dependency."""
        await self.hub.signal_entity(self.id, FREEZE, freeze.to_json())

    async def forget(self) -> None:
        """Signal that its state may go, if nobody has used it meanwhile."""
        await self.hub.signal_entity(self.id, FORGET, {})


def _breaker_of_text(text: str | None) -> Breaker:
    return Breaker.from_json_text(text or "{}")


SEND_SECONDS: Final = 2.0


SEND_DELAY: Final = timedelta(seconds=1)
"""Wait before a failed report is sent again."""


SEEN_AFTER: Final = timedelta(seconds=5)
"""By then the circuit shows a report that it counted. A report is lost with a worker that dies while it runs
the entity, and of a probe or a pause no later report tells."""

_DOUBLINGS: Final = 3
"""The wait doubles up to eight times the first: a task hub may be gone for good."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Admission settings of one dependency."""

    dependency: str
    circuit: CircuitSettings  # `enabled = false` switches the circuit off; the retry budget stays on
    budget: RetryBudgetSettings  # a ratio of 0 switches the retry budget off
    bounds: Bounds | None = None  # of its attempts; None where nothing bounds them
    limit_key: str | None = None  # whose circuit it is; None for the dependency's own


@dataclass(slots=True)
class CircuitReporter:
    """Sends due reports, one at a time, and again what is lost of a probe or a pause."""

    settings: AdmissionSettings  # the dependency's settings; sent along with each report
    shared: SharedCircuit
    buffer: ReportBuffer  # reports not sent yet
    now: Callable[[], datetime] = clock.now
    _sending: bool = False
    _unsent: Report | None = None
    _send_again_at: datetime | None = None
    _failed_sends: int = 0
    _look_at: datetime | None = None  # when to look whether reports were counted; None for no need
    _timer: asyncio.TimerHandle | None = None
    _timer_at: datetime | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def flush(self) -> None:
        """Send the reports that are due; set a timer for the next one."""
        if self._sending:
            return  # The running flush checks for more before it ends.
        self._sending, is_sent, due = True, True, None
        try:
            while (due := self.next_report_at()) is not None and is_sent and due <= self.now():
                is_looked_for = self._unsent is None and self._look_at is not None and self._look_at <= due
                is_sent = await (self._look_for_lost() if is_looked_for else self._send_report())
        finally:
            self._sending = False
            if due is not None and (self._timer is None or self._timer_at is None or due < self._timer_at):
                self.close()
                self._timer_at = due
                delay_seconds = max(0.0, (due - self.now()).total_seconds())
                self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def next_report_at(self) -> datetime | None:
        """Return when the next report, or look for one that is lost, is due; None when there is none."""
        if self._unsent is not None:
            return self._send_again_at
        return min(filter(None, (self.buffer.due_at(), self._look_at)), default=None)

    def close(self) -> None:
        """Cancel the timer. For tests and benchmarks; a host just ends the process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _send_report(self) -> bool:
        """Send one report; False when it failed. The same report is then sent again later."""
        report = self._unsent or self.buffer.take(self.now())
        self._unsent = report
        settings = self.settings
        message = ReportMessage(report, settings.circuit, settings.budget, settings.limit_key)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.shared.report(message)
        except Exception as error:  # noqa: BLE001 - a failed report must not fail the attempt
            self._wait_to_send(error)
            return False
        self._unsent, self._failed_sends = None, 0
        if self.buffer.uncounted(self.now()) is not None:
            self._look_at = self._look_at or self.now() + SEEN_AFTER
        return True

    async def _look_for_lost(self) -> bool:
        """Read the circuit; make a report due again that it has not counted."""
        self._look_at, reporters = None, None
        with suppress(Exception):  # as one that is lost: sent twice, it is counted once
            async with asyncio.timeout(SEND_SECONDS):
                reporters = (await self.shared.read()).reporters
        self._unsent = self.buffer.uncounted(self.now(), reporters)
        self._send_again_at = self.now()
        return True

    def _wait_to_send(self, error: Exception) -> None:
        wait = SEND_DELAY * 2 ** min(self._failed_sends, _DOUBLINGS)
        self._failed_sends += 1
        self._send_again_at = self.now() + wait
        _log.warning(
            "A report to the circuit of %s failed (%s: %s); it is sent again in %g s.",
            self.settings.dependency,
            type(error).__name__,
            error,
            wait.total_seconds(),
            extra={DEPENDENCY: self.settings.dependency},
        )

    def _on_timer(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


SETTLE: Final = timedelta(seconds=2)
"""By then no worker uses a snapshot from before the change: one is valid for a second, and reading it takes
at most another. An operation woken earlier could be refused again, for the whole of the old break."""
PASSES: Final = 10
"""Passes over all instances, at most. Some task hubs page by offset, so operations that were woken shift
others to a page that was read already; passes are repeated until one finds nothing."""
BETWEEN_PASSES: Final = timedelta(seconds=1)
"""By then the status of a woken operation shows it."""


async def calling_page(hub: TaskHub, position: str | None) -> tuple[list[OrchestrationState], str | None]:
    """Read a page of what runs and calls dependencies, operations first, and the position of the next one.

    On Azure Storage an instance stays pending where the answer to the write of its first turn was lost.
    """
    running = Selection(runtime_statuses=(OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING))
    others = (declared.prefix for declared in orchestrations().values() if declared.calls_dependencies)
    return await hub.page_of_prefixes(running, (ID_PREFIX, *others), position)


def circuits_waited_for(instance: OrchestrationState, since_before: datetime) -> tuple[str, ...]:
    """Return the dependencies for whose circuits an instance has waited since before an instant.

    Empty where its custom status cannot be read: then its own timer wakes it.
    """
    status = json_object(instance.customStatus.value) or {}
    is_operation = instance.instanceId.startswith(ID_PREFIX)
    circuits = _circuit_of_operation if is_operation else _circuits_of_other
    return read_or(lambda: circuits(status, since_before), lambda _: ())


async def wake(hub: TaskHub, dependency: str, instance_ids: Iterable[str], changed_at: datetime) -> None:
    """Send the change of a circuit to waiting instances; one that has ended meanwhile is skipped.

    Waits that began after the change are not ended.
    """
    change = {"at": to_rfc3339(changed_at), "dependency": dependency}
    await asyncio.gather(*(_wake_one(hub, instance_id, change) for instance_id in instance_ids))


async def _wake_one(hub: TaskHub, instance_id: str, change: Mapping[str, str]) -> None:
    with suppress(InstanceEndedError):
        await hub.raise_event(instance_id, CIRCUIT_EVENT, change)


def _circuits_of_other(status: Mapping[str, Any], since_before: datetime) -> tuple[str, ...]:
    waiting = status.get("held", {})
    return tuple(name for name, since in waiting.items() if from_rfc3339(since) < since_before)


def _circuit_of_operation(status: Mapping[str, Any], since_before: datetime) -> tuple[str, ...]:
    if status.get("status") not in {OperationState.WAITING_CIRCUIT, OperationState.WAITING_THROTTLE}:
        return ()
    if from_rfc3339(status["updated_at"]) >= since_before:
        return ()
    return (present_name(status.get(WAITS_FOR, status["dependency"])),)
