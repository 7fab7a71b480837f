"""The app's calls of the durable client, each behind a small named function.

Each function takes `hub`, the configuration string of a `durableClient` binding. A client is cached per
event loop and configuration: the SDK's own binding opens and closes a gRPC channel for every invocation of an
async function (see docs/decisions/durable-client.md for what that costs).

The SDK's public query reads every page before it returns, so `operations_page` uses the stub itself.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import grpc
from azure.durable_functions import Blueprint, DurableFunctionsClient
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.client_helpers import build_query_instances_req
from durabletask.internal.orchestrator_service_pb2 import OrchestrationIdReusePolicy
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import IDEMPOTENCY_RECORD, STARTED_OPERATION
from durable_retry.engine.operations.idempotency import Record
from durable_retry.engine.operations.operation import OperationInput, start_input
from durable_retry.settings.configuration import function_name

ID_PREFIX: Final = "op-"

_CLIENTS_PER_LOOP: Final = 4
"""A host has one configuration; a second appears only when the host restarts under the same worker."""

NEVER_REPLACE: Final = OrchestrationIdReusePolicy(replaceableStatus=[])
"""An instance id that exists in any state answers ALREADY_EXISTS."""

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, DurableFunctionsClient]] = (
    WeakKeyDictionary()
)


class TaskHubUnavailableError(Exception):
    """The task hub did not answer, or refused; it may succeed later."""


class InstanceEndedError(Exception):
    """The instance does not take events any more: it has ended, or was purged."""


_ENDED_OR_UNKNOWN: Final = frozenset({grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND})
"""What backends answer to an event for an ended or unknown instance; others drop the event in silence."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One orchestration instance with its payloads parsed as plain JSON.

    Attributes:
        instance_id: Equals the operation id.
        runtime_status: The task hub's status.
        created_at: Aware UTC instant of its start.
        updated_at: Aware UTC instant of its last turn.
        input: Its input.
        custom_status: The last one set; None before the first turn.
        output: The return value; None while it runs.
        failure: Why it failed; None unless it did.
    """

    instance_id: str
    runtime_status: OrchestrationStatus
    created_at: datetime
    updated_at: datetime
    input: dict[str, Any]
    custom_status: dict[str, Any] | None
    output: dict[str, Any] | None
    failure: str | None = None


def bind_hub(blueprint: Blueprint) -> Callable[[Any], Any]:
    """Return the decorator that binds the durable client's configuration to the parameter `hub`."""
    binding: Callable[[Any], Any] = blueprint.generic_input_binding(
        arg_name="hub", type="durableClient", durableRequiresGrpc=True
    )
    return binding


async def client_for(hub: str) -> DurableFunctionsClient:
    """Return the running loop's client for one configuration; created on first use."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if hub not in clients:
        while len(clients) >= _CLIENTS_PER_LOOP:
            oldest = next(iter(clients))
            await clients.pop(oldest).close()
        clients[hub] = DurableFunctionsClient(hub)
    return clients[hub]


async def close_clients() -> None:
    """Close the running loop's clients. For tests and benchmarks; a host just ends the process."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


@cache
def starts_are_atomic(hub: str) -> bool:
    """Whether two starts of one id cannot both be answered with success.

    They can on Azure Storage: the row is read, the message enqueued, the row written, and a conflict ignored.
    A host whose starts are atomic says so in the binding, as onebox does.

    Args:
        hub: Configuration of the durable client.
    """
    try:
        binding = json.loads(hub)
    except ValueError:
        return False
    return isinstance(binding, dict) and binding.get("startsAreAtomic") is True


async def start_operation(hub: str, operation: OperationInput, start_id: str = "") -> bool:
    """Start the orchestration of an operation unless an instance of its id exists.

    Args:
        hub: Configuration of the durable client.
        operation: What to start.
        start_id: Unique to this call; the instance's input has that of the start that won.

    Returns:
        False when the task hub already has an instance of this id, in whatever state. Where starts are not
        atomic, True only says that there was none a moment ago: see `starts_are_atomic`.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    given = start_input(operation, start_id=start_id)
    return await start_instance(hub, STARTED_OPERATION, operation.operation_id, given, again=False)


async def read_operation(hub: str, operation_id: str) -> Instance | None:
    """Return the instance of an operation, or None when the task hub has none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        state = await client.get_orchestration_state(operation_id)
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
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
        raise task_hub_unavailable(error) from error
    return None if state is None else _instance(state)


