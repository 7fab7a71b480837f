"""Operations as status documents and pages of a task hub have them: states, names, and why they failed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_object
from durable_retry.base.names import TURN_NAMES, WAITING, OperationState, Priority
from durable_retry.operations.status import ACTIVE
from durable_retry.settings.configuration import present_name

HELD_UP: Final = WAITING | {OperationState.PAUSED}
"""States in which nothing happens until a time, a signal or a person ends them."""


def turn_names_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a status document has for each of `TURN_NAMES`, "" for a key that it has not."""
    names = {name: document.get(name) or "" for name in TURN_NAMES}
    return names | {"priority": names["priority"] or Priority.NORMAL.value}


def is_of(asked: str | None, dependency: str | None) -> bool:
    """Whether a dependency is the one that is asked for, each by any name of it; None asks for any."""
    return asked is None or (dependency is not None and present_name(dependency) == present_name(asked))


def last_error(document: Mapping[str, Any]) -> str:
    """Return why an operation last failed, by its latest failed attempt and its dead letter, or ""."""
    errors = [attempt["error"] for attempt in document.get("attempts", ()) if attempt.get("error")]
    dead_letter = document.get("dead_letter") or {}
    texts = [*errors[-1:], dead_letter.get("reason"), dead_letter.get("detail")]
    return "\n".join(text for text in texts if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPreview:
    """Preview of one operation: what its custom status shows."""

    operation_id: str
    status: OperationState | None  # None when it is not in the custom status
    dependency: str | None  # None when it is not known
    turn_names: Mapping[str, str] | None  # see `turn_names_of`; None when they are not known


def preview_of(instance: OrchestrationState) -> OperationPreview:
    shown = json_object(instance.customStatus.value) or {}
    runtime = OrchestrationStatus(instance.orchestrationStatus)
    dependency = shown.get("dependency")
    return OperationPreview(
        operation_id=instance.instanceId,
        status=read_or(lambda: _state_of_instance(runtime, shown), lambda _: None),
        dependency=dependency if isinstance(dependency, str) else None,
        turn_names=turn_names_of(shown) if "key" in shown else None,
    )


def _state_of_instance(runtime: OrchestrationStatus, shown: Mapping[str, Any]) -> OperationState | None:
    match runtime:
        case OrchestrationStatus.FAILED | OrchestrationStatus.TERMINATED:
            return OperationState.DEAD_LETTERED
        case OrchestrationStatus.COMPLETED:
            # An orchestration that found its key completed by an earlier run sets no custom status.
            return OperationState(shown["status"]) if shown else None
    if shown:
        return OperationState(shown["status"])
    return OperationState.RUNNING if runtime in ACTIVE else OperationState.PENDING
