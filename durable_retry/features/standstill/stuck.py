"""Orchestrations that stand still: their next turn does not come, since a message was lost.

It may be that of a start, a timer, an activity, or an entity, which may not answer at all. `watch` sees it
without a further request, in the pages that it reads to find failures: they say when an instance had its last
turn, and in its custom status what it waits for.

A late message may be queued behind thousands of others. So when something is late, one orchestration for the
whole app checks the queues, and a message counts as lost only when a check that began after it is through
(`rules`). While nothing is late nothing is checked.

    no turn yet            started again under its key, in place of the start that was lost
    a wait is over         nudged: the turn that follows sees the time, and goes on as if by its timer
    an answer              nudged: it is asked for again, and the one that comes first counts
    the others             nudged: they look, send or count, or have their step done again

A nudge is an event (`Signals.answers`). One that finds nothing lost changes nothing. An instance without a
turn a minute later is noted. One without a turn after another minute cannot be repaired from here: health,
alerts and `retryctl doctor` name it (`stuck_instances`) until it moves.
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.answers import CAUSES
from durable_retry.base.documents import json_object
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.json_forms import from_rfc3339, instant_in, to_rfc3339
from durable_retry.base.names import (
    DUE_AT,
    NUDGE_EVENT,
    OPERATION,
    STARTED_OPERATION,
    OperationState,
)
from durable_retry.features.standstill.checks import ask_for_check, look_at_checks
from durable_retry.features.standstill.rules import CLOCKS_DIFFER, Expected, QueueChecks
from durable_retry.features.standstill.store import Stuck, StuckInstance, change_stuck, read_stuck
from durable_retry.hub.orchestrations import orchestrations
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import MOST_RESTARTS, operation_of, restarts_of
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import function_timeout_seconds, host_time_span

BETWEEN_LOOKS: Final = timedelta(minutes=1)

# Timers are a little early or late.
_NUDGED_AGAIN: Final = BETWEEN_LOOKS * 0.8

_OPERATIONS: Final = frozenset({OPERATION, STARTED_OPERATION})

_LONGEST_FUNCTION: Final = timedelta(minutes=30)
"""The limit of a function that is assumed where host.json sets none."""

_log = logging.getLogger(__name__)


class Standstill(StrEnum):
    """What was done about an orchestration that stands still."""

    STARTED_AGAIN = "started again"
    NUDGED = "nudged"


def expected_turn(name: str, state: pb.OrchestrationState) -> Expected | None:
    """Return the next turn of an unfinished instance of an orchestration; None where a person decides."""
    status = json_object(state.customStatus.value) or {}
    changed_at: datetime = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC)
    answer = Expected(changed_at, is_answer=True)
    if _has_not_begun(state):
        return Expected(changed_at)
    if name not in _OPERATIONS:
        due_at = instant_in(status, DUE_AT) or changed_at
        return Expected(due_at) if due_at > changed_at else answer
    is_running = status.get("status") == OperationState.RUNNING and status.get("next_attempt_at") is None
    if not status or is_running:
        return answer
    try:
        in_order = status["status"] == OperationState.WAITING_ORDER
        ends_at = status["waits"][-1]["until"] if in_order else status["next_attempt_at"]
        return Expected(max(changed_at, from_rfc3339(ends_at)))
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # Paused until somebody resumes it.


def _has_not_begun(state: pb.OrchestrationState) -> bool:
    # On Azure Storage one that runs stays pending where the answer to the write of its first turn was lost.
    is_pending = OrchestrationStatus(state.orchestrationStatus) is OrchestrationStatus.PENDING
    return is_pending and not state.customStatus.value


_REDELIVERY: Final = ("controlQueueVisibilityTimeout", "workItemQueueVisibilityTimeout")


def redelivery_seconds() -> float:
    """Return how long, by host.json, messages stay hidden that a host had taken when it died.

    Raises:
        SettingsError: One of the two is not a time span.
    """
    return max(
        host_time_span("durableTask", "storageProvider", name, default="00:05:00") for name in _REDELIVERY
    )


def _late_after() -> timedelta:
    """Return how much later than a check a message may come that a dead host had taken, and a minute more."""
    return timedelta(seconds=redelivery_seconds()) + BETWEEN_LOOKS


async def _longest_answer(hub: TaskHub, name: str, instance_id: str) -> timedelta:
    """Return how long the answer that an instance waits for may take.

    An operation has the limit that it was accepted with, whatever this worker's file says. Of other
    orchestrations only the history has the limits of their calls: for them the host's limit counts.
    """
    if name not in _OPERATIONS:
        known = orchestrations().get(name)
        return _longest_function() if known is not None and known.calls_dependencies else timedelta()
    instance = await hub.read_instance(instance_id)
    try:
        return timedelta(seconds=operation_of(instance).timeouts.attempt_seconds) if instance else timedelta()
    except CAUSES:
        return _longest_function()


def _longest_function() -> timedelta:
    seconds = function_timeout_seconds()
    return _LONGEST_FUNCTION if seconds is None else timedelta(seconds=seconds)


@dataclass(slots=True)
class StuckLook:
    """One look at what has not ended; `end` has the queues checked where something is late.

    Attributes:
        stuck: Those that an earlier nudge should have moved.
    """

    hub: TaskHub
    now: datetime
    stuck: list[StuckInstance] = field(default_factory=list)
    _late_after: timedelta = field(default_factory=_late_after)
    _checks: QueueChecks | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wants_check: bool = False

    async def move_on(self, name: str, state: pb.OrchestrationState) -> Standstill | None:
        """Let an unfinished instance go on if it stands still; return what was done, None for nothing."""
        expected, instance_id = expected_turn(name, state), state.instanceId
        lost_since = None if expected is None else await self.lost_since(name, instance_id, expected)
        if expected is None or lost_since is None:
            return None
        if (
            _has_not_begun(state)
            and not orchestrations()[name].has_caller
            and await _start_again(self.hub, name, instance_id)
        ):
            return Standstill.STARTED_AGAIN
        await _nudge(self.hub, instance_id, expected)
        since = expected.since
        _log.warning("%s has stood still since %s: nudged", instance_id, to_rfc3339(since))
        if self.now - lost_since > BETWEEN_LOOKS:
            self.stuck.append(
                StuckInstance(instance_id=instance_id, orchestration=name, since=since, noted_at=self.now)
            )
        return Standstill.NUDGED

    async def lost_since(self, name: str, instance_id: str, expected: Expected) -> datetime | None:
        """Return since when the next turn of an instance is lost; None where it may still come."""
        if self.now - expected.since <= BETWEEN_LOOKS:
            return None
        lost_since = (await self._read()).lost_since(expected, self._late_after)
        self._wants_check = self._wants_check or lost_since is None
        if lost_since is not None and self.now > lost_since and expected.is_answer:
            # This reads the instance, of the few that wait for an answer for long.
            lost_since += await _longest_answer(self.hub, name, instance_id)
        return None if lost_since is None or self.now <= lost_since else lost_since

    async def _read(self) -> QueueChecks:
        async with self._reading:
            if self._checks is None:
                self._checks = await look_at_checks(self.hub)
        return self._checks

    async def end(self) -> None:
        """Have the queues checked where something may be queued, and note what no nudge moves."""
        await self.ask_for_check()
        await note_stuck(self.hub, self.stuck, self.now)

    async def ask_for_check(self) -> None:
        if self._wants_check:
            await ask_for_check(self.hub, self.now)


async def nudge_if_lost(hub: TaskHub, instance_id: str, now: datetime) -> None:
    """Nudge an instance that `watch` does not look at, if the answer that it waits for was lost."""
    look, instance = StuckLook(hub, now), await hub.read_instance(instance_id)
    if instance is None:
        return
    expected = Expected(instance.updated_at, is_answer=True)
    if await look.lost_since("", instance_id, expected) is not None:
        await _nudge(hub, instance_id, expected)
    await look.ask_for_check()


async def _nudge(hub: TaskHub, instance_id: str, expected: Expected) -> None:
    # What a turn has asked for since the look at the instance is not lost.
    with suppress(InstanceEndedError):
        asked_before = to_rfc3339(expected.since + CLOCKS_DIFFER)
        await hub.raise_event(instance_id, NUDGE_EVENT, {"asked_before": asked_before})


# What was noted, as the latest run of this process saw it. The next run, a minute later, uses it, so that it
# reads nothing while nothing stands still.
_noted: Final = LoopOwned[dict[TaskHub, tuple[datetime, Stuck]]](dict)


def _noted_lately(hub: TaskHub, now: datetime) -> Stuck | None:
    noted_at, stuck = _noted.get().get(hub, (now, None))
    return stuck if now - noted_at <= 1.5 * BETWEEN_LOOKS else None


async def note_stuck(hub: TaskHub, instances: Collection[StuckInstance], now: datetime) -> None:
    """Note those that an earlier nudge should have moved; this costs no request where there is none."""

    def rule(stuck: Stuck) -> Stuck:
        # In an app that was away everything is late, and was not nudged yet.
        known = {instance.instance_id: instance for instance in stuck}
        for instance in instances:
            if (before := known.get(instance.instance_id)) is None or before.since != instance.since:
                known[instance.instance_id] = instance
        return tuple(known.values())

    known = _noted_lately(hub, now)
    if instances:
        known = await change_stuck(rule)
    elif known is None:
        known = await read_stuck()
    _noted.get()[hub] = now, known


async def stuck_instances(hub: TaskHub, now: datetime) -> Stuck:
    """Return those that no nudge moves, the first that was due first; forget those that have moved."""
    noted = _noted_lately(hub, now)
    noted = await read_stuck() if noted is None else noted
    instances = await asyncio.gather(*(hub.read_instance(entry.instance_id) for entry in noted))
    still = {
        entry.instance_id
        for entry, instance in zip(noted, instances, strict=True)
        if instance is not None
        and instance.runtime_status in (OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING)
        and instance.updated_at <= entry.since
    }
    moved = {entry.instance_id for entry in noted} - still
    if moved:
        await change_stuck(lambda stuck: tuple(entry for entry in stuck if entry.instance_id not in moved))
        _noted.get().pop(hub, None)
    nudged = [entry for entry in noted if now - entry.noted_at >= _NUDGED_AGAIN]
    nudged.sort(key=lambda entry: entry.since)
    return tuple(entry for entry in nudged if entry.instance_id in still)


async def _start_again(hub: TaskHub, name: str, instance_id: str) -> bool:
    """Start an instance again that has not begun; False where that was done often enough."""
    instance = await hub.read_instance(instance_id)
    if instance is None or not instance.input or restarts_of(instance) >= MOST_RESTARTS:
        return False
    input_ = instance.input | {"restarts": restarts_of(instance) + 1}
    # Azure Storage replaces no pending instance: there a person terminates it, and upkeep starts it anew.
    is_started = await hub.start_instance(name, instance_id, input_, again=False, was_lost=True)
    if is_started:
        _log.warning("%s has not begun since %s: started again", instance_id, to_rfc3339(instance.created_at))
    return is_started
