"""The task hub, as the app uses it: every call of the durable client, behind a small named function.

Each function takes `hub`, the configuration string of a `durableClient` binding. A client is kept per event
loop and configuration: the SDK's own binding opens and closes a gRPC channel for every invocation of an async
function (see docs/decisions/durable-client.md for what that costs).
"""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import grpc
from azure.durable_functions import DurableFunctionsClient
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal.client_helpers import build_query_instances_req
from durabletask.internal.orchestrator_service_pb2 import OrchestrationIdReusePolicy
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState as StateMessage
from google.protobuf.wrappers_pb2 import StringValue

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

_PAGE_SIZE: Final = 20
"""Instances per request of a list: twenty inputs of 64 KiB stay under gRPC's default limit of 4 MiB."""

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


@dataclass(frozen=True, slots=True)
class Scanned:
    """One instance of a listing, and the cursor that goes on right after it (None at the end)."""

    instance: Instance
    cursor_after: str | None


class BadCursorError(ValueError):
    """A cursor that no listing ever gave out."""


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


async def scan_operations(
    hub: str, *, created_after: datetime | None, cursor: str | None
) -> AsyncIterator[Scanned]:
    """Go through the operations that the task hub has, page by page, in its own order.

    Args:
        hub: Configuration of the durable client.
        created_after: Only operations created at this instant or later; None for all.
        cursor: Where an earlier scan stopped; None for the beginning.

    Raises:
        BadCursorError: The cursor is not one of ours.
        TaskHubUnavailableError: The task hub did not answer.
    """
    token, skip = _read_cursor(cursor)
    while True:
        messages, next_token = await _query_page(hub, created_after, token)
        following = None if next_token is None else _write_cursor(next_token, 0)
        for position, message in enumerate(messages[skip:], start=skip + 1):
            is_last = position == len(messages)
            after = following if is_last else _write_cursor(token, position)
            yield Scanned(_instance_of_message(message), after)
        if next_token is None:
            return
        token, skip = next_token, 0


async def _query_page(
    hub: str, created_after: datetime | None, token: str | None
) -> tuple[list[StateMessage], str | None]:
    """Ask for one page. The SDK's public query gathers every page, so its stub is used for one."""
    client = await client_for(hub)
    query = OrchestrationQuery(
        created_time_from=created_after,
        max_instance_count=_PAGE_SIZE,
        fetch_inputs_and_outputs=True,
        instance_id_prefix=ID_PREFIX,
    )
    request = build_query_instances_req(query, None if token is None else StringValue(value=token))
    try:
        page = await client._get_stub().QueryInstances(request)  # noqa: SLF001 - no public call gives one page
    except grpc.aio.AioRpcError as error:
        raise _unavailable(error) from error
    following = page.continuationToken.value
    # The SDK reads "0" and "" as the end, and so does this.
    return list(page.orchestrationState), following if following not in ("", "0", token) else None


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


def _instance_of_message(message: StateMessage) -> Instance:
    return Instance(
        instance_id=message.instanceId,
        runtime_status=OrchestrationStatus(message.orchestrationStatus),
        created_at=message.createdTimestamp.ToDatetime(tzinfo=UTC),
        updated_at=message.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC),
        input=_object(message.input.value) or {},
        custom_status=_object(message.customStatus.value),
        output=_object(message.output.value),
    )


def _object(text: str | None) -> dict[str, Any] | None:
    """Read a JSON object with the plain parser, so that nothing a caller sent is ever turned into a class."""
    if not text:
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def _write_cursor(token: str | None, skip: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([token, skip]).encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[str | None, int]:
    if cursor is None:
        return None, 0
    try:
        token, skip = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except (binascii.Error, UnicodeError, ValueError, TypeError) as error:
        raise BadCursorError("this cursor was not given out here") from error
    if not isinstance(token, str | None) or not isinstance(skip, int) or skip < 0:
        raise BadCursorError("this cursor was not given out here")
    return token, skip


def _unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")
