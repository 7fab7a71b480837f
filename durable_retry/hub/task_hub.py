"""The task hub: the app's calls of the durable client, each a small named method.

The SDK's public query reads every page before it returns, so `TaskHub.instance_page` uses the stub itself.
"""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from math import inf
from types import TracebackType
from typing import Any, Final, Self, override

import grpc
from azure.durable_functions import DurableFunctionsClient
from azure.durable_functions.internal.serialization import FunctionsDataConverter
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.grpc_options import GrpcChannelOptions
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.client_helpers import build_query_instances_req
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from pydantic_core import PydanticSerializationError, to_json

from durable_retry.base.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.base.names import STARTED_OPERATION
from durable_retry.hub.instances import ENDED_BADLY, Instance
from durable_retry.rules.operations.operation import OperationInput, start_input
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import function_name

ID_PREFIX: Final = "op-"

LIGHT_ROWS: Final = 200
"""Instances per request without payloads: 200 custom statuses of 16 KB stay under gRPC's default of 4 MiB."""

_HEAVY_ROWS: Final = 20
"""Instances per request with payloads: twenty inputs of 64 KiB stay under it."""

_CLIENTS_PER_LOOP: Final = 4
"""A host has one configuration; a second appears only when the host restarts under the same worker."""

_NEVER_REPLACE: Final = pb.OrchestrationIdReusePolicy(replaceableStatus=[])
"""An instance id that exists in any state answers ALREADY_EXISTS."""

_REPLACE_ENDED: Final = pb.OrchestrationIdReusePolicy(
    replaceableStatus=[
        pb.ORCHESTRATION_STATUS_COMPLETED,
        pb.ORCHESTRATION_STATUS_FAILED,
        pb.ORCHESTRATION_STATUS_TERMINATED,
        pb.ORCHESTRATION_STATUS_CANCELED,
    ]
)
"""Always explicit: without a policy backends differ on whether an ended instance is replaced."""

_REPLACE_PENDING: Final = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_PENDING])
"""Also while the first start may be under way: whichever comes first begins, and the other is dropped."""

_ENDED_OR_UNKNOWN: Final = frozenset({grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND})
"""What backends answer to an external event for an ended or unknown instance; others drop it in silence."""

_FOR_ITS_INPUT: Final = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT})
_REFUSED_SECONDS: Final = 15.0
_refused_at: Final[dict[str, float]] = {}
"""When this process was refused a start, in monotonic seconds; until one succeeds."""

_ANSWER_SECONDS: Final = 20.0
"""Longest wait for an answer. While its storage hangs, a host gives none for minutes; a busy one gives a page
within some seconds."""

_CONFIGURATION: Final = (
    "taskHubName",
    "connectionName",
    "creationUrls",
    "managementUrls",
    "baseUrl",
    "requiredQueryStringParameters",
    "rpcBaseUrl",
    "httpBaseUrl",
    "useForwardedHost",
    "maxGrpcMessageSizeInBytes",
)
"""Attributes of a durable client that make up the configuration that its binding gave it."""


class _PlainJson(FunctionsDataConverter):
    """Writes what this app sends, which is JSON already, in a third of the time."""

    @override
    def serialize(self, value: Any) -> str | None:
        try:
            return None if value is None else to_json(value).decode()
        except PydanticSerializationError:  # half a surrogate pair, which has no UTF-8 form
            return super().serialize(value)


_PLAIN_JSON: Final = _PlainJson()


def _with_answer_time(options: GrpcChannelOptions | None) -> GrpcChannelOptions:
    """Return options of a channel that ends a request without an answer; the SDK gives its requests no time.

    gRPC's own configuration costs a request nothing, where an interceptor would cost each one a task.
    """
    ended = {"name": [{}], "timeout": f"{_ANSWER_SECONDS}s"}
    has_own_time = {"name": [{"service": "TaskHubSidecarService", "method": "WaitForInstanceCompletion"}]}
    config = json.dumps({"methodConfig": [ended, has_own_time]})
    return replace(options or GrpcChannelOptions(), raw_options=[("grpc.service_config", config)])


