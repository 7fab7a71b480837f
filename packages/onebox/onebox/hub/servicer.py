"""The gRPC face of the task hub: `TaskHubSidecarService`, as the SDK's clients call it. Only translates.

Errors become statuses, as in the Durable extension: InstanceNotFoundError NOT_FOUND, InstanceExistsError
ALREADY_EXISTS, InstanceFinishedError and WrongStatusError FAILED_PRECONDITION, InvalidRequestError
INVALID_ARGUMENT.
Workers do not connect here (`GetWorkItems` and its kin are unimplemented): the hub calls functions itself.
"""
# ruff: noqa: N802 - the protocol names these methods

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc

from onebox.hub.events import microseconds, text, timestamp
from onebox.hub.listing import EntityFilter, EntityState, InstanceFilter, InstanceState
from onebox.hub.model import (
    HubError,
    InstanceExistsError,
    InstanceFinishedError,
    InstanceNotFoundError,
    InvalidRequestError,
    Start,
    Status,
    StoreUnwritableError,
    WrongStatusError,
    tags_to,
    to_datetime,
)
from onebox.hub.taskhub import TaskHub

_CODES: dict[type[HubError], grpc.StatusCode] = {
    InstanceNotFoundError: grpc.StatusCode.NOT_FOUND,
    InstanceExistsError: grpc.StatusCode.ALREADY_EXISTS,
    InstanceFinishedError: grpc.StatusCode.FAILED_PRECONDITION,
    WrongStatusError: grpc.StatusCode.FAILED_PRECONDITION,
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    StoreUnwritableError: grpc.StatusCode.UNAVAILABLE,
}
_HISTORY_CHUNK = 100  # events per message of a history stream
_DEFAULT_PAGE = 100  # ids, when the client does not say
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of a protobuf Timestamp
_SECOND_NANOS = 1_000_000_000

type _Context = grpc.aio.ServicerContext
type _Method = Callable[[Any, Any, _Context], Awaitable[Any]]


def _refusing(method: _Method) -> _Method:
    """Answer what the hub refuses with its status."""

    @functools.wraps(method)
    async def answer(servicer: Any, request: Any, context: _Context) -> Any:
        try:
            return await method(servicer, request, context)
        except HubError as refused:
            await context.abort(_CODES.get(type(refused), grpc.StatusCode.INTERNAL), str(refused))

    return answer


