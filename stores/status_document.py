"""The status document in two halves: what never changes is in the input, what moves in the custom status."""

from collections.abc import Mapping
from typing import Any, Final

from engine.custom_status import fitted_status
from engine.operation import History, OperationInput, OperationStatus
from engine.vocabulary import FINISHED, OperationState

_MOVING: Final = (
    "key",  # These two never change, but lists and summaries do not read inputs.
    "dependency",
    "status",
    "attempt_count",
    "attempts",
    "waits",
    "next_attempt_at",
    "dead_letter",
    "events",
    "updated_at",
)


def moving_parts(status: OperationStatus) -> dict[str, Any]:
    """Return what changes while an operation runs, small enough for a custom status."""
    document = status.to_json()
    return fitted_status({name: document[name] for name in _MOVING if name in document})


def running_document(operation: OperationInput, moving: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the status document of an unfinished operation.

    Args:
        operation: What it started with.
        moving: What `moving_parts` gave; None before the orchestration's first turn.
    """
    pending = OperationStatus(
        operation=operation,
        state=OperationState.PENDING,
        history=History(),
        updated_at=operation.created_at,
    )
    return pending.to_json() | dict(moving or {})


def is_finished(document: Mapping[str, Any]) -> bool:
    """Tell whether a status document is the last of its operation."""
    return OperationState(document["status"]) in FINISHED