_clients: Final = LoopOwned[dict[str, DurableFunctionsClient]](dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The instances to read, and how much of each."""

    runtime_statuses: Collection[OrchestrationStatus] = ()  # task hub statuses to include; empty means all
    created_after: datetime | None = None  # lower bound of the creation time, inclusive; None for all
    created_before: datetime | None = None  # upper bound, exclusive on most backends; None for all
    with_payloads: bool = False  # whether to include inputs and outputs; custom statuses are always included
    prefix: str = ID_PREFIX  # the prefix of the instance ids; by default that of operations


type HubPage[T] = tuple[list[T], str | None]
"""One page in the task hub's own order, and the next page's token; None at the end."""


@dataclass(frozen=True, slots=True)
class TaskHub:
    """The task hub that a `durableClient` binding leads to.

    Its client is cached per event loop: the SDK's own binding opens and closes a gRPC channel for every
    invocation of an async function (see docs/decisions/durable-client.md for what that costs). Every method
    that asks the task hub raises `TaskHubUnavailableError` where it does not answer, or refuses. So does
    every function that gets a `TaskHub`; its docstring says so only where it does something else.
    """

    configuration: str

    @classmethod
    def of(cls, client: DurableFunctionsClient) -> Self:
        return cls(json.dumps({name: getattr(client, name) for name in _CONFIGURATION}))

    @property
    def starts_are_atomic(self) -> bool:
        """Whether two starts of one id cannot both be answered with success.

        They can on Azure Storage: the row is read, the message enqueued, the row written, and a conflict
        ignored. A host whose starts are atomic says so in the binding, as onebox does.
        """
        return _starts_are_atomic(self.configuration)

    async def client(self) -> DurableFunctionsClient:
        """Return the running loop's client; created on first use."""
        clients = _clients.get()
        if self.configuration not in clients:
            while len(clients) >= _CLIENTS_PER_LOOP:
                await clients.pop(next(iter(clients))).close()
            client = clients[self.configuration] = DurableFunctionsClient(self.configuration)
            # Its constructor takes neither.
            client._data_converter = _PLAIN_JSON  # noqa: SLF001
            client._channel_options = _with_answer_time(client._channel_options)  # noqa: SLF001
        return clients[self.configuration]

    async def __aenter__(self) -> DurableFunctionsClient:
        """Give the client for a block, in which its errors are raised as `TaskHubUnavailableError`."""
        return await self.client()

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error

    async def check(self) -> None:
        """Ask it something, and see whether it has just refused a start: with a full disk it still reads."""
        await self.read_instance(ID_PREFIX + "health")
        if clock.monotonic_seconds() < _refused_at.get(self.configuration, -inf) + _REFUSED_SECONDS:
            raise TaskHubUnavailableError("the task hub has just refused a start")

    async def start_operation(
        self,
        operation: OperationInput,
        start_id: str | None = None,
        needed_slot: NeedsSlot | None = None,
        *,
        again: bool = False,
    ) -> bool:
        """Start the orchestration of an operation; see `start_instance`.

        `start_id` is unique to this call, made here where it is None; the instance's input has that of the
        start that won. `needed_slot` as in `start_input`.
        """
        input_ = start_input(operation, start_id or uuid.uuid4().hex, needed_slot)
        return await self.start_instance(STARTED_OPERATION, operation.operation_id, input_, again=again)

    async def start_instance(
        self, name: str, instance_id: str, input_: dict[str, Any], *, again: bool, was_lost: bool = False
    ) -> bool:
        """Start an orchestration, with `again` also in place of an ended instance.

        With `was_lost` only in place of an instance that has not begun, because its start was lost.

        Returns False when the id is taken: by any instance, or with `again` by a running one. Where starts
        are not atomic, True only says that it was free a moment ago.
        """
        policy = _REPLACE_PENDING if was_lost else _REPLACE_ENDED if again else _NEVER_REPLACE
        async with self as client:
            try:
                await client.schedule_new_orchestration(
                    function_name(name), input=input_, instance_id=instance_id, reuse_id_policy=policy
                )
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.ALREADY_EXISTS:
                    return False
                if error.code() not in _FOR_ITS_INPUT:
                    _refused_at[self.configuration] = clock.monotonic_seconds()
                raise
        _refused_at.pop(self.configuration, None)
        return True

    async def read_instance(self, instance_id: str) -> Instance | None:
        """Return an instance, or None when the task hub has none of this id."""
        async with self as client:
            state = await client.get_orchestration_state(instance_id)
        return None if state is None else await self._instance_of(state)

    async def wait_for_end(self, instance_id: str, seconds: float) -> Instance | None:
        """Return the instance once it finished, or None when it did not within `seconds`."""
        async with self as client:
            try:
                state = await client.wait_for_orchestration_completion(instance_id, timeout=seconds)
            except TimeoutError:
                return None
        return None if state is None else await self._instance_of(state)

    async def _instance_of(self, state: OrchestrationState) -> Instance:
        """Return an instance, with `asked_for` if it is an operation that ended badly.

        That is read from the history: on Azure Storage an instance loses its custom status when it fails.
        """
        instance = Instance.of(state)
        if state.runtime_status not in ENDED_BADLY or not instance.instance_id.startswith(ID_PREFIX):
            return instance
        events = await self.read_history(instance.instance_id)
        names = frozenset(event["taskScheduled"]["name"] for event in events if "taskScheduled" in event)
        return replace(instance, asked_for=names if events else None)

    async def raise_event(self, instance_id: str, name: str, data: Mapping[str, Any]) -> None:
        """Send an external event to a running instance.

        Raises:
            InstanceEndedError: It has ended, or there is none of this id.
        """
        async with self as client:
            try:
                await client.raise_orchestration_event(instance_id, name, data=dict(data))
            except grpc.aio.AioRpcError as error:
                if error.code() in _ENDED_OR_UNKNOWN:
                    raise InstanceEndedError(instance_id) from error
                raise

    async def purge_instance(self, instance: Instance, completed_before: datetime | None = None) -> bool:
        """Purge an instance that was just read, if it has ended; return whether it is purged.

        Azure Storage does not check the status when it purges by id: an instance that was started again since
        is erased, too. With `completed_before` only one that completed, and was created before that.
        """
        if instance.runtime_status not in _ENDED:
            return False
        is_completed = instance.runtime_status is OrchestrationStatus.COMPLETED
        if completed_before and not (is_completed and instance.created_at < completed_before):
            return False
        async with self as client:
            await client.purge_orchestration(instance.instance_id)
        return True

    async def instance_page(self, selection: Selection, token: str | None) -> HubPage[pb.OrchestrationState]:
        query = OrchestrationQuery(
            created_time_from=selection.created_after,
            created_time_to=selection.created_before,
            runtime_status=list(selection.runtime_statuses) or None,
            max_instance_count=_HEAVY_ROWS if selection.with_payloads else LIGHT_ROWS,
            fetch_inputs_and_outputs=selection.with_payloads,
            instance_id_prefix=selection.prefix,
        )
        request = build_query_instances_req(query, _token_message(token))
        async with self as client:
            page = await client._get_stub().QueryInstances(request)
        return list(page.orchestrationState), _next_token(page.continuationToken.value, token)

    async def read_history(self, instance_id: str) -> list[dict[str, Any]]:
        """Return the events of an instance's present execution, protobuf in JSON; none when it is not there.

        The SDK's own call turns events into objects that no executor takes.
        """
        request = pb.StreamInstanceHistoryRequest(instanceId=instance_id)
        async with self as client:
            chunks = client._get_stub().StreamInstanceHistory(request)
            try:
                return [MessageToDict(event) async for chunk in chunks for event in chunk.events]
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    return []
                raise

    async def page_of_prefixes(
        self, selection: Selection, prefixes: Sequence[str], cursor: str | None
    ) -> HubPage[pb.OrchestrationState]:
        """Read one page of the instances whose ids have one of these prefixes, prefix after prefix.

        Return it with the next cursor: None is before the first page and behind the last.
        """
        digits, _, token = (cursor or "0|").partition("|")
        index, instances = int(digits), list[pb.OrchestrationState]()
        while not instances and index < len(prefixes):
            of_prefix = replace(selection, prefix=prefixes[index])
            instances, following = await self.instance_page(of_prefix, token or None)
            if following:
                return instances, f"{index}|{following}"
            token = ""
            index += 1
        return instances, f"{index}|" if index < len(prefixes) else None

    async def read_entity(self, entity_id: EntityInstanceId) -> str | None:
        """Return the state of an entity as JSON text, or None when it has none."""
        async with self as client:
            entity = await client.get_entity(entity_id)
        return None if entity is None else entity.get_state(str)

    async def entity_page(self, name: str, token: str | None, prefix: str = "") -> HubPage[str]:
        """Read the states, as JSON texts, of a page of entities whose keys begin with a prefix."""
        # The SDK's own call reads every page before it returns.
        query = pb.EntityQuery(
            instanceIdStartsWith=StringValue(value=f"@{name}@{prefix}"),
            includeState=True,
            pageSize=Int32Value(value=_HEAVY_ROWS),
            continuationToken=_token_message(token),
        )
        async with self as client:
            page = await client._get_stub().QueryEntities(pb.QueryEntitiesRequest(query=query))
        states = [entity.serializedState.value for entity in page.entities if entity.serializedState.value]
        return states, _next_token(page.continuationToken.value, token)

    async def signal_entity(
        self, entity_id: EntityInstanceId, operation: str, message: dict[str, Any], at: datetime | None = None
    ) -> None:
        """Signal an entity; at an instant, by a message that is delivered then."""
        async with self as client:
            await client.signal_entity(entity_id, operation, message, signal_time=at)

    async def purge_entity(self, entity_id: EntityInstanceId) -> bool:
        """Purge an entity; False where the task hub does not do that, or has none."""
        # The SDK's own call says that the id is an orchestration's.
        request = pb.PurgeInstancesRequest(instanceId=str(entity_id), isOrchestration=False)
        try:
            async with self as client:
                response = await client._get_stub().PurgeInstances(request)
        except TaskHubUnavailableError:
            return False  # No specification says what a hub answers that cannot do it.
        return response.deletedInstanceCount > 0

    async def clean_entities(self, token: str | None) -> tuple[int, str | None]:
        """Delete some of the empty entities; return their number, and the next token (None at the end).

        On Azure Storage one call stops after 5 s. The SDK's own call goes on to the last entity, however long
        that takes.
        """
        request = pb.CleanEntityStorageRequest(
            removeEmptyEntities=True, releaseOrphanedLocks=True, continuationToken=_token_message(token)
        )
        async with self as client:
            response = await client._get_stub().CleanEntityStorage(request)
        return response.emptyEntitiesRemoved, _next_token(response.continuationToken.value, token)


_ENDED: Final = ENDED_BADLY | {OrchestrationStatus.COMPLETED}


@cache
def _starts_are_atomic(configuration: str) -> bool:
    try:
        binding = json.loads(configuration)
    except ValueError:
        return False
    return isinstance(binding, dict) and binding.get("startsAreAtomic") is True


def _token_message(token: str | None) -> StringValue | None:
    return None if token is None else StringValue(value=token)


def _next_token(answered: str, token: str | None) -> str | None:
    """Return the token of the next page; the SDK reads "0" and "" as the end, and so does this."""
    return None if answered in ("", "0", token) else answered


async def close_clients() -> None:
    """Close the running loop's clients. For tests and benchmarks; a host just ends the process."""
    for client in _clients.take().values():
        await client.close()