class Servicer(stubs.TaskHubSidecarServiceServicer):
    """Serves one hub."""

    def __init__(self, hub: TaskHub) -> None:
        self._hub = hub

    async def Hello(self, request: Any, _: _Context) -> Any:
        """Answer that somebody is here."""
        return request

    @_refusing
    async def StartInstance(
        self, request: pb.CreateInstanceRequest, _: _Context
    ) -> pb.CreateInstanceResponse:
        """Create an instance."""
        return pb.CreateInstanceResponse(instanceId=await self._hub.start(start_from(request)))

    async def GetInstance(self, request: pb.GetInstanceRequest, _: _Context) -> pb.GetInstanceResponse:
        """Return an instance's state."""
        return instance_response(self._hub.get(request.instanceId), with_payloads=request.getInputsAndOutputs)

    async def WaitForInstanceStart(
        self, request: pb.GetInstanceRequest, _: _Context
    ) -> pb.GetInstanceResponse:
        """Return an instance's state once it has run; the client's deadline ends the wait."""
        state = await self._hub.wait_started(request.instanceId)
        return instance_response(state, with_payloads=request.getInputsAndOutputs)

    async def WaitForInstanceCompletion(
        self, request: pb.GetInstanceRequest, _: _Context
    ) -> pb.GetInstanceResponse:
        """Return an instance's state once it has ended; the client's deadline ends the wait."""
        state = await self._hub.wait_finished(request.instanceId)
        return instance_response(state, with_payloads=request.getInputsAndOutputs)

    @_refusing
    async def RaiseEvent(self, request: pb.RaiseEventRequest, _: _Context) -> pb.RaiseEventResponse:
        """Hand an external event to an instance."""
        await self._hub.raise_event(request.instanceId, request.name, value(request, "input"))
        return pb.RaiseEventResponse()

    @_refusing
    async def TerminateInstance(self, request: pb.TerminateRequest, _: _Context) -> pb.TerminateResponse:
        """End an instance."""
        await self._hub.terminate(request.instanceId, value(request, "output"))
        return pb.TerminateResponse()

    @_refusing
    async def SuspendInstance(self, request: pb.SuspendRequest, _: _Context) -> pb.SuspendResponse:
        """Pause an instance."""
        await self._hub.suspend(request.instanceId, value(request, "reason"))
        return pb.SuspendResponse()

    @_refusing
    async def ResumeInstance(self, request: pb.ResumeRequest, _: _Context) -> pb.ResumeResponse:
        """Let a paused instance go on."""
        await self._hub.resume(request.instanceId, value(request, "reason"))
        return pb.ResumeResponse()

    @_refusing
    async def RestartInstance(
        self, request: pb.RestartInstanceRequest, _: _Context
    ) -> pb.RestartInstanceResponse:
        """Run a finished instance again."""
        new_id = await self._hub.restart(request.instanceId, with_new_id=request.restartWithNewInstanceId)
        return pb.RestartInstanceResponse(instanceId=new_id)

    @_refusing
    async def RewindInstance(
        self, request: pb.RewindInstanceRequest, _: _Context
    ) -> pb.RewindInstanceResponse:
        """Take a failed instance back to before its failure."""
        await self._hub.rewind(request.instanceId, value(request, "reason"))
        return pb.RewindInstanceResponse()

    @_refusing
    async def PurgeInstances(
        self, request: pb.PurgeInstancesRequest, _: _Context
    ) -> pb.PurgeInstancesResponse:
        """Erase one instance or several, whatever they do, or finished ones that match a filter.

        As in the extension, this and a termination act on no sub-orchestration, `recursive` or not.
        """
        complete = True
        match request.WhichOneof("request"):
            case "purgeInstanceFilter":
                wanted, within = purge_filter_from(request.purgeInstanceFilter)
                erased, complete = await self._hub.purge_where(wanted, within=within)
            case "instanceBatch":
                erased = await self._hub.purge(request.instanceBatch.instanceIds)
            case _:
                erased = await self._hub.purge([request.instanceId])
        response = pb.PurgeInstancesResponse(deletedInstanceCount=erased)
        response.isComplete.value = complete
        return response

    @_refusing
    async def QueryInstances(
        self, request: pb.QueryInstancesRequest, _: _Context
    ) -> pb.QueryInstancesResponse:
        """Return a page of instances that match."""
        query = request.query
        wanted, token = instance_filter_from(query), value(query, "continuationToken")
        payloads = query.fetchInputsAndOutputs
        page = self._hub.query(wanted, query.maxInstanceCount or None, token or None, with_payloads=payloads)
        states = [orchestration_state(item, with_payloads=payloads) for item in page.items]
        return pb.QueryInstancesResponse(orchestrationState=states, continuationToken=text(page.token))

    @_refusing
    async def ListInstanceIds(
        self, request: pb.ListInstanceIdsRequest, _: _Context
    ) -> pb.ListInstanceIdsResponse:
        """Return a page of ids of finished instances."""
        page = self._hub.list_finished_ids(
            statuses_from(request.runtimeStatus),
            instant(request, "completedTimeFrom"),
            instant(request, "completedTimeTo"),
            request.pageSize if request.pageSize > 0 else _DEFAULT_PAGE,
            value(request, "lastInstanceKey") or None,
        )
        return pb.ListInstanceIdsResponse(instanceIds=page.items, lastInstanceKey=text(page.token))

    async def StreamInstanceHistory(
        self, request: pb.StreamInstanceHistoryRequest, context: _Context
    ) -> AsyncIterator[pb.HistoryChunk]:
        """Send an instance's history in chunks."""
        try:
            history = self._hub.history(request.instanceId)
        except InstanceNotFoundError as missing:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(missing))
            return
        for at in range(0, len(history), _HISTORY_CHUNK):
            yield pb.HistoryChunk(events=history[at : at + _HISTORY_CHUNK])

    @_refusing
    async def SignalEntity(self, request: pb.SignalEntityRequest, _: _Context) -> pb.SignalEntityResponse:
        """Send an entity a one-way operation."""
        await self._hub.signal_entity(
            request.instanceId,
            request.name,
            value(request, "input"),
            request_id=request.requestId or None,
            at=instant(request, "scheduledTime"),
        )
        return pb.SignalEntityResponse()

    async def GetEntity(self, request: pb.GetEntityRequest, _: _Context) -> pb.GetEntityResponse:
        """Return an entity."""
        entity = self._hub.get_entity(request.instanceId)
        if entity is None:
            return pb.GetEntityResponse(exists=False)
        return pb.GetEntityResponse(
            exists=True, entity=entity_metadata(entity, with_state=request.includeState)
        )

    @_refusing
    async def QueryEntities(self, request: pb.QueryEntitiesRequest, _: _Context) -> pb.QueryEntitiesResponse:
        """Return a page of entities that match."""
        query = request.query
        wanted, token = entity_filter_from(query), value(query, "continuationToken")
        limit = query.pageSize.value if query.HasField("pageSize") else None
        page = self._hub.query_entities(wanted, limit, token or None)
        found = [entity_metadata(item, with_state=query.includeState) for item in page.items]
        return pb.QueryEntitiesResponse(entities=found, continuationToken=text(page.token))

    @_refusing
    async def CleanEntityStorage(
        self, request: pb.CleanEntityStorageRequest, _: _Context
    ) -> pb.CleanEntityStorageResponse:
        """Remove empty entities and orphaned locks."""
        removed, released = await self._hub.clean_entities(
            remove_empty=request.removeEmptyEntities, release_orphans=request.releaseOrphanedLocks
        )
        return pb.CleanEntityStorageResponse(emptyEntitiesRemoved=removed, orphanedLocksReleased=released)

    async def CreateTaskHub(self, _request: Any, _: _Context) -> pb.CreateTaskHubResponse:
        """Do nothing: the hub exists from its start on."""
        return pb.CreateTaskHubResponse()

    async def DeleteTaskHub(self, _request: Any, _: _Context) -> pb.DeleteTaskHubResponse:
        """Do nothing: the hub is its data folder, which is the user's to delete."""
        return pb.DeleteTaskHubResponse()


