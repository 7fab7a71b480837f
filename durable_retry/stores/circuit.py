"""The shared circuits in the task hub: the entity `circuit_breaker`, one per dependency, and its waiters.

Workers read its state, and a `CircuitReporter` sends it what their attempts showed. Operations and outboxes
that wait for a circuit are found page by page, and woken.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import grpc
from durabletask.client import OrchestrationStatus
from durabletask.entities import EntityInstanceId

from durable_retry import clock
from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import (
    CALL_LIMITER,
    CIRCUIT_BREAKER,
    CIRCUIT_EVENT,
    CIRCUIT_OPENINGS,
    MANUAL_CONTROL,
    RELEASE_WAITING,
    REPORT,
    OperationState,
    outbox_instance,
)
from durable_retry.engine.circuit import (
    Breaker,
    CircuitSettings,
    ManualControlMessage,
    Openings,
    Report,
    ReportBuffer,
    ReportMessage,
    breaker_from_json,
)
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.limits import Limiter, LimitSettings
from durable_retry.settings.configuration import function_name
from durable_retry.stores.task_hub import (
    ID_PREFIX,
    InstanceEndedError,
    Selection,
    client_for,
    operations_page,
    raise_event,
    start_instance,
    task_hub_unavailable,
)
from durable_retry.telemetry.spans import DEPENDENCY

_log = logging.getLogger(__name__)


class SharedCircuit(Protocol):
    """One dependency's shared circuit."""

    async def read(self) -> Breaker:
        """Return its state; the initial state when nothing was ever reported.

        Raises:
            TaskHubUnavailableError: The task hub did not answer.
            ValueError: A later version of the engine wrote the state.
        """

    async def report(self, message: ReportMessage) -> None:
        """Send a worker's report. Idempotent: a report sent twice is counted once.

        Raises:
            TaskHubUnavailableError: The task hub refused it, or its answer was lost.
        """


@dataclass(frozen=True, slots=True)
class CircuitEntity:
    """The circuit of one dependency in one task hub; a `SharedCircuit`.

    Attributes:
        hub: Configuration of the durable client.
        dependency: Its name, the entity's key.
    """

    hub: str
    dependency: str

    async def read(self) -> Breaker:
        """See `SharedCircuit`."""
        return breaker_from_json(await self._state(circuit_id(self.dependency)))

    async def openings(self) -> Openings:
        """Return its latest openings.

        Raises:
            TaskHubUnavailableError: The task hub did not answer.
        """
        stored = await self._state(EntityInstanceId(function_name(CIRCUIT_OPENINGS), self.dependency))
        return Openings() if stored is None else Openings.from_json(stored)

    async def limiter(self) -> Limiter:
        """Return the state of the dependency's limiter.

        Raises:
            TaskHubUnavailableError: The task hub did not answer.
        """
        stored = await self._state(limiter_id(self.dependency))
        return Limiter() if stored is None else Limiter.from_json(stored)

    async def report(self, message: ReportMessage) -> None:
        """See `SharedCircuit`."""
        await self._signal(REPORT, message.to_json())

    async def control(self, message: ManualControlMessage) -> None:
        """Signal a manual control of the circuit.

        Raises:
            TaskHubUnavailableError: The task hub refused it, or its answer was lost.
        """
        await self._signal(MANUAL_CONTROL, message.to_json())

    async def _state(self, entity_id: EntityInstanceId) -> dict[str, Any] | None:
        client = await client_for(self.hub)
        try:
            entity = await client.get_entity(entity_id)
        except grpc.aio.AioRpcError as error:
            raise task_hub_unavailable(error) from error
        text = None if entity is None else entity.get_state(str)
        return json.loads(text) if text else None

    async def _signal(self, operation: str, message: dict[str, Any]) -> None:
        client = await client_for(self.hub)
        try:
            await client.signal_entity(circuit_id(self.dependency), operation, message)
        except grpc.aio.AioRpcError as error:
            raise task_hub_unavailable(error) from error


def circuit_id(dependency: str) -> EntityInstanceId:
    """Return the entity id of a dependency's circuit."""
    return EntityInstanceId(function_name(CIRCUIT_BREAKER), dependency)


def limiter_id(dependency: str) -> EntityInstanceId:
    """Return the entity id of a dependency's limiter."""
    return EntityInstanceId(function_name(CALL_LIMITER), dependency)


SEND_SECONDS: Final = 2.0


SEND_DELAY: Final = timedelta(seconds=1)
"""Wait before a failed report is sent again."""


_DOUBLINGS: Final = 3
"""The wait doubles up to eight times the first: a task hub may be gone for good."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Admission settings of one dependency.

    Attributes:
        dependency: Its name.
        circuit: `enabled = false` switches the circuit off; the retry budget stays on.
        budget: A ratio of 0 switches the retry budget off.
        limits: Attempts at once and starts per second.
    """

    dependency: str
    circuit: CircuitSettings
    budget: RetryBudgetSettings
    limits: LimitSettings = field(default_factory=LimitSettings)


