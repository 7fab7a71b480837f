"""The document of a saga in two halves: the input has what never changes, the custom status what moves.

The custom status is small, and holds no more than how each step ended.
"""

from collections.abc import Mapping
from typing import Any

from durabletask.client import OrchestrationStatus

from engine.custom_status import MAX_BYTES, size_bytes
from engine.ending import Ending
from engine.saga import Saga, SagaState, Step, saga_document
from stores.task_hub import Instance, read_operation


def moving_parts(saga: Saga) -> dict[str, Any]:
    """Return how the steps ended, small enough for a custom status: texts go when they do not fit."""
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
    """Return what makes two submissions of a saga the same."""
    return str(instance.input["saga"]["fingerprint"])


def _with_endings(saga: Saga, moving: Mapping[str, Any] | None) -> Saga:
    if not moving:
        return saga
    steps = zip(saga.steps, moving["endings"], strict=True)
    return saga.with_steps(tuple(_with_ending(step, *pair) for step, pair in steps))


def _with_ending(step: Step, done: Any, undone: Any) -> Step:
    ending = None if done is None else Ending.from_json(done)
    return step.ended(ending, None if undone is None else Ending.from_json(undone))


def _ended(ending: Ending | None) -> dict[str, Any] | None:
    return None if ending is None else ending.to_json()


def _without_text(ended: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if ended is None else ended | {"error": None}