def value(message: Any, field: str) -> str | None:
    """Return a wrapped string; None when it is unset."""
    return getattr(message, field).value if message.HasField(field) else None


def instant(message: Any, field: str) -> datetime | None:
    """Return a timestamp as an aware UTC instant; None when it is unset.

    Raises:
        InvalidRequestError: It is outside of the years 1 to 9999.
    """
    found = _us(message, field)
    return None if found is None else to_datetime(found)


def _us(message: Any, field: str) -> int | None:
    if not message.HasField(field):
        return None
    found = getattr(message, field)
    if not (_FIRST_SECOND <= found.seconds <= _LAST_SECOND and 0 <= found.nanos < _SECOND_NANOS):
        raise InvalidRequestError(f"{field} is not a timestamp: {found.seconds} s, {found.nanos} ns")
    return microseconds(found)


def statuses_from(wanted: Iterable[int]) -> frozenset[Status]:
    """Return statuses by their numbers.

    Raises:
        InvalidRequestError: There is no such status.
    """
    try:
        return frozenset(map(Status, wanted))
    except ValueError as unknown:
        raise InvalidRequestError(str(unknown)) from None


def start_from(request: pb.CreateInstanceRequest) -> Start:
    """Return what a client wants to start.

    Without a reuse policy host.json decides what gives way. With one, only instances in a status that it
    lists do: an empty list means that the id must be free.
    """
    replaceable = None
    if request.HasField("orchestrationIdReusePolicy"):
        replaceable = statuses_from(request.orchestrationIdReusePolicy.replaceableStatus)
    has_trace = request.HasField("parentTraceContext")
    return Start(
        instance_id=request.instanceId,
        name=request.name,
        version=value(request, "version"),
        input=value(request, "input"),
        tags=tags_to(request.tags),
        start_at_us=_us(request, "scheduledStartTimestamp"),
        replaceable=replaceable,
        trace=request.parentTraceContext.SerializeToString() if has_trace else None,
    )


