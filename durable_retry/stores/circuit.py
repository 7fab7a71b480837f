"""The shared circuits in the task hub: the entity `circuit_breaker`, one per dependency, and its waiters.

Operations and outboxes that wait for a circuit are found page by page, and woken.
"""

import asyncio
import json
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import grpc
from durabletask.client import OrchestrationStatus
from durabletask.entities import EntityInstanceId

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
    ManualControlMessage,
    Openings,
    ReportMessage,
    breaker_from_json,
)
from durable_retry.engine.limits import Limiter
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
