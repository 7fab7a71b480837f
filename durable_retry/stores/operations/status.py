"""The status document of an operation, from its orchestration or from its idempotency record."""

from collections.abc import Mapping
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.operations.idempotency import is_operation_id
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import is_finished, running_document
from durable_retry.engine.outbox import outbox_id_of
from durable_retry.stores.outbox.events import events_of
from durable_retry.stores.task_hub.client import Instance, read_operation, read_record

_CRASHED: Final = {
    "id": None,
    "category": Category.TRANSIENT.value,
    "reason": DeadLetterReason.RETRIES_EXHAUSTED.value,
    "detail": "The orchestration itself failed; its failure is in the task hub.",
}
"""Shown for an orchestration that failed without a dead letter, until maintenance writes one: its input
cannot be read, or a deployment changed the orchestrator under its history."""


async def find_status(hub: str, operation_id: str) -> dict[str, Any] | None:
    """Return an operation's status document, also after its history was purged; None when there is none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if not is_operation_id(operation_id):
        return None  # Batches, sagas and other orchestrations have ids of another form.
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return await with_event_states(document_of(instance))
    record = await read_record(hub, operation_id)
    return None if record is None or record.document is None else await with_event_states(record.document)


async def is_over(hub: str, operation_id: str) -> bool:
    """Return whether an operation has ended; True also for an unknown one.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return is_finished(document_of(instance))
    record = await read_record(hub, operation_id)
    return record is None or record.document is not None


async def with_event_states(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document with its events' present states; events are sent after the operation ends.

    An event without a row keeps the state in the document. Costs one query of the outbox, or none for an
    operation without events.
    """
    if not document["events"]:
        return dict(document)
    outbox_id = outbox_id_of(document["events"][0]["event_id"]) or document["operation_id"]
    states = {event.event_id: event.state.value for event in await events_of(outbox_id)}
    events = [
        {**event, "state": states.get(event["event_id"], event["state"])} for event in document["events"]
    ]
    return {**document, "events": events}


def document_of(instance: Instance) -> dict[str, Any]:
    """Return the status document of an instance."""
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return instance.output
    document = running_document(operation_of(instance), instance.custom_status)
    updated = {"updated_at": to_rfc3339(instance.updated_at), "next_attempt_at": None}
    if instance.runtime_status is OrchestrationStatus.TERMINATED:
        return document | updated | {"status": OperationState.CANCELLED.value}
    if instance.runtime_status is OrchestrationStatus.FAILED:
        return document | updated | {"status": OperationState.DEAD_LETTERED.value, "dead_letter": _CRASHED}
    return document


def operation_of(instance: Instance) -> OperationInput:
    """Return the input of an instance."""
    return OperationInput.from_json(instance.input["operation"])