@dataclass(slots=True)
class CircuitReporter:
    """Sends due reports, one at a time.

    Attributes:
        settings: The dependency's settings; sent along with each report.
        shared: The circuit entity.
        buffer: Reports not sent yet.
        now: Clock, aware UTC.
    """

    settings: AdmissionSettings
    shared: SharedCircuit
    buffer: ReportBuffer
    now: Callable[[], datetime] = clock.now
    _sending: bool = False
    _unsent: Report | None = None
    _send_again_at: datetime | None = None
    _failed_sends: int = 0
    _timer: asyncio.TimerHandle | None = None
    _timer_at: datetime | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def flush(self) -> None:
        """Send the reports that are due; set a timer for the next one."""
        if self._sending:
            return  # The running flush checks for more before it ends.
        self._sending = True
        try:
            while (due := self.next_report_at()) is not None and due <= self.now() and await self._send():
                pass
        finally:
            self._sending = False
            self._set_timer()

    def next_report_at(self) -> datetime | None:
        """Return when the next report is due; None when there is none."""
        return self._send_again_at if self._unsent is not None else self.buffer.due_at()

    def close(self) -> None:
        """Cancel the timer. For tests and benchmarks; a host just ends the process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _send(self) -> bool:
        """Send one report; False when it failed. The same report is then sent again later."""
        report = self._unsent or self.buffer.take(self.now())
        self._unsent = report
        settings = self.settings
        message = ReportMessage(report, settings.circuit, settings.budget, settings.limits.adaptive_settings)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.shared.report(message)
        except Exception as error:  # noqa: BLE001 - a failed report must not fail the attempt
            self._wait_to_send(error)
            return False
        self._unsent, self._failed_sends = None, 0
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

    def _set_timer(self) -> None:
        """Set a timer of the event loop for the next due report."""
        due = self.next_report_at()
        if due is None or (self._timer is not None and self._timer_at is not None and self._timer_at <= due):
            return
        self.close()
        self._timer_at = due
        delay_seconds = max(0.0, (due - self.now()).total_seconds())
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_OUTBOXES: Final = "outboxes|"
"""What a position begins with once all operations were read."""


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """One page of running instances.

    Attributes:
        waiting: Ids of those that wait for the circuit in question.
        following: Where the next page begins; None after the last one.
    """

    waiting: tuple[str, ...]
    following: str | None


async def start_release(hub: str, dependency: str, control: ManualControlMessage) -> None:
    """Start the orchestration that wakes waiting operations once the manual control took effect.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.
        control: Applied once even if signalled twice.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    given = {"dependency": dependency, "hand": control.to_json()}
    await start_instance(hub, RELEASE_WAITING, f"release-{dependency}-{uuid.uuid4().hex}", given, again=False)


async def waiting_page(
    hub: str, dependency: str, since_before: datetime, position: str | None
) -> WaitingPage:
    """Read one page of running instances and select those that wait for a circuit.

    First the operations, then the outboxes, whose webhooks wait for the circuit of their destination.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.
        since_before: Only those whose present wait began before this instant.
        position: `following` of the page before; None for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    is_outbox = position is not None and position.startswith(_OUTBOXES)
    prefix = outbox_instance("") if is_outbox else ID_PREFIX
    selection = Selection(runtime_statuses=(OrchestrationStatus.RUNNING,), prefix=prefix)
    page = await operations_page(hub, selection, (position or "").removeprefix(_OUTBOXES) or None)
    waits_for = _outbox_waits_for if is_outbox else _operation_waits_for
    waiting = tuple(
        found.instanceId
        for found in page.instances
        if waits_for(_object(found.customStatus.value), dependency, since_before)
    )
    if is_outbox:
        return WaitingPage(waiting, None if page.following is None else _OUTBOXES + page.following)
    return WaitingPage(waiting, _OUTBOXES if page.following is None else page.following)


async def wake(hub: str, dependency: str, instance_ids: Iterable[str], changed_at: datetime) -> None:
    """Send the change of a circuit to waiting instances; one that has ended meanwhile is skipped.

    Args:
        hub: Configuration of the durable client.
        dependency: Whose circuit.
        instance_ids: Of operations and outboxes.
        changed_at: Waits that began later are not ended.

    Raises:
        TaskHubUnavailableError: The task hub did not take all of them.
    """
    change = {"at": to_rfc3339(changed_at), "dependency": dependency}
    await asyncio.gather(*(_wake_one(hub, each, change) for each in instance_ids))


async def _wake_one(hub: str, instance_id: str, change: Mapping[str, str]) -> None:
    with suppress(InstanceEndedError):
        await raise_event(hub, instance_id, CIRCUIT_EVENT, change)


def _outbox_waits_for(status: Mapping[str, Any], dependency: str, since_before: datetime) -> bool:
    since = status.get("waiting_circuit", {}).get(dependency)
    return since is not None and from_rfc3339(since) < since_before


def _operation_waits_for(status: Mapping[str, Any], dependency: str, since_before: datetime) -> bool:
    if status.get("status") != OperationState.WAITING_CIRCUIT.value:
        return False
    if from_rfc3339(status["updated_at"]) >= since_before:
        return False
    return bool(status["dependency"] == dependency)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text) if text else None
    return value if isinstance(value, dict) else {}
