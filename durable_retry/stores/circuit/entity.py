"""The shared circuits: the entity `circuit_breaker` in the task hub, one per dependency."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from durabletask.entities import EntityInstanceId

from durable_retry.engine.base.names import CIRCUIT_BREAKER, MANUAL_CONTROL, REPORT
from durable_retry.engine.circuit import Breaker, ManualControlMessage, ReportMessage, breaker_from_json
from durable_retry.stores.task_hub.client import TaskHubUnavailableError, client_for


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
        client = await client_for(self.hub)
        try:
            entity = await client.get_entity(circuit_id(self.dependency))
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error
        text = None if entity is None else entity.get_state(str)
        return breaker_from_json(json.loads(text) if text else None)

    async def report(self, message: ReportMessage) -> None:
        """See `SharedCircuit`."""
        await self._signal(REPORT, message.to_json())

    async def control(self, message: ManualControlMessage) -> None:
        """Signal a manual control of the circuit.

        Raises:
            TaskHubUnavailableError: The task hub refused it, or its answer was lost.
        """
        await self._signal(MANUAL_CONTROL, message.to_json())

    async def _signal(self, operation: str, message: dict[str, Any]) -> None:
        client = await client_for(self.hub)
        try:
            await client.signal_entity(circuit_id(self.dependency), operation, message)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error


def circuit_id(dependency: str) -> EntityInstanceId:
    """Return the entity id of a dependency's circuit."""
    return EntityInstanceId(CIRCUIT_BREAKER, dependency)


def _unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")
