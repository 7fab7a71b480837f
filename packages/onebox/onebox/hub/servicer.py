"""The gRPC face of the task hub: `TaskHubSidecarService`, as the SDK's clients call it. Only translates.

Errors become statuses: InstanceNotFound NOT_FOUND, InstanceExists ALREADY_EXISTS, WrongStatus
FAILED_PRECONDITION, InvalidRequest INVALID_ARGUMENT. An event or a command for a finished instance is
accepted and has no effect, and so is the termination of one that does not exist, as in Microsoft's in-memory
backend.
Workers do not connect here (`GetWorkItems` and its kin are unimplemented): the hub calls functions itself.
"""
# ruff: noqa: N802 - the protocol names these methods

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc

from onebox.hub import wire
from onebox.hub.errors import (
    HubError,
    InstanceExists,
    InstanceFinished,
    InstanceNotFound,
    InvalidRequest,
    StoreUnwritable,
    WrongStatus,
)
from onebox.hub.taskhub import TaskHub

_CODES: dict[type[HubError], grpc.StatusCode] = {
    InstanceNotFound: grpc.StatusCode.NOT_FOUND,
    InstanceExists: grpc.StatusCode.ALREADY_EXISTS,
    WrongStatus: grpc.StatusCode.FAILED_PRECONDITION,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    StoreUnwritable: grpc.StatusCode.UNAVAILABLE,
}
_HISTORY_CHUNK = 100  # events per message of a history stream
_DEFAULT_PAGE = 100  # ids, when the client does not say

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
        return pb.CreateInstanceResponse(instanceId=await self._hub.start(wire.start_from(request)))

    async def GetInstance(self, request: pb.GetInstanceRequest, _: _Context) -> pb.GetInstanceResponse:
        """Return an instance's state."""
        return wire.found(self._hub.get(request.instanceId), with_payloads=request.getInputsAndOutputs)

    async def WaitForInstanceStart(
        self, request: pb.GetInstanceRequest, _: _Context
    ) -> pb.GetInstanceResponse:
        """Return an instance's state once it has run; the client's deadline ends the wait."""
        state = await self._hub.wait_started(request.instanceId)
        return wire.found(state, with_payloads=request.getInputsAndOutputs)

    async def WaitForInstanceCompletion(
        self, request: pb.GetInstanceRequest, _: _Context
    ) -> pb.GetInstanceResponse:
        """Return an instance's state once it has ended; the client's deadline ends the wait."""
        state = await self._hub.wait_finished(request.instanceId)
        return wire.found(state, with_payloads=request.getInputsAndOutputs)

    @_refusing
    async def RaiseEvent(self, request: pb.RaiseEventRequest, _: _Context) -> pb.RaiseEventResponse:
        """Hand an external event to an instance."""
        with suppress(InstanceFinished):
            await self._hub.raise_event(request.instanceId, request.name, wire.value(request, "input"))
        return pb.RaiseEventResponse()

    @_refusing
    async def TerminateInstance(self, request: pb.TerminateRequest, _: _Context) -> pb.TerminateResponse:
        """End an instance."""
        with suppress(InstanceFinished, InstanceNotFound):
            output = wire.value(request, "output")
            await self._hub.terminate(request.instanceId, output, recursive=request.recursive)
        return pb.TerminateResponse()

    @_refusing
    async def SuspendInstance(self, request: pb.SuspendRequest, _: _Context) -> pb.SuspendResponse:
        """Pause an instance."""
        with suppress(InstanceFinished):
            await self._hub.suspend(request.instanceId, wire.value(request, "reason"))
        return pb.SuspendResponse()

    @_refusing
    async def ResumeInstance(self, request: pb.ResumeRequest, _: _Context) -> pb.ResumeResponse:
        """Let a paused instance go on."""
        with suppress(InstanceFinished):
            await self._hub.resume(request.instanceId, wire.value(request, "reason"))
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
        await self._hub.rewind(request.instanceId, wire.value(request, "reason"))
        return pb.RewindInstanceResponse()

    @_refusing
    async def PurgeInstances(
        self, request: pb.PurgeInstancesRequest, _: _Context
    ) -> pb.PurgeInstancesResponse:
        """Erase finished instances: one, several, or those that match a filter."""
        complete = True
        match request.WhichOneof("request"):
            case "purgeInstanceFilter":
                wanted, within = wire.purge_filter_from(request.purgeInstanceFilter)
                erased, complete = await self._hub.purge_where(
                    wanted, recursive=request.recursive, within=within
                )
            case "instanceBatch":
                ids = request.instanceBatch.instanceIds
                erased = await self._hub.purge(ids, recursive=request.recursive)
            case _:
                erased = await self._hub.purge([request.instanceId], recursive=request.recursive)
        response = pb.PurgeInstancesResponse(deletedInstanceCount=erased)
        response.isComplete.value = complete
        return response

    async def QueryInstances(
        self, request: pb.QueryInstancesRequest, _: _Context
    ) -> pb.QueryInstancesResponse:
        """Return a page of instances that match."""
        query = request.query
        wanted, token = wire.instance_filter_from(query), wire.value(query, "continuationToken")
        payloads = query.fetchInputsAndOutputs
        page = self._hub.query(wanted, query.maxInstanceCount or None, token or None, with_payloads=payloads)
        states = [wire.state(item, with_payloads=payloads) for item in page.items]
        return pb.QueryInstancesResponse(orchestrationState=states, continuationToken=wire.text(page.token))

    async def ListInstanceIds(
        self, request: pb.ListInstanceIdsRequest, _: _Context
    ) -> pb.ListInstanceIdsResponse:
        """Return a page of ids of finished instances."""
        page = self._hub.list_finished_ids(
            wire.statuses_from(request.runtimeStatus),
            wire.instant(request, "completedTimeFrom"),
            wire.instant(request, "completedTimeTo"),
            request.pageSize if request.pageSize > 0 else _DEFAULT_PAGE,
            wire.value(request, "lastInstanceKey") or None,
        )
        return pb.ListInstanceIdsResponse(instanceIds=page.items, lastInstanceKey=wire.text(page.token))

    async def StreamInstanceHistory(
        self, request: pb.StreamInstanceHistoryRequest, context: _Context
    ) -> AsyncIterator[pb.HistoryChunk]:
        """Send an instance's history in chunks."""
        try:
            history = self._hub.history(request.instanceId)
        except InstanceNotFound as missing:
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
            wire.value(request, "input"),
            request_id=request.requestId or None,
            at=wire.instant(request, "scheduledTime"),
        )
        return pb.SignalEntityResponse()

    async def GetEntity(self, request: pb.GetEntityRequest, _: _Context) -> pb.GetEntityResponse:
        """Return an entity."""
        entity = self._hub.get_entity(request.instanceId)
        if entity is None:
            return pb.GetEntityResponse(exists=False)
        return pb.GetEntityResponse(exists=True, entity=wire.entity(entity, with_state=request.includeState))

    async def QueryEntities(self, request: pb.QueryEntitiesRequest, _: _Context) -> pb.QueryEntitiesResponse:
        """Return a page of entities that match."""
        query = request.query
        wanted, token = wire.entity_filter_from(query), wire.value(query, "continuationToken")
        limit = query.pageSize.value if query.HasField("pageSize") else None
        page = self._hub.query_entities(wanted, limit, token or None)
        found = [wire.entity(item, with_state=query.includeState) for item in page.items]
        return pb.QueryEntitiesResponse(entities=found, continuationToken=wire.text(page.token))

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
