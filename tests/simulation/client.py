"""The durable client of one worker, on the simulated hub: the calls that the app makes, and no others."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import grpc
from durabletask.client import OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue

from tests.simulation.hub import Hub
from tests.simulation.messages import Instance


@dataclass
class State:
    """What `get_orchestration_state` gives."""

    instance_id: str
    runtime_status: OrchestrationStatus
    created_at: datetime
    last_updated_at: datetime
    serialized_input: str
    serialized_custom_status: str | None
    serialized_output: str | None
    failure_details: None = None  # an orchestration that fails here is a mistake that the story reports


@dataclass
class EntityState:
    """What `get_entity` gives."""

    text: str

    def get_state(self, _type: type[str]) -> str:
        return self.text


_EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass
class Client:
    """A `DurableFunctionsClient` as far as this app knows it."""

    hub: Hub

    async def schedule_new_orchestration(
        self,
        name: str,
        *,
        input: Any = None,  # noqa: A002 - the SDK's name for it
        instance_id: str = "",
        reuse_id_policy: pb.OrchestrationIdReusePolicy | None = None,
    ) -> str:
        replaces = bool(reuse_id_policy is not None and reuse_id_policy.replaceableStatus)
        text, world = json.dumps(input), self.hub.world
        races = world.happens(world.chances.raced)
        if races:
            gives_way = await self._asked(lambda: self.hub.gives_way(instance_id, replaces_ended=replaces))
            if not gives_way:
                _refuse(grpc.StatusCode.ALREADY_EXISTS)
            await asyncio.sleep(world.rng.uniform(0.001, 1))
        started = await self._asked(lambda: self.hub.start(name, instance_id, text, replaces_ended=replaces))
        # Who looked before does not look again: another start that was written meanwhile stays.
        if not started and not races:
            _refuse(grpc.StatusCode.ALREADY_EXISTS)
        return instance_id

    async def get_orchestration_state(self, instance_id: str) -> State | None:
        instance = await self._asked(lambda: self.hub.instances.get(instance_id))
        if instance is None:
            return None
        return State(
            instance_id,
            instance.status,
            instance.created_at.replace(tzinfo=None),
            instance.updated_at.replace(tzinfo=None),
            instance.input,
            instance.custom_status,
            instance.output,
        )

    async def wait_for_orchestration_completion(self, instance_id: str, *, timeout: float) -> State | None:  # noqa: ASYNC109 - the SDK's name for it
        """Ask again and again, as the client of Azure Storage does."""
        async with asyncio.timeout(timeout):
            while True:
                state = await self.get_orchestration_state(instance_id)
                if state is None or state.runtime_status is not OrchestrationStatus.RUNNING:
                    return state
                await asyncio.sleep(1)

    async def get_entity(self, entity: EntityInstanceId) -> EntityState | None:
        state = await self._asked(lambda: self.hub.states.get(str(entity)))
        return None if state is None else EntityState(json.dumps(state))

    async def raise_orchestration_event(self, instance_id: str, event: str, *, data: Any = None) -> None:
        if not await self._asked(lambda: self.hub.raise_event(instance_id, event, json.dumps(data))):
            _refuse(grpc.StatusCode.FAILED_PRECONDITION)

    async def signal_entity(
        self,
        entity: EntityInstanceId,
        operation: str,
        input_: Any = None,
        signal_time: datetime | None = None,
    ) -> None:
        given = json.loads(json.dumps(input_))
        await self._asked(lambda: self.hub.signal(str(entity), operation, given, signal_time))

    async def close(self) -> None:
        """Nothing to close."""

    def _get_stub(self) -> "Client":
        return self

    async def QueryInstances(self, request: pb.QueryInstancesRequest) -> pb.QueryInstancesResponse:  # noqa: N802 - gRPC's
        """Answer all instances that a query means as one page."""
        wanted = request.query
        since = wanted.createdTimeFrom.ToDatetime(UTC) if wanted.HasField("createdTimeFrom") else _EVER
        before = wanted.createdTimeTo.ToDatetime(UTC) if wanted.HasField("createdTimeTo") else None
        found = await self._asked(
            lambda: [
                _message(each)
                for each in self.hub.instances.values()
                if each.instance_id.startswith(wanted.instanceIdPrefix.value)
                and (not wanted.runtimeStatus or each.status.value in wanted.runtimeStatus)
                and each.created_at >= since
                and (before is None or each.created_at < before)
            ]
        )
        return pb.QueryInstancesResponse(orchestrationState=found)

    async def StreamInstanceHistory(  # noqa: N802 - gRPC's
        self, request: pb.StreamInstanceHistoryRequest
    ) -> AsyncIterator[pb.HistoryChunk]:
        """Answer a history as one chunk."""
        instance = await self._asked(lambda: self.hub.instances.get(request.instanceId))
        yield pb.HistoryChunk(events=[each.encoded() for each in instance.past] if instance else [])

    async def QueryEntities(self, request: pb.QueryEntitiesRequest) -> pb.QueryEntitiesResponse:  # noqa: N802 - gRPC's
        """Answer the states of all entities that a query means as one page."""
        prefix = request.query.instanceIdStartsWith.value
        found = await self._asked(
            lambda: [
                pb.EntityMetadata(instanceId=name, serializedState=StringValue(value=json.dumps(state)))
                for name, state in self.hub.states.items()
                if name.startswith(prefix) and state is not None
            ]
        )
        return pb.QueryEntitiesResponse(entities=found)

    async def PurgeInstances(self, request: pb.PurgeInstancesRequest) -> pb.PurgeInstancesResponse:  # noqa: N802 - gRPC's
        assert not request.isOrchestration
        done = await self._asked(lambda: self.hub.purge_entity(request.instanceId))
        return pb.PurgeInstancesResponse(deletedInstanceCount=int(done))

    async def _asked[T](self, act: Callable[[], T]) -> T:
        """Do it, unless the hub is away before; or do it, and let the answer get lost."""
        world = self.hub.world
        await world.point()
        fails = world.happens(world.chances.hub_fails)
        if fails and world.happens(0.5):
            _refuse(grpc.StatusCode.UNAVAILABLE)
        done = act()
        if fails:
            _refuse(grpc.StatusCode.UNAVAILABLE)
        await world.point()
        return done


def _message(instance: Instance) -> pb.OrchestrationState:
    message = pb.OrchestrationState(
        instanceId=instance.instance_id,
        name=instance.name,
        orchestrationStatus=instance.status.value,
        customStatus=StringValue(value=instance.custom_status or ""),
        input=StringValue(value=instance.input),
    )
    message.createdTimestamp.FromDatetime(instance.created_at)
    message.lastUpdatedTimestamp.FromDatetime(instance.updated_at)
    return message


def _refuse(code: grpc.StatusCode) -> NoReturn:
    raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
