"""The task hub, as the app uses it: every call of the durable client, behind a small named function.

Each function takes `hub`, the configuration string of a `durableClient` binding. A client is kept per event
loop and configuration: the SDK's own binding opens and closes a gRPC channel for every invocation of an async
function (see docs/decisions/durable-client.md for what that costs).
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import grpc
from azure.durable_functions import DurableFunctionsClient
from durabletask.client import OrchestrationState, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal.orchestrator_service_pb2 import OrchestrationIdReusePolicy

from engine.idempotency import Record
from engine.operation import OperationInput

OPERATION: Final = "operation"
"""Name of the orchestration that carries one operation."""

RECORD: Final = "idempotency_record"
"""Name of the entity that remembers one key."""

ATTEMPT: Final = "attempt"
COMMIT: Final = "commit"
DEAD_LETTER: Final = "dead_letter"
OUTBOX_PENDING: Final = "outbox_pending"
PUBLISH: Final = "publish"
OUTBOX_GIVE_UP: Final = "outbox_give_up"
"""Names of the activities."""

OUTBOX: Final = "outbox"
"""Name of the orchestration that sends the events of one operation."""

SAGA: Final = "saga"
BATCH: Final = "batch"
"""Names of the orchestrations that run several operations."""

SUBMIT: Final = "submit"
BATCH_STEP: Final = "batch_step"
BATCH_CLOSE: Final = "batch_close"
"""Names of their activities."""

ENDED_EVENT: Final = "operation_ended"
"""What an operation tells the batch or saga that waits for it."""

CANCEL_EVENT: Final = "cancel"
RETRY_NOW_EVENT: Final = "retry_now"

ID_PREFIX: Final = "op-"

_CLIENTS_PER_LOOP: Final = 4
"""A host has one configuration; a second appears only when the host restarts under the same worker."""

NEVER_REPLACE: Final = OrchestrationIdReusePolicy(replaceableStatus=[])
"""An instance id that exists in any state answers ALREADY_EXISTS."""

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, DurableFunctionsClient]] = (
    WeakKeyDictionary()
)


class TaskHubUnavailableError(Exception):
    """The task hub did not answer or refused; trying again later may help."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One orchestration instance, its payloads read as plain JSON.

    Attributes:
        instance_id: Equals the operation id.
        runtime_status: What the task hub says of it.
        created_at: Aware UTC instant of its start.
        updated_at: Aware UTC instant of its last turn.
        input: What it was started with.
        custom_status: What the orchestrator last showed; None before its first turn.
        output: What it returned; None while it runs.
    """

    instance_id: str
    runtime_status: OrchestrationStatus
    created_at: datetime
    updated_at: datetime
    input: dict[str, Any]
    custom_status: dict[str, Any] | None
    output: dict[str, Any] | None


def outbox_instance(operation_id: str) -> str:
    """Name the instance that sends an operation's events."""
    return f"outbox-{operation_id}"


async def client_for(hub: str) -> DurableFunctionsClient:
    """Return the running loop's client for one configuration, making it at first use."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if hub not in clients:
        while len(clients) >= _CLIENTS_PER_LOOP:
            oldest = next(iter(clients))
            await clients.pop(oldest).close()
        clients[hub] = DurableFunctionsClient(hub)
    return clients[hub]


async def close_clients() -> None:
    """Close the running loop's clients; for tests and benchmarks, the host just ends the process."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


async def start_operation(hub: str, operation: OperationInput) -> bool:
    """Start the orchestration of an operation unless its id is known.

    Returns:
        False when the task hub already has an instance of this id, in whatever state.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    client = await client_for(hub)
    try:
        await client.schedule_new_orchestration(
            OPERATION,
            input={"operation": operation.to_json()},
            instance_id=operation.operation_id,
            reuse_id_policy=NEVER_REPLACE,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.ALREADY_EXISTS:
            return False
        raise _unavailable(error) from error
    return True


async def read_operation(hub: str, operation_id: str) -> Instance | None:
    """Return the instance of an operation, or None when the task hub has none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        state = await client.get_orchestration_state(operation_id)
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error
    return None if state is None else _instance(state)


async def wait_for_operation(hub: str, operation_id: str, seconds: float) -> Instance | None:
    """Return the instance once it finished, or None when it did not within `seconds`.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        state = await client.wait_for_orchestration_completion(operation_id, timeout=seconds)
    except TimeoutError:
        return None
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error
    return None if state is None else _instance(state)


async def read_record(hub: str, operation_id: str) -> Record | None:
    """Return an operation's idempotency record, or None when there is none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        entity = await client.get_entity(EntityInstanceId(RECORD, operation_id))
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error
    state = None if entity is None else _object(entity.get_state(str))
    return None if state is None else Record.from_json(state)


async def raise_event(hub: str, operation_id: str, event: str, data: Mapping[str, Any]) -> None:
    """Send an event to a running operation.

    Raises:
        TaskHubUnavailableError: The task hub did not take it.
    """
    client = await client_for(hub)
    try:
        await client.raise_orchestration_event(operation_id, event, data=dict(data))
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error


async def check(hub: str) -> None:
    """Ask the task hub anything at all.

    Raises:
        TaskHubUnavailableError: It did not answer.
    """
    await read_operation(hub, ID_PREFIX + "health")


def _instance(state: OrchestrationState) -> Instance:
    return Instance(
        instance_id=state.instance_id,
        runtime_status=state.runtime_status,
        created_at=state.created_at.replace(tzinfo=UTC),
        updated_at=state.last_updated_at.replace(tzinfo=UTC),
        input=_object(state.serialized_input) or {},
        custom_status=_object(state.serialized_custom_status),
        output=_object(state.serialized_output),
    )


def _object(text: str | None) -> dict[str, Any] | None:
    """Read a JSON object with the plain parser, so that nothing a caller sent is ever turned into a class."""
    if not text:
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def _unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")