def instance_filter_from(query: pb.InstanceQuery) -> InstanceFilter:
    """Return which instances a client wants to see."""
    return InstanceFilter(
        statuses=statuses_from(query.runtimeStatus),
        created_from_us=_us(query, "createdTimeFrom"),
        created_to_us=_us(query, "createdTimeTo"),
        id_prefix=value(query, "instanceIdPrefix"),
    )


def purge_filter_from(asked: pb.PurgeInstanceFilter) -> tuple[InstanceFilter, timedelta | None]:
    """Return which instances a client wants erased, and how long that may take (None: as long as it does)."""
    wanted = InstanceFilter(
        statuses=statuses_from(asked.runtimeStatus),
        created_from_us=_us(asked, "createdTimeFrom"),
        created_to_us=_us(asked, "createdTimeTo"),
    )
    return wanted, asked.timeout.ToTimedelta() if asked.HasField("timeout") else None


def entity_filter_from(query: pb.EntityQuery) -> EntityFilter:
    """Return which entities a client wants to see."""
    return EntityFilter(
        id_prefix=value(query, "instanceIdStartsWith"),
        modified_from_us=_us(query, "lastModifiedFrom"),
        modified_to_us=_us(query, "lastModifiedTo"),
        include_empty=query.includeTransient,
    )


def instance_response(instance: InstanceState | None, *, with_payloads: bool) -> pb.GetInstanceResponse:
    """Return the answer to a request for one instance."""
    if instance is None:
        return pb.GetInstanceResponse(exists=False)
    state = orchestration_state(instance, with_payloads=with_payloads)
    if not with_payloads:  # In the extension only a list has the custom status all the same.
        state.ClearField("customStatus")
        state.ClearField("failureDetails")
    return pb.GetInstanceResponse(exists=True, orchestrationState=state)


def orchestration_state(instance: InstanceState, *, with_payloads: bool) -> pb.OrchestrationState:
    """Return an instance as clients see it; empty payloads stay unset, as in Microsoft's backend."""
    answer = pb.OrchestrationState(
        instanceId=instance.id,
        name=instance.name,
        version=text(instance.version),
        orchestrationStatus=pb.OrchestrationStatus.Name(instance.status.value),
        createdTimestamp=timestamp(instance.created_us),
        lastUpdatedTimestamp=timestamp(instance.updated_us),
        customStatus=text(instance.custom_status or None),
        executionId=text(instance.execution_id),
        parentInstanceId=text(instance.parent_id),
        tags=instance.tags,
    )
    if with_payloads:
        output = text(instance.shown_output or None)
        answer.MergeFrom(pb.OrchestrationState(input=text(instance.input or None), output=output))
    if instance.scheduled_us is not None:
        answer.scheduledStartTimestamp.CopyFrom(timestamp(instance.scheduled_us))
    if instance.completed_us is not None:
        answer.completedTimestamp.CopyFrom(timestamp(instance.completed_us))
    if instance.failure is not None:
        answer.failureDetails.MergeFromString(instance.failure)
    return answer


def entity_metadata(found: EntityState, *, with_state: bool) -> pb.EntityMetadata:
    """Return an entity as clients see it."""
    return pb.EntityMetadata(
        instanceId=found.id,
        lastModifiedTime=timestamp(found.modified_us),
        backlogQueueSize=found.backlog,
        lockedBy=text(found.lock_owner),
        serializedState=text(found.state) if with_state else None,
    )
