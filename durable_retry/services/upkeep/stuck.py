"""Orchestrations that stand still: a turn of theirs was due minutes ago, and has not come.

A message can be lost: that of a start, of a timer, of an activity, or of an entity, which may not answer at
all. `watch` sees it in the pages of the task hub that it reads for what failed, at no request more: when an
instance had its last turn, and in its custom status for what it waits.

    no turn yet            started again under its key, in place of the start that was lost
    a wait is over         nudged: the turn that follows sees the time, and goes on as if by its timer
    an attempt's answer    nudged: the attempt is made again, under its number and with its marker
    an entity's answer     nudged: the attempt goes on without it; a lane or a debounce key is asked again
    a batch or a saga      nudged: it looks at its operations

A nudge is an event (`Signals.answered`). One that finds nothing lost changes nothing. What has no turn after
two of them is beyond repair from here: the log names it.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.engine.base.errors import InstanceEndedError
from durable_retry.engine.base.foreign import json_object
from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import (
    BATCH,
    NUDGE_EVENT,
    OPERATION,
    SAGA,
    STARTED_OPERATION,
    OperationState,
)
from durable_retry.handlers.registry import registered_handlers
from durable_retry.settings.configuration import find_dependency, function_timeout_seconds
from durable_retry.stores.operations.status import MOST_RESTARTS, restarts_of
from durable_retry.stores.task_hub import TaskHub

LATE_AFTER: Final = timedelta(minutes=2)
"""A host that ends keeps what it had fetched for a minute; nothing else delays a turn by so much."""

LONGEST_LOOK: Final = timedelta(minutes=5)
"""Between two looks of a batch or a saga at its operations."""

WATCHED: Final = (OPERATION, STARTED_OPERATION, BATCH, SAGA)

_LONGEST_ATTEMPT: Final = timedelta(minutes=30)
"""Where host.json sets no limit to a function."""

_log = logging.getLogger(__name__)


class Standstill(StrEnum):
    """What was done about an orchestration that stands still."""

    STARTED_AGAIN = "started again"
    NUDGED = "nudged"
    BEYOND_REPAIR = "beyond repair from here"


def due_since(name: str, state: pb.OrchestrationState) -> datetime | None:
    """Return when an unfinished instance of an orchestration should have had a turn; None where never."""
    shown = json_object(state.customStatus.value) or {}
    changed_at: datetime = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC)
    if shown.get("status") == OperationState.RUNNING:
        return changed_at + _longest_attempt(shown)
    if _has_not_begun(state) or (not shown and name not in (BATCH, SAGA)):
        return changed_at
    if name in (BATCH, SAGA):
        return changed_at + LONGEST_LOOK
    try:
        in_order = shown["status"] == OperationState.WAITING_ORDER
        ends_at = shown["waits"][-1]["until"] if in_order else shown["next_attempt_at"]
        return max(changed_at, from_rfc3339(ends_at))
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # Paused until somebody resumes it.


def _has_not_begun(state: pb.OrchestrationState) -> bool:
    return OrchestrationStatus(state.orchestrationStatus) is OrchestrationStatus.PENDING


def _longest_attempt(shown: Mapping[str, Any]) -> timedelta:
    dependency = find_dependency(str(shown.get("dependency")))
    handler = registered_handlers().get(str(shown.get("handler")))
    seconds = function_timeout_seconds() if dependency is None else dependency.timeouts.attempt_seconds
    if handler is not None:
        seconds = handler.timeout_seconds or seconds
    return _LONGEST_ATTEMPT if seconds is None else timedelta(seconds=seconds)


async def move_on(hub: TaskHub, name: str, state: pb.OrchestrationState, now: datetime) -> Standstill | None:
    """Let an unfinished instance go on if it stands still; return what was done, None for nothing."""
    due_at = due_since(name, state)
    if due_at is None or now - due_at <= LATE_AFTER:
        return None
    if _has_not_begun(state) and await _start_again(hub, name, state.instanceId):
        return Standstill.STARTED_AGAIN
    # What was asked for a moment ago, by a turn since the page was read, is not lost.
    nudge = {"asked_before": to_rfc3339(now - LATE_AFTER / 2)}
    with suppress(InstanceEndedError):
        await hub.raise_event(state.instanceId, NUDGE_EVENT, nudge)
    if now - due_at <= 2 * LATE_AFTER:
        _log.warning("%s has stood still since %s: nudged", state.instanceId, to_rfc3339(due_at))
        return Standstill.NUDGED
    _log.error(
        "%s has stood still since %s, and no turn follows a nudge: start the host anew, or terminate the "
        "instance, which makes it a dead letter",
        state.instanceId,
        to_rfc3339(due_at),
    )
    return Standstill.BEYOND_REPAIR


async def _start_again(hub: TaskHub, name: str, instance_id: str) -> bool:
    """Start an instance again that has not begun; False where that was done often enough."""
    instance = await hub.read_instance(instance_id)
    if instance is None or not instance.input or restarts_of(instance) >= MOST_RESTARTS:
        return False
    given = instance.input | {"restarts": restarts_of(instance) + 1}
    _log.warning("%s has not begun since %s: started again", instance_id, to_rfc3339(instance.created_at))
    return await hub.start_instance(name, instance_id, given, again=False, was_lost=True)
