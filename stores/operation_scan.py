"""Going through the operations that the task hub has, seeing of each no more than its custom status.

Inputs and outputs are most of what an instance weighs, and most of those passed over are not wanted: what a
list filters by and a summary counts is in the custom status. See `stores.status` for all of one operation.
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

from engine.vocabulary import OperationState
from stores.instance_pages import Selection, operations_page

_ACTIVE: Final = frozenset(
    {OrchestrationStatus.RUNNING, OrchestrationStatus.CONTINUED_AS_NEW, OrchestrationStatus.SUSPENDED}
)
UNFINISHED: Final = _ACTIVE | {OrchestrationStatus.PENDING}
"""What the task hub says of operations that have not ended."""

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
    """A cursor that no listing ever gave out."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a scan sees of one operation.

    Attributes:
        operation_id: Its id.
        created_at: Aware UTC instant of its start.
        status: None when only the whole of it tells.
        dependency: None when only the whole of it tells: before its first turn.
        key: None when only the whole of it tells.
        attempt_count: Attempts so far.
        next_attempt_at: RFC 3339 instant; None while it does not wait.
        cursor_after: Goes on right behind it; None at the end.
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
    """Return what the task hub may say of operations in a state; empty for any."""
    return frozenset() if status is None else _RUNTIMES[status]


async def scan_operations(
    hub: str,
    *,
    runtime_statuses: Collection[OrchestrationStatus] = (),
    created_after: datetime | None = None,
    cursor: str | None = None,
) -> AsyncIterator[Glimpse]:
    """Go through operations, page by page, in the task hub's own order.

    Args:
        hub: Configuration of the durable client.
        runtime_statuses: What the task hub says of them; empty means anything.
        created_after: Only operations created at this instant or later; None for all.
        cursor: Where an earlier scan stopped; None for the beginning.

    Raises:
        BadCursorError: The cursor is not one of ours.
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
            yield _glimpse(instance, after)
        if page.following is None:
            return
        token, last_id = page.following, None


def _behind(instances: list[OrchestrationState], last_id: str | None) -> list[OrchestrationState]:
    """Leave out what an earlier scan showed; all is shown again when its last one has left the page since."""
    places = [at for at, instance in enumerate(instances, start=1) if instance.instanceId == last_id]
    return instances[places[0] :] if places else instances


def _glimpse(instance: OrchestrationState, cursor_after: str | None) -> Glimpse:
    shown = _shown(instance)
    return Glimpse(
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
            # One that answered for an earlier holder of its key has shown nothing.
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
