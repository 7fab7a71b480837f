"""A task hub whose instances and entities are what a test says, whatever that is."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from unittest.mock import patch

from durabletask.client import OrchestrationState, OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.hub.task_hub import TaskHub
from tests.support.builders import NOON

HUB: Final = TaskHub("{}")


def an_instance(instance_id: str, **changes: Any) -> OrchestrationState:
    """Return an instance that runs and has nothing."""
    state = OrchestrationState(
        instance_id=instance_id,
        name="operation",
        runtime_status=OrchestrationStatus.RUNNING,
        created_at=NOON.replace(tzinfo=None),
        last_updated_at=NOON.replace(tzinfo=None),
        serialized_input=None,
        serialized_output=None,
        serialized_custom_status=None,
        failure_details=None,
    )
    return replace(state, **changes)


@dataclass(frozen=True)
class _Entity:
    text: str

    def get_state(self, _type: Any) -> str:
        return self.text


@dataclass
class DamagedHub:
    """What the durable client answers.

    Attributes:
        instances: By id.
        entities: Their states, by entity and key: `circuit_breaker@payments`.
    """

    instances: dict[str, OrchestrationState] = field(default_factory=dict)
    entities: dict[str, str] = field(default_factory=dict)

    def put(self, state: OrchestrationState) -> None:
        """Keep an instance."""
        self.instances[state.instance_id] = state

    async def get_orchestration_state(self, instance_id: str, **_: Any) -> OrchestrationState | None:
        return self.instances.get(instance_id)

    async def schedule_new_orchestration(self, _name: str, **_: Any) -> None:
        """As the durable client; nothing runs."""

    async def get_entity(self, entity_id: Any) -> _Entity | None:
        text = self.entities.get(f"{entity_id.entity}@{entity_id.key}")
        return None if text is None else _Entity(text)

    def _get_stub(self) -> Self:
        return self

    async def StreamInstanceHistory(  # noqa: N802 # as gRPC
        self, _request: pb.StreamInstanceHistoryRequest
    ) -> AsyncIterator[pb.HistoryChunk]:
        """As the task hub: nothing is left of any history."""
        yield pb.HistoryChunk()

    async def QueryEntities(self, request: pb.QueryEntitiesRequest) -> pb.QueryEntitiesResponse:  # noqa: N802 # as gRPC
        """As the task hub: all that have a state and are of the name that is asked for, on one page."""
        name = request.query.instanceIdStartsWith.value.strip("@")
        texts = [text for entity, text in self.entities.items() if entity.partition("@")[0] == name]
        states = [pb.EntityMetadata(serializedState=StringValue(value=text)) for text in texts]
        return pb.QueryEntitiesResponse(entities=states)


@contextmanager
def damaged_hub(entities: Mapping[str, str] = {}) -> Iterator[DamagedHub]:
    """Put a task hub in the place of the durable client's."""
    hub = DamagedHub(entities=dict(entities))

    async def client(_hub: TaskHub) -> DamagedHub:
        return hub

    with patch.object(TaskHub, "client", client):
        yield hub
