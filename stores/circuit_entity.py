"""The shared circuits in the task hub: the entity `circuit_breaker`, one per dependency."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from durabletask.entities import EntityInstanceId

from engine.circuit import ENTITY, HAND, REPORT, Breaker, HandMessage, ReportMessage, breaker_from_json
from stores.task_hub import TaskHubUnavailableError, client_for


class SharedCircuit(Protocol):
    """One dependency's circuit, as a worker reaches it."""

    async def read(self) -> Breaker:
        """Return its state; a new one when nothing was ever reported.

        Raises:
            TaskHubUnavailableError: The task hub did not answer.
            ValueError: A later version of the engine wrote the state.
        """

    async def report(self, message: ReportMessage) -> None:
        """Send a worker's news; the same news may be sent again.

        Raises:
            TaskHubUnavailableError: The task hub did not take it, or nobody knows.
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

    async def hand(self, message: HandMessage) -> None:
        """Do something by hand.

        Raises:
            TaskHubUnavailableError: The task hub did not take it.
        """
        await self._signal(HAND, message.to_json())

    async def _signal(self, operation: str, message: dict[str, Any]) -> None:
        client = await client_for(self.hub)
        try:
            await client.signal_entity(circuit_id(self.dependency), operation, message)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error


def circuit_id(dependency: str) -> EntityInstanceId:
    """Return the entity that keeps a dependency's circuit."""
    return EntityInstanceId(ENTITY, dependency)


def _unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")
