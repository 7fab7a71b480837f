"""Where an operation stands, wherever that is known: its orchestration, or the record of its key."""

from typing import Any, Final

from durabletask.client import OrchestrationStatus

from engine.instants import to_rfc3339
from engine.operation import OperationInput
from engine.vocabulary import Category, DeadLetterReason, OperationState
from stores.status_document import running_document
from stores.task_hub import Instance, read_operation, read_record

_CRASHED: Final = {
    "id": None,
    "category": Category.TRANSIENT.value,
    "reason": DeadLetterReason.RETRIES_EXHAUSTED.value,
    "detail": "The orchestration itself failed; its failure is in the task hub.",
}


async def find_status(hub: str, operation_id: str) -> dict[str, Any] | None:
    """Return an operation's status document, also after its history was purged; None when nothing knows it.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, operation_id)
    if instance is not None:
        return document_of(instance)
    record = await read_record(hub, operation_id)
    return None if record is None or record.document is None else dict(record.document)


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
