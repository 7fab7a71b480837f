"""Orchestrations that stand still: a turn of theirs was due minutes ago, and has not come.

A message can be lost: that of a start, of a timer, of an activity, or of an entity, which may not answer at
all. `watch` sees it in the pages of the task hub that it reads for what failed, at no request more: when an
instance had its last turn, and in its custom status for what it waits.

    no turn yet            started again under its key, in place of the start that was lost
    a wait is over         nudged: the turn that follows sees the time, and goes on as if by its timer
    an attempt's answer    nudged: the attempt is made again, under its number and with its marker
    an entity's answer     nudged: the attempt goes on without it; a lane or a debounce key is asked again
    the others             nudged: they look, send or count, or have their step done again

A nudge is an event (`Signals.answered`). One that finds nothing lost changes nothing. What has no turn a
minute later is noted. What has none after another minute is beyond repair from here: health, alerts and
`retryctl doctor` name it (`stuck_instances`) until it moves.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.engine.base.answers import Answer
from durable_retry.engine.base.documents import json_object
from durable_retry.engine.base.errors import InstanceEndedError
from durable_retry.engine.base.json_forms import from_rfc3339, instant_in, to_rfc3339
from durable_retry.engine.base.names import (
    BATCH,
    BULK_ACTION,
    CALL,
    DUE_AT,
    NUDGE_EVENT,
    OPERATION,
    OUTBOX,
    RELEASE_WAITING,
    SAGA,
    STARTED_OPERATION,
    OperationState,
)
from durable_retry.engine.outbox import QUEUE_TIMEOUTS
from durable_retry.handlers.registry import registered_handlers
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import dependencies, find_dependency, function_timeout_seconds
from durable_retry.stores.operations.status import MOST_RESTARTS, restarts_of
from durable_retry.stores.stuck import Stuck, StuckInstance, change_stuck, read_stuck
from durable_retry.stores.task_hub import TaskHub

LATE_AFTER: Final = timedelta(minutes=2)
"""A host that ends keeps what it had fetched for a minute; nothing else delays a turn by so much."""

BETWEEN_LOOKS: Final = timedelta(minutes=1)

# Timers are a little early or late.
_NUDGED_AGAIN: Final = BETWEEN_LOOKS * 0.8

_OPERATIONS: Final = frozenset({OPERATION, STARTED_OPERATION})

WATCHED: Final = _OPERATIONS | {OUTBOX, BATCH, SAGA, BULK_ACTION, RELEASE_WAITING, CALL}
"""All but `pass_turn`, which waits for nothing, `diagnosis`, whose time is what somebody looks at, and
`retention`, which its timer nudges."""

_LONGEST_ATTEMPT: Final = timedelta(minutes=30)
"""Where host.json sets no limit to a function."""

_log = logging.getLogger(__name__)


class Standstill(StrEnum):
    """What was done about an orchestration that stands still."""

    STARTED_AGAIN = "started again"
    NUDGED = "nudged"


def due_since(name: str, state: pb.OrchestrationState) -> datetime | None:
    """Return when an unfinished instance of an orchestration should have had a turn; None where never."""
    shown = json_object(state.customStatus.value) or {}
    changed_at: datetime = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC)
    if name not in _OPERATIONS:
        answered_by = changed_at + (_longest_delivery() if name == OUTBOX else timedelta())
        return max(answered_by, instant_in(shown, DUE_AT) or changed_at)
    if shown.get("status") == OperationState.RUNNING:
        return changed_at + _longest_attempt(shown)
    if _has_not_begun(state) or not shown:
        return changed_at
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


def _longest_delivery() -> timedelta:
    limits = (each.timeouts.attempt_seconds for each in dependencies().dependencies.values())
    return timedelta(seconds=max([QUEUE_TIMEOUTS.attempt_seconds, *limits]))


async def move_on(
    hub: TaskHub,
    name: str,
    state: pb.OrchestrationState,
    now: datetime,
    note: Callable[[StuckInstance], None],
) -> Standstill | None:
    """Let an unfinished instance go on if it stands still; return what was done, None for nothing.

    One that an earlier nudge should have moved is passed to `note`.
    """
    due_at = due_since(name, state)
    if due_at is None or now - due_at <= LATE_AFTER:
        return None
    if _has_not_begun(state) and name != CALL and await _start_again(hub, name, state.instanceId):
        return Standstill.STARTED_AGAIN
    await nudge(hub, state.instanceId, now)
    _log.warning("%s has stood still since %s: nudged", state.instanceId, to_rfc3339(due_at))
    if now - due_at > LATE_AFTER + BETWEEN_LOOKS:
        note(StuckInstance(instance_id=state.instanceId, orchestration=name, since=due_at, noted_at=now))
    return Standstill.NUDGED


async def nudge(hub: TaskHub, instance_id: str, now: datetime) -> None:
    """Let an instance look whether the answer that it waits for was lost."""
    # What was asked for a moment ago, by a turn since somebody looked, is not lost.
    with suppress(InstanceEndedError):
        await hub.raise_event(instance_id, NUDGE_EVENT, {"asked_before": to_rfc3339(now - LATE_AFTER / 2)})


# What is noted, as the latest run of this process saw it: it answers for the next, a minute later, so that
# nothing is read while nothing stands still.
_noted: Final = LoopOwned[dict[TaskHub, tuple[datetime, Stuck]]](dict)


def _noted_lately(hub: TaskHub, now: datetime) -> Stuck | None:
    noted_at, stuck = _noted.get().get(hub, (now, None))
    return stuck if now - noted_at <= 1.5 * BETWEEN_LOOKS else None


async def note_stuck(hub: TaskHub, instances: Collection[StuckInstance], now: datetime) -> None:
    """Note those that an earlier nudge should have moved; nothing is asked for where there is none."""

    def rule(stuck: Stuck) -> Stuck:
        # In an app that was away everything is late, and was not nudged yet.
        known = {each.instance_id: each for each in stuck}
        for each in instances:
            if (before := known.get(each.instance_id)) is None or before.since != each.since:
                known[each.instance_id] = each
        return tuple(known.values())

    known = _noted_lately(hub, now)
    if instances:
        known = await change_stuck(rule)
    elif known is None:
        known = await read_stuck()
    _noted.get()[hub] = now, known


class StuckInstances(Answer):
    """The orchestrations that no nudge moves; some, where there are many."""

    items: Stuck


async def stuck_instances(hub: TaskHub, now: datetime) -> Stuck:
    """Return those that no nudge moves, the first that was due first; forget those that have moved."""
    noted = _noted_lately(hub, now)
    noted = await read_stuck() if noted is None else noted
    instances = await asyncio.gather(*(hub.read_instance(each.instance_id) for each in noted))
    still = {
        each.instance_id
        for each, instance in zip(noted, instances, strict=True)
        if instance is not None
        and instance.runtime_status in (OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING)
        and instance.updated_at <= each.since
    }
    moved = {each.instance_id for each in noted} - still
    if moved:
        await change_stuck(lambda stuck: tuple(each for each in stuck if each.instance_id not in moved))
        _noted.get().pop(hub, None)
    nudged = (each for each in noted if each.instance_id in still and now - each.noted_at >= _NUDGED_AGAIN)
    return tuple(sorted(nudged, key=lambda each: each.since))


async def _start_again(hub: TaskHub, name: str, instance_id: str) -> bool:
    """Start an instance again that has not begun; False where that was done often enough."""
    instance = await hub.read_instance(instance_id)
    if instance is None or not instance.input or restarts_of(instance) >= MOST_RESTARTS:
        return False
    given = instance.input | {"restarts": restarts_of(instance) + 1}
    # Azure Storage replaces none that is pending: there a person terminates it, and it starts anew.
    is_started = await hub.start_instance(name, instance_id, given, again=False, was_lost=True)
    if is_started:
        _log.warning("%s has not begun since %s: started again", instance_id, to_rfc3339(instance.created_at))
    return is_started
