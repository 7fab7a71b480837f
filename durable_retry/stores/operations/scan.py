"""Scan operations in the task hub by their custom status only.

Inputs and outputs are the largest part of an instance. The custom status has everything that a list filters
by and a summary counts. For a whole operation see `stores.operations.status`.
"""

import base64
import binascii
import json
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.engine.base.names import OperationState
from durable_retry.stores.task_hub.instances import Selection, operations_page

_ACTIVE: Final = frozenset(
    {OrchestrationStatus.RUNNING, OrchestrationStatus.CONTINUED_AS_NEW, OrchestrationStatus.SUSPENDED}
)
UNFINISHED: Final = _ACTIVE | {OrchestrationStatus.PENDING}
"""Task hub statuses of operations that have not ended."""

_RUNTIMES: Final[Mapping[OperationState, frozenset[OrchestrationStatus]]] = {
    OperationState.PENDING: UNFINISHED,
    OperationState.RUNNING: _ACTIVE,
    OperationState.WAITING_RETRY: _ACTIVE,
    OperationState.WAITING_CIRCUIT: _ACTIVE,
    OperationState.SUCCEEDED: frozenset({OrchestrationStatus.COMPLETED}),
    OperationState.DEAD_LETTERED: frozenset({OrchestrationStatus.COMPLETED, OrchestrationStatus.FAILED}),
    OperationState.CANCELLED: frozenset({OrchestrationStatus.COMPLETED, OrchestrationStatus.TERMINATED}),
}


class BadCursorError(ValueError):
    """An invalid cursor."""


@dataclass(frozen=True, slots=True)
class OperationPreview:
    """Preview of one operation: what its custom status shows.

    Attributes:
        operation_id: Its id.
        created_at: Aware UTC instant of its start.
        status: None when it is not in the custom status.
        dependency: None before the first turn.
        key: None before the first turn.
        attempt_count: Attempts so far.
        next_attempt_at: RFC 3339 instant; None while it does not wait.
        cursor_after: Continues right behind it; None after the last one.
    """

    operation_id: str
    created_at: datetime
    status: OperationState | None
    dependency: str | None
    key: str | None
    attempt_count: int
    next_attempt_at: str | None
    cursor_after: str | None


def runtimes_of(status: OperationState | None) -> frozenset[OrchestrationStatus]:
    """Return the task hub statuses that operations in a state can have; empty for any."""
    return frozenset() if status is None else _RUNTIMES[status]


async def scan_operations(
    hub: str,
    *,
    runtime_statuses: Collection[OrchestrationStatus] = (),
    created_after: datetime | None = None,
    cursor: str | None = None,
) -> AsyncIterator[OperationPreview]:
    """Iterate over operations page by page in the task hub's own order.

    Args:
        hub: Configuration of the durable client.
        runtime_statuses: Task hub statuses to include; empty means all.
        created_after: Only operations created at this instant or later; None for all.
        cursor: Of an earlier scan; None for the beginning.

    Raises:
        BadCursorError: The cursor is invalid.
        TaskHubUnavailableError: The task hub did not answer.
    """
    wanted = Selection(runtime_statuses=runtime_statuses, created_after=created_after)
    token, last_id = _read_cursor(cursor)
    while True:
        page = await operations_page(hub, wanted, token)
        following = None if page.following is None else _write_cursor(page.following, None)
        for instance in _behind(page.instances, last_id):
            is_last = instance is page.instances[-1]
            after = following if is_last else _write_cursor(token, instance.instanceId)
            yield _preview(instance, after)
        if page.following is None:
            return
        token, last_id = page.following, None


def _behind(instances: list[OrchestrationState], last_id: str | None) -> list[OrchestrationState]:
    """Skip what an earlier scan returned; return the whole page when its last one is no longer in it."""
    matches = [at for at, instance in enumerate(instances, start=1) if instance.instanceId == last_id]
    return instances[matches[0] :] if matches else instances


def _preview(instance: OrchestrationState, cursor_after: str | None) -> OperationPreview:
    shown = _shown(instance)
    return OperationPreview(
        operation_id=instance.instanceId,
        created_at=instance.createdTimestamp.ToDatetime(tzinfo=UTC),
        status=_status(OrchestrationStatus(instance.orchestrationStatus), shown),
        dependency=shown.get("dependency"),
        key=shown.get("key"),
        attempt_count=shown.get("attempt_count", 0),
        next_attempt_at=shown.get("next_attempt_at"),
        cursor_after=cursor_after,
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


def _write_cursor(token: str | None, last_id: str | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([token, last_id]).encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[str | None, str | None]:
    if cursor is None:
        return None, None
    try:
        token, last_id = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except (binascii.Error, UnicodeError, ValueError, TypeError) as error:
        raise BadCursorError("this cursor was not given out here") from error
    if not isinstance(token, str | None) or not isinstance(last_id, str | None):
        raise BadCursorError("this cursor was not given out here")
    return token, last_id
