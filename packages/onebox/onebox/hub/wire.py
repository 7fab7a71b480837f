"""Translates between the protocol's messages and the hub's values."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.hub.events import microseconds, text, timestamp
from onebox.hub.model import Start, Status
from onebox.hub.store.listing import EntityFilter, EntityState, InstanceFilter, InstanceState
from onebox.hub.tags import tags_to

__all__ = ["text"]


def value(message: Any, field: str) -> str | None:
    """Return a wrapped string; None when it is unset."""
    return getattr(message, field).value if message.HasField(field) else None


def instant(message: Any, field: str) -> datetime | None:
    """Return a timestamp as an aware UTC instant; None when it is unset."""
    if not message.HasField(field):
        return None
    found: datetime = getattr(message, field).ToDatetime(tzinfo=UTC)
    return found


def _us(message: Any, field: str) -> int | None:
    return microseconds(getattr(message, field)) if message.HasField(field) else None


def statuses_from(wanted: Iterable[int]) -> frozenset[Status]:
    """Return statuses by their numbers."""
    return frozenset(map(Status, wanted))


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


def found(instance: InstanceState | None, *, with_payloads: bool) -> pb.GetInstanceResponse:
    """Return the answer to a request for one instance."""
    if instance is None:
        return pb.GetInstanceResponse(exists=False)
    return pb.GetInstanceResponse(
        exists=True, orchestrationState=state(instance, with_payloads=with_payloads)
    )


def state(instance: InstanceState, *, with_payloads: bool) -> pb.OrchestrationState:
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
        answer.MergeFrom(
            pb.OrchestrationState(input=text(instance.input or None), output=text(instance.output or None))
        )
    if instance.scheduled_us is not None:
        answer.scheduledStartTimestamp.CopyFrom(timestamp(instance.scheduled_us))
    if instance.completed_us is not None:
        answer.completedTimestamp.CopyFrom(timestamp(instance.completed_us))
    if instance.failure is not None:
        answer.failureDetails.MergeFromString(instance.failure)
    return answer


def entity(found: EntityState, *, with_state: bool) -> pb.EntityMetadata:
    """Return an entity as clients see it."""
    return pb.EntityMetadata(
        instanceId=found.id,
        lastModifiedTime=timestamp(found.modified_us),
        backlogQueueSize=found.backlog,
        lockedBy=text(found.lock_owner),
        serializedState=text(found.state) if with_state else None,
    )