def record_id(operation_id: str) -> EntityInstanceId:
    """Return the id of the entity that keeps the record of an operation's key."""
    return EntityInstanceId(function_name(IDEMPOTENCY_RECORD), operation_id)


async def read_record(hub: str, operation_id: str) -> Record | None:
    """Return an operation's idempotency record, or None when there is none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        entity = await client.get_entity(record_id(operation_id))
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    state = None if entity is None else _object(entity.get_state(str))
    return None if state is None else Record.from_json(state)


async def complete_record(hub: str, operation_id: str, completion: Mapping[str, Any]) -> None:
    """Complete the record of an operation's key, by a signal; see the entity for what it takes.

    Raises:
        TaskHubUnavailableError: The task hub did not take it.
    """
    client = await client_for(hub)
    try:
        await client.signal_entity(record_id(operation_id), "complete", dict(completion))
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error


async def expire_record(hub: str, operation_id: str, at: datetime) -> None:
    """Let the record of an operation's key expire at an instant, by a message that is delivered then.

    Raises:
        TaskHubUnavailableError: The task hub did not take it.
    """
    client = await client_for(hub)
    request = {"now": to_rfc3339(at)}
    try:
        await client.signal_entity(record_id(operation_id), "expire", request, signal_time=at)
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error


async def purge_record(hub: str, operation_id: str) -> bool:
    """Purge the entity of an expired record; False where the task hub does not do that, or has none."""
    client = await client_for(hub)
    # The SDK's own call says that the id is an orchestration's.
    request = pb.PurgeInstancesRequest(instanceId=str(record_id(operation_id)), isOrchestration=False)
    try:
        done = await client._get_stub().PurgeInstances(request)  # noqa: SLF001 - as in operations_page
    except grpc.aio.AioRpcError:
        return False  # What a hub answers that cannot do it is not specified.
    return done.deletedInstanceCount > 0


async def purge_history(hub: str, instance_id: str) -> None:
    """Purge one ended instance.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        await client.purge_orchestration(instance_id)
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error


ENDED_WELL: Final = frozenset({OrchestrationStatus.COMPLETED, OrchestrationStatus.TERMINATED})
"""Retention purges these. A failed operation is purged with its dead letter, by `services.failures`."""


async def purge_ended(hub: str, instance_id: str, started_before: datetime) -> bool:
    """Purge one instance if it has ended well and was started before an instant; return whether it was.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        state = await client.get_orchestration_state(instance_id, fetch_payloads=False)
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    if state is None or state.runtime_status not in ENDED_WELL:
        return False
    if state.created_at.replace(tzinfo=UTC) >= started_before:
        return False
    await purge_history(hub, instance_id)
    return True


async def clean_entities(hub: str, token: str | None) -> tuple[int, str | None]:
    """Delete some of the entities that hold nothing; on Azure Storage what 5 s allow.

    The SDK's own call goes on until the end of all entities, however long that takes.

    Args:
        hub: Configuration of the durable client.
        token: Of the call before; None for the first.

    Returns:
        How many were deleted, and the token of the next call; None at the end.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    request = pb.CleanEntityStorageRequest(
        removeEmptyEntities=True,
        releaseOrphanedLocks=True,
        continuationToken=None if token is None else StringValue(value=token),
    )
    try:
        done = await client._get_stub().CleanEntityStorage(request)  # noqa: SLF001 - as in operations_page
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    following = done.continuationToken.value
    return done.emptyEntitiesRemoved, following if following not in ("", "0", token) else None


async def raise_event(hub: str, operation_id: str, event: str, data: Mapping[str, Any]) -> None:
    """Send an event to a running instance.

    Raises:
        InstanceEndedError: It has ended, or there is none of this id.
        TaskHubUnavailableError: The task hub did not take it.
    """
    client = await client_for(hub)
    try:
        await client.raise_orchestration_event(operation_id, event, data=dict(data))
    except grpc.aio.AioRpcError as error:
        if error.code() in _ENDED_OR_UNKNOWN:
            raise InstanceEndedError(operation_id) from error
        raise task_hub_unavailable(error) from error


