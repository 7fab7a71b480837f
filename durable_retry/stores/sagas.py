"""Sagas in the task hub: the input has the constant fields, the custom status how each step ended.

What takes the hub raises `TaskHubUnavailableError` where that does not answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from durabletask.client import OrchestrationStatus

from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import MAX_BYTES, size_bytes
from durable_retry.engine.workflows.document import SagaDocument, saga_document
from durable_retry.engine.workflows.shapes import Saga, SagaState, SagaStep
from durable_retry.stores.instances import Instance
from durable_retry.stores.task_hub import TaskHub
from durable_retry.stores.workflows import SAGA


def saga_progress(saga: Saga) -> dict[str, Any]:
    """Return how the steps ended, so that it fits a custom status: without error texts where these do not."""
    endings = [[_ending_document(step.done), _ending_document(step.undone)] for step in saga.steps]
    if size_bytes(endings) > MAX_BYTES:
        endings = [[_shortest(one) for one in pair] for pair in endings]
    return {"endings": endings}


async def find_saga(hub: TaskHub, saga_id: str) -> SagaDocument | None:
    """Return a saga's document, or None when there is none."""
    instance = await find_instance(hub, saga_id)
    return None if instance is None else document_of_saga(instance)


async def find_instance(hub: TaskHub, saga_id: str) -> Instance | None:
    """Return a saga's instance, or None when there is none."""
    return await hub.read_instance(saga_id) if saga_id.startswith(f"{SAGA}-") else None


def document_of_saga(instance: Instance) -> SagaDocument:
    """Return the document of a saga's instance; with `unreadable` where not all of it can be read."""
    return read_or(partial(_saga_document, instance), partial(_unreadable_saga, instance))


def _unreadable_saga(instance: Instance, reason: str) -> SagaDocument:
    is_over = instance.runtime_status not in {OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING}
    return SagaDocument(
        saga_id=instance.instance_id,
        status=SagaState.STOPPED if is_over else SagaState.RUNNING,
        created_at=instance.created_at,
        updated_at=instance.updated_at,
        unreadable=reason,
    )


def _saga_document(instance: Instance) -> SagaDocument:
    if instance.unreadable is not None:
        raise ValueError(instance.unreadable)
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return SagaDocument.model_validate(instance.output, strict=False)
    document = saga_document(saga_of(instance), instance.updated_at)
    if instance.runtime_status in {OrchestrationStatus.TERMINATED, OrchestrationStatus.FAILED}:
        return document.model_copy(update={"status": SagaState.STOPPED})
    return document


def saga_of(instance: Instance) -> Saga:
    """Return a saga as far as its instance shows it: without the values of results.

    Raises:
        ValueError: Nobody can read it, or another of `unreadable.CAUSES`.
    """
    return _with_completions(Saga.from_json(instance.input["saga"]), instance.custom_status)


def fingerprint_of_saga(instance: Instance) -> str:
    """Return a saga's fingerprint: equal for equal submissions."""
    return str(instance.input["saga"]["fingerprint"])


def _with_completions(saga: Saga, moving: Mapping[str, Any] | None) -> Saga:
    if not moving:
        return saga
    steps = zip(saga.steps, moving["endings"], strict=True)
    return saga.with_steps(tuple(_with_completion(step, *pair) for step, pair in steps))


def _with_completion(step: SagaStep, done: Any, undone: Any) -> SagaStep:
    return step.ended(_completion_of(step.operation, done), _completion_of(step.compensation, undone))


def _completion_of(operation: OperationInput | None, ending: Any) -> Completion | None:
    if ending is None or operation is None:
        return None
    return Completion.from_json({"operation_id": operation.operation_id, **ending})


def _ending_document(completion: Completion | None) -> dict[str, Any] | None:
    """Return an end without its values: the next steps have them, and no document shows them."""
    return None if completion is None else replace(completion, values=None).to_json()


def _shortest(ending: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an end without its error text, what the step says already, and what is empty."""
    if ending is None:
        return None
    return {name: value for name, value in ending.items() if value and name not in {"operation_id", "error"}}
