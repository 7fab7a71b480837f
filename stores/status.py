"""Where an operation stands, wherever that is known: its orchestration, or the record of its key."""

from collections.abc import Mapping
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from engine.idempotency import is_operation_id
from engine.instants import to_rfc3339
from engine.operation import OperationInput
from engine.vocabulary import Category, DeadLetterReason, OperationState
from stores.outbox import events_of
from stores.status_document import is_finished, running_document
from stores.task_hub import Instance, read_operation, read_record

_CRASHED: Final = {
    "id": None,
    "category": Category.TRANSIENT.value,
    "reason": DeadLetterReason.RETRIES_EXHAUSTED.value,
    "detail": "The orchestration itself failed; its failure is in the task hub.",
}
"""Shown of an orchestration that failed before or while it could leave a dead letter, so there is no id: its
input cannot be read, or a deployment changed what its history was made with."""


async def find_status(hub: str, operation_id: str) -> dict[str, Any] | None:
    """Return an operation's status document, also after its history was purged; None when nothing knows it.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if not is_operation_id(operation_id):
        return None  # Batches, sagas and what else the task hub runs have ids of their own.
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return await with_event_states(document_of(instance))
    record = await read_record(hub, operation_id)
    return None if record is None or record.document is None else await with_event_states(record.document)


async def is_over(hub: str, operation_id: str) -> bool:
    """Tell whether nothing works on an operation any more; also true when nothing knows it.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return is_finished(document_of(instance))
    record = await read_record(hub, operation_id)
    return record is None or record.document is not None


async def with_event_states(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status document whose events say where they stand now: they are sent after the operation ends.

    An event whose row was cleaned away keeps the state that the document has. Costs one query of the outbox,
    and nothing for an operation without events.
    """
    if not document["events"]:
        return dict(document)
    states = {event.event_id: event.state.value for event in await events_of(document["operation_id"])}
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
    """Return what an instance was started with."""
    return OperationInput.from_json(instance.input["operation"])
