"""Operations as clients see them: the status document of one, previews of many.

A document comes from the orchestration, or from the idempotency record once that is complete. Previews read
the custom status only: inputs and outputs are the largest part of an instance.
"""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.engine.base.json_forms import TraceContext, to_rfc3339
from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.operations.completion import unreadable_document
from durable_retry.engine.operations.operation import OperationInput, content_of, is_operation_id
from durable_retry.engine.operations.status import (
    STEPS_RUN,
    is_finished,
    running_document,
)
from durable_retry.engine.outbox import outbox_id_of
from durable_retry.settings.configuration import app_settings, masking_of
from durable_retry.stores.outbox import events_of
from durable_retry.stores.results import with_stored
from durable_retry.stores.steps import steps_shown
from durable_retry.stores.task_hub import Instance, Selection, instances_of, read_operation, read_record

_CRASHED: Final = {
    "id": None,
    "category": Category.TRANSIENT.value,
    "reason": DeadLetterReason.RETRIES_EXHAUSTED.value,
    "detail": "The orchestration itself failed; its failure is in the task hub.",
}
"""Shown for an orchestration that failed without a dead letter, until maintenance writes one: a deployment
changed the orchestrator under its history."""


async def find_status(hub: str, operation_id: str) -> dict[str, Any] | None:
    """Return an operation's status document, also after its history was purged; None when there is none.

    While the task hub has the history, the document has `request`, or `handler` and `input`, too. They are
    read from the orchestration's input: kept with the record as well, each end would write them once more.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if not is_operation_id(operation_id):
        return None  # Batches, sagas and other orchestrations have ids of another form.
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return await with_parts(whole_document_of(instance))
    record = await read_record(hub, operation_id)
    return None if record is None or record.document is None else await with_parts(record.document)


async def has_ended(hub: str, operation_id: str) -> bool:
    """Return whether an operation has ended; True also for an unknown one.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return is_finished(document_of(instance))
    record = await read_record(hub, operation_id)
    return record is None or record.document is not None


async def with_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document with what is stored beside it: a large result, states of events, steps.

    Costs a row for an operation with a large result, one query for one with events, and one for a handler's.
    """
    whole = {**document, "result": await with_stored(document["result"])}
    return await _with_steps(await _with_event_states(whole))


async def _with_event_states(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document with its events' present states; events are sent after the operation ends.

    An event without a row keeps the state in the document.
    """
    if not document["events"]:
        return dict(document)
    outbox_id = outbox_id_of(document["events"][0]["event_id"]) or document["operation_id"]
    states = {event.event_id: event.state.value for event in await events_of(outbox_id)}
    events = [
        {**event, "state": states.get(event["event_id"], event["state"])} for event in document["events"]
    ]
    return {**document, "events": events}


async def _with_steps(document: dict[str, Any]) -> dict[str, Any]:
    if "handler" not in document:
        return document
    run = document.pop(STEPS_RUN, None)  # A document of an older version has none: there were no steps.
    state = OperationState(document["status"])
    steps = [] if run is None else await steps_shown(document["operation_id"], run, state)
    masking = masking_of(document["dependency"])
    return document | {"steps": [{**step, "result": masking.value(step["result"])} for step in steps]}


def document_of(instance: Instance) -> dict[str, Any]:
    """Return the status document of an instance."""
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return instance.output
    try:
        document = running_document(operation_of(instance), instance.custom_status)
    except (KeyError, TypeError, ValueError) as error:
        detail = f"its input cannot be read: {type(error).__name__}"
        document = unreadable_document(
            instance.instance_id, instance.input, instance.created_at, dead_letter_id="", detail=detail
        )
        unended = {"status": OperationState.PENDING.value, "dead_letter": None}
        document |= unended if instance.runtime_status in NOT_ENDED else {}
    updated = {"updated_at": to_rfc3339(instance.updated_at), "next_attempt_at": None}
    if instance.runtime_status is OrchestrationStatus.TERMINATED:
        return document | updated | {"status": OperationState.CANCELLED.value}
    if instance.runtime_status is OrchestrationStatus.FAILED:
        return document | updated | {"status": OperationState.DEAD_LETTERED.value, "dead_letter": _CRASHED}
    return document