async def check(hub: str) -> None:
    """Check that the task hub answers.

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
        failure=None if state.failure_details is None else state.failure_details.message,
    )


def _object(text: str | None) -> dict[str, Any] | None:
    """Parse a JSON object; the SDK's own codec could instantiate classes that the data names."""
    if not text:
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def task_hub_unavailable(error: grpc.aio.AioRpcError) -> TaskHubUnavailableError:
    """Return the error to raise for a failed call of the client."""
    return TaskHubUnavailableError(f"the task hub answered {error.code().name}")


_REPLACE_ENDED: Final = pb.OrchestrationIdReusePolicy(
    replaceableStatus=[
        pb.ORCHESTRATION_STATUS_COMPLETED,
        pb.ORCHESTRATION_STATUS_FAILED,
        pb.ORCHESTRATION_STATUS_TERMINATED,
        pb.ORCHESTRATION_STATUS_CANCELED,
    ]
)
"""Always explicit: without a policy backends differ on whether an ended instance is replaced."""


async def start_instance(
    hub: str, name: str, instance_id: str, input_: dict[str, Any], *, again: bool
) -> bool:
    """Start an orchestration.

    Args:
        hub: Configuration of the durable client.
        name: Of the orchestrator, of `engine.base.names`.
        instance_id: Its id.
        input_: Its input.
        again: Whether an ended instance of this id is replaced.

    Returns:
        False when an instance exists: a running one, or any one when not `again`.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    client = await client_for(hub)
    try:
        await client.schedule_new_orchestration(
            function_name(name),
            input=input_,
            instance_id=instance_id,
            reuse_id_policy=_REPLACE_ENDED if again else NEVER_REPLACE,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.ALREADY_EXISTS:
            return False
        raise task_hub_unavailable(error) from error
    return True


LIGHT_ROWS: Final = 200
"""Instances per request without payloads: 200 custom statuses of 16 KB stay under gRPC's default of 4 MiB."""

_HEAVY_ROWS: Final = 20
"""Instances per request with payloads: twenty inputs of 64 KiB stay under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which operations to read, and how much of each.

    Attributes:
        runtime_statuses: Task hub statuses to include; empty means all.
        created_after: Lower bound of the creation time, inclusive; None for all.
        created_before: Upper bound, exclusive on most backends; None for all.
        with_payloads: Whether to include inputs and outputs; custom statuses are always included.
        prefix: Of the instance ids; by default that of operations.
    """

    runtime_statuses: Collection[OrchestrationStatus] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    with_payloads: bool = False
    prefix: str = ID_PREFIX


@dataclass(frozen=True, slots=True)
class InstancePage:
    """One page in the task hub's own order. `following` is the next page's token; None at the end."""

    instances: list[pb.OrchestrationState]
    following: str | None


async def operations_page(hub: str, wanted: Selection, token: str | None) -> InstancePage:
    """Read one page of operations.

    Args:
        hub: Configuration of the durable client.
        wanted: Which operations.
        token: `following` of the previous page; None for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    query = OrchestrationQuery(
        created_time_from=wanted.created_after,
        created_time_to=wanted.created_before,
        runtime_status=list(wanted.runtime_statuses) or None,
        max_instance_count=_HEAVY_ROWS if wanted.with_payloads else LIGHT_ROWS,
        fetch_inputs_and_outputs=wanted.with_payloads,
        instance_id_prefix=wanted.prefix,
    )
    request = build_query_instances_req(query, None if token is None else StringValue(value=token))
    try:
        page = await client._get_stub().QueryInstances(request)  # noqa: SLF001 - no public call gives one page
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    following = page.continuationToken.value
    # The SDK reads "0" and "" as the end, and so does this.
    return InstancePage(
        list(page.orchestrationState), following if following not in ("", "0", token) else None
    )


async def instances_of(hub: str, wanted: Selection) -> AsyncIterator[pb.OrchestrationState]:
    """Iterate over operations page by page in the task hub's own order; errors as in `operations_page`."""
    token = None
    while True:
        page = await operations_page(hub, wanted, token)
        for instance in page.instances:
            yield instance
        token = page.following
        if token is None:
            return
