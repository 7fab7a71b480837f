"""The document of a saga: the input has the constant fields, the custom status how each step ended."""

from collections.abc import Mapping
from typing import Any

from durabletask.client import OrchestrationStatus

from durable_retry.engine.operations.operation import Completion
from durable_retry.engine.operations.status import MAX_BYTES, size_bytes
from durable_retry.engine.workflows import Saga, SagaState, Step, saga_document
from durable_retry.stores.task_hub.client import Instance, read_operation


def saga_progress(saga: Saga) -> dict[str, Any]:
    """Return how the steps ended, without their error texts when those do not fit a custom status."""
    endings = [[_ended(step.done), _ended(step.undone)] for step in saga.steps]
    if size_bytes(endings) <= MAX_BYTES:
        return {"endings": endings}
    return {"endings": [[_without_text(one) for one in pair] for pair in endings]}


async def find_saga(hub: str, saga_id: str) -> dict[str, Any] | None:
    """Return a saga's document, or None when there is none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, saga_id)
    return None if instance is None or "saga" not in instance.input else document_of(instance)


def document_of(instance: Instance) -> dict[str, Any]:
    """Return the document of a saga's instance."""
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return instance.output
    saga = _with_endings(Saga.from_json(instance.input["saga"]), instance.custom_status)
    document = saga_document(saga, instance.updated_at)
    if instance.runtime_status in {OrchestrationStatus.TERMINATED, OrchestrationStatus.FAILED}:
        return document | {"status": SagaState.STOPPED.value}
    return document


def fingerprint_of(instance: Instance) -> str:
    """Return a saga's fingerprint: equal for equal submissions."""
    return str(instance.input["saga"]["fingerprint"])


def _with_endings(saga: Saga, moving: Mapping[str, Any] | None) -> Saga:
    if not moving:
        return saga
    steps = zip(saga.steps, moving["endings"], strict=True)
    return saga.with_steps(tuple(_with_ending(step, *pair) for step, pair in steps))


def _with_ending(step: Step, done: Any, undone: Any) -> Step:
    ending = None if done is None else Completion.from_json(done)
    return step.ended(ending, None if undone is None else Completion.from_json(undone))


def _ended(ending: Completion | None) -> dict[str, Any] | None:
    return None if ending is None else ending.to_json()


def _without_text(ended: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if ended is None else ended | {"error": None}