def whole_document_of(instance: Instance) -> dict[str, Any]:
    """Return the status document of an instance with `request`, or `handler` and `input`."""
    try:
        operation = instance.input["operation"]
        content = content_of(operation, masking_of(operation["dependency"])) | _origin_of(operation)
    except (KeyError, TypeError, AttributeError):
        content = {}  # The input cannot be read, which the document says.
    return document_of(instance) | content


def _origin_of(operation: Mapping[str, Any]) -> dict[str, str]:
    """Return who submitted it, what it replays, and its trace, as far as there is any."""
    trace = TraceContext.from_json(operation.get("trace"))
    names = ("submitted_by", "replay_of")
    submitted = {name: operation[name] for name in names if operation.get(name) is not None}
    if trace is None:
        return submitted
    url = app_settings().trace_url
    link = {} if url is None else {"trace_url": url.replace("{trace_id}", trace.trace_id)}
    return {**submitted, "trace_id": trace.trace_id, **link}


def operation_of(instance: Instance) -> OperationInput:
    """Return the input of an instance."""
    return OperationInput.from_json(instance.input["operation"])


_ACTIVE: Final = frozenset(
    {OrchestrationStatus.RUNNING, OrchestrationStatus.CONTINUED_AS_NEW, OrchestrationStatus.SUSPENDED}
)
NOT_ENDED: Final = _ACTIVE | {OrchestrationStatus.PENDING}
"""Task hub statuses of operations that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPreview:
    """Preview of one operation: what its custom status shows.

    Attributes:
        operation_id: Its id.
        created_at: Aware UTC instant of its start.
        status: None when it is not in the custom status.
        dependency: None when it is not known.
        key: None when it is not known.
        attempt_count: Attempts so far.
        next_attempt_at: RFC 3339 instant; None while it does not wait.
    """

    operation_id: str
    created_at: datetime
    status: OperationState | None
    dependency: str | None
    key: str | None
    attempt_count: int
    next_attempt_at: str | None


async def scan_operations(
    hub: str,
    *,
    runtime_statuses: Collection[OrchestrationStatus] = (),
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> AsyncIterator[OperationPreview]:
    """Iterate over operations page by page in the task hub's own order.

    Args:
        hub: Configuration of the durable client.
        runtime_statuses: Task hub statuses to include; empty means all.
        created_after: Only operations created at this instant or later; None for all.
        created_before: Only operations created before this instant; None for all.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    wanted = Selection(
        runtime_statuses=runtime_statuses, created_after=created_after, created_before=created_before
    )
    async for instance in instances_of(hub, wanted):
        yield preview_of(instance)


def preview_of(instance: OrchestrationState) -> OperationPreview:
    """Return the preview of an instance."""
    shown = _shown(instance)
    return OperationPreview(
        operation_id=instance.instanceId,
        created_at=instance.createdTimestamp.ToDatetime(tzinfo=UTC),
        status=_status(OrchestrationStatus(instance.orchestrationStatus), shown),
        dependency=shown.get("dependency"),
        key=shown.get("key"),
        attempt_count=shown.get("attempt_count", 0),
        next_attempt_at=shown.get("next_attempt_at"),
    )


def _shown(instance: OrchestrationState) -> dict[str, Any]:
    value = json.loads(instance.customStatus.value) if instance.customStatus.value else None
    return value if isinstance(value, dict) else {}


def _status(runtime: OrchestrationStatus, shown: Mapping[str, Any]) -> OperationState | None:
    match runtime:
        case OrchestrationStatus.TERMINATED:
            return OperationState.CANCELLED
        case OrchestrationStatus.FAILED:
            return OperationState.DEAD_LETTERED
        case OrchestrationStatus.COMPLETED:
            # An orchestration that found its key completed by an earlier run sets no custom status.
            return OperationState(shown["status"]) if shown else None
    return OperationState(shown["status"]) if shown else OperationState.PENDING


MAX_SCANNED: Final = 10_000
"""Maximum operations of one scan."""
