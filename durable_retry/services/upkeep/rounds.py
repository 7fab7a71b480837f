"""Maintenance: finish what crashes interrupted, and remove what is past its time until nothing is left.

A timer removes each kind of what is past its time for a few seconds. Where more is left, the orchestration
`retention` continues until nothing is left, one instance for each part of the kind. Kinds without a list by
time scan a whole table or task hub in rounds: they store their position, and begin a round once an hour at
most.

    markers, steps                 rounds of their tables, in four parts by the operation's id
    sent events, commits           their lists, in the parts of the outbox's index
    dead letters                   their list
    results                        the days until which they are kept
    operations                     the index of operations, in four parts by time
    batches                        rounds of the lists of batches, sagas and bulk actions
    others, records                rounds of the instances and of the entities of the task hub

What is removed of each, and in which order, is in `services.upkeep.removal` and `services.upkeep.histories`.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from azure.core.exceptions import AzureError

from durable_retry import clock
from durable_retry.concurrency import raise_first, run_each, settle_all
from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import RETENTION
from durable_retry.errors import TaskHubUnavailableError
from durable_retry.services.dead_letters.replay import finish_replay
from durable_retry.services.order_lanes import look_at_lanes
from durable_retry.services.upkeep.chores import EACH_ROUND
from durable_retry.services.upkeep.histories import purge_others, remove_old
from durable_retry.services.upkeep.lost_notes import add_lost
from durable_retry.services.upkeep.removal import (
    COMMITS_PER_STEP,
    DEAD_LETTERS_PER_STEP,
    EVENTS_PER_STEP,
    MARKERS_KEPT,
    remove_archived_dead_letters,
    remove_attempt_markers,
    remove_batches,
    remove_listed,
    remove_old_commits,
    remove_sent_events,
    remove_steps,
)
from durable_retry.settings.upkeep import retention_settings
from durable_retry.stores.dead_letters.intents import Intent, left_over
from durable_retry.stores.operations import index as operation_index
from durable_retry.stores.operations import markers, steps
from durable_retry.stores.operations.results import remove_results
from durable_retry.stores.order_lanes import remove_old_tails
from durable_retry.stores.storage import lists, rounds
from durable_retry.stores.task_hub import TaskHub
from durable_retry.stores.workflows import LISTED, LISTS_TABLE, TABLE

_log = logging.getLogger(__name__)

INTENTS_PER_RUN: Final = 200

LOOK_SECONDS: Final = 5.0
"""How long the timer removes one part of a kind: all parts together stay below `functionTimeout`."""

STEP_SECONDS: Final = 25.0
"""How long one activity of the orchestration runs."""

_INTENTS: Final = "intents"

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent belongs to a change that is still under way."""

MAINTENANCE_EVERY: Final = timedelta(minutes=5)

ROUND_EVERY: Final = timedelta(hours=1)


class RetentionKind(StrEnum):
    """The kinds of what is removed when it is past its time."""

    MARKERS = "markers"
    STEPS = "steps"
    DEAD_LETTERS = "dead_letters"
    SENT_EVENTS = "sent_events"
    COMMITS = "commits"
    BATCHES = "batches"
    OPERATIONS = "operations"
    RESULTS = "results"
    OTHERS = "others"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class RetentionPart:
    """One part of what is removed."""

    kind: RetentionKind
    shard: int

    @property
    def instance_id(self) -> str:
        """The instance id of the orchestration that removes the rest of it."""
        return f"{RETENTION}-{self.kind}-{self.shard}"


async def run_maintenance(hub: TaskHub, now: datetime) -> None:
    """Finish what crashes interrupted, and look at every kind of retention for a while.

    Raises:
        TaskHubUnavailableError: Something is left for the next run.
    """
    steps_: list[Callable[[], Awaitable[object]]] = [
        partial(finish_left_over, hub, now),
        *(partial(step, hub, now) for step in EACH_ROUND),
        partial(look_at_lanes, hub, STEP_SECONDS),
        partial(remove_old_tails, now),
        partial(add_lost, hub, now, STEP_SECONDS),
        # Records have a timer of their own.
        *(partial(look_at, hub, kind, now) for kind in RetentionKind if kind is not RetentionKind.RECORDS),
    ]
    # Each run begins one step later: the last are reached also when `functionTimeout` cuts every run short.
    first = int(now.timestamp() / MAINTENANCE_EVERY.total_seconds()) % len(steps_)
    await run_each(steps_[first:] + steps_[:first])


async def clean_records(hub: TaskHub, now: datetime) -> None:
    """As `look_at`, of expired idempotency records."""
    await look_at(hub, RetentionKind.RECORDS, now)


async def look_at(hub: TaskHub, kind: RetentionKind, now: datetime) -> None:
    """Remove what is past its time for a few seconds; leave the rest to orchestrations.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """
    await run_each(
        partial(_look_at_part, hub, RetentionPart(kind, shard), now) for shard in range(SHARDS.get(kind, 1))
    )


async def _look_at_part(hub: TaskHub, part: RetentionPart, now: datetime) -> None:
    if await remove_past(hub, part, now, LOOK_SECONDS):
        given = {"kind": part.kind, "shard": part.shard}
        await hub.start_instance(RETENTION, part.instance_id, given, again=True)


async def remove_past(hub: TaskHub, part: RetentionPart, now: datetime, seconds: float) -> bool:
    """Remove one part until nothing is left or the time is up; return whether more may be left.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """
    until, removed = clock.monotonic_seconds() + seconds, 0
    async with aclosing(_STEPS[part.kind](hub, part.shard, now)) as steps_:
        async for number in steps_:
            removed += number
            if clock.monotonic_seconds() >= until:
                _log.info("removed %d past their time: %s; more may be left", removed, part.instance_id)
                return True
    if removed:
        _log.info("removed %d past their time: %s", removed, part.instance_id)
    return False


async def _repeat_until_drained(step: Callable[[], Awaitable[int]], most: int) -> AsyncGenerator[int]:
    """Repeat a step while it handles as many as it takes at once; yield how many it handled."""
    while True:
        handled = await step()
        yield handled
        if handled < most:
            return


# Takes a cursor; returns how many were removed, and the cursor behind them.
type _Walk = Callable[[str], Awaitable[tuple[int, str]]]


async def _finish_round(walk: _Walk, table: str, name: str, now: datetime) -> AsyncGenerator[int]:
    """Finish the round that the last run began, or begin one; none when one began within the last hour."""
    place = await rounds.read_round(table, name)
    if place.after == rounds.FIRST:
        if place.begun_at and now - from_rfc3339(place.begun_at) < ROUND_EVERY:
            return
        place = rounds.Round(begun_at=to_rfc3339(now))
    while True:
        removed, following = await walk(place.after)
        place = replace(place, after=following)
        await rounds.write_round(table, place, name)
        yield removed
        if following == rounds.FIRST:
            return


async def finish_left_over(hub: TaskHub, now: datetime) -> int:
    """Finish changes of dead letters that a crash interrupted; return their number.

    Raises:
        TaskHubUnavailableError: A replay could not be started; it is tried again by the next run.
    """
    place = await rounds.read_round(operation_index.TABLE, _INTENTS)
    intents, following = await left_over(
        INTENTS_PER_RUN, None if place.after == rounds.FIRST else place.after
    )
    if (behind := following or rounds.FIRST) != place.after:
        await rounds.write_round(operation_index.TABLE, rounds.Round(behind), _INTENTS)
    due = [intent for intent in intents if intent.begun_at <= now - SETTLED_AFTER]
    finished, errors = await settle_all(partial(_finish_change, hub), due, 1)
    if any(finished):
        _log.info("finished %d changes", sum(finished))
    raise_first(errors)
    return sum(finished)


async def _finish_change(hub: TaskHub, intent: Intent) -> bool:
    # An error of one change must not stop the others.
    try:
        await finish_replay(hub, intent)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad change must not stop the others for ever
        _log.exception("a change of %s cannot be finished", intent.dead_letter_id)
        return False
    return True


# Between which ids of operations each part of markers and steps is: eight of the digits 2 to 7, a to z.
_BOUNDS: Final = (rounds.FIRST, "op-b~", "op-j~", "op-r~", None)


def _bounds_of_shard(shard: int, after: str) -> tuple[str, str | None]:
    return (str(_BOUNDS[shard]) if after == rounds.FIRST else after), _BOUNDS[shard + 1]


def _remove_markers(hub: TaskHub, shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        return await remove_attempt_markers(hub, now - MARKERS_KEPT, *_bounds_of_shard(shard, after))

    return _finish_round(walk, markers.TABLE, f"place-{shard}", now)


def _remove_steps(hub: TaskHub, shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        return await remove_steps(hub, now - MARKERS_KEPT, now, *_bounds_of_shard(shard, after))

    return _finish_round(walk, steps.TABLE, f"place-{shard}", now)


async def _remove_dead_letters(_hub: TaskHub, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = retention_settings().archived_for
    if kept_for is not None:
        step = partial(remove_archived_dead_letters, now - kept_for)
        async for number in _repeat_until_drained(step, DEAD_LETTERS_PER_STEP):
            yield number


async def _remove_sent_events(hub: TaskHub, shard: int, now: datetime) -> AsyncGenerator[int]:
    settings = retention_settings()
    if settings.sent_for is not None:
        purged_before = None if settings.history_for is None else now - settings.history_for
        step = partial(remove_sent_events, hub, now - settings.sent_for, shard, purged_before)
        async for number in _repeat_until_drained(step, EVENTS_PER_STEP):
            yield number


async def _remove_commits(_hub: TaskHub, shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = retention_settings().sent_for
    if kept_for is not None:
        async for number in _repeat_until_drained(
            partial(remove_old_commits, now - kept_for, shard), COMMITS_PER_STEP
        ):
            yield number


async def _remove_batches(hub: TaskHub, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = retention_settings().history_for
    if kept_for is not None:
        walk = partial(remove_batches, now - kept_for)
        async for number in _finish_round(walk, TABLE, "place", now):
            yield number
        for kind in LISTED:
            walk = partial(remove_listed, hub, kind, now - kept_for)
            async for number in _finish_round(walk, LISTS_TABLE, kind, now):
                yield number


async def _remove_operations(hub: TaskHub, shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = retention_settings().history_for
    if kept_for is not None:
        async for number in remove_old(hub, now - kept_for, now, shard, SHARDS[RetentionKind.OPERATIONS]):
            yield number


async def _remove_results(_hub: TaskHub, _shard: int, now: datetime) -> AsyncGenerator[int]:
    yield await remove_results(now, retention_settings().history_for)


async def _remove_other_instances(hub: TaskHub, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = retention_settings().history_for
    if kept_for is not None:
        walk = partial(purge_others, hub, now - kept_for, now)
        async for number in _finish_round(walk, operation_index.TABLE, RetentionKind.OTHERS.value, now):
            yield number


def _remove_key_records(hub: TaskHub, _shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        removed, following = await hub.clean_entities(None if after == rounds.FIRST else after)
        return removed, following or rounds.FIRST

    return _finish_round(walk, operation_index.TABLE, RetentionKind.RECORDS.value, now)


_STEPS: Final[dict[RetentionKind, Callable[[TaskHub, int, datetime], AsyncGenerator[int]]]] = {
    RetentionKind.MARKERS: _remove_markers,
    RetentionKind.STEPS: _remove_steps,
    RetentionKind.DEAD_LETTERS: _remove_dead_letters,
    RetentionKind.SENT_EVENTS: _remove_sent_events,
    RetentionKind.COMMITS: _remove_commits,
    RetentionKind.BATCHES: _remove_batches,
    RetentionKind.OPERATIONS: _remove_operations,
    RetentionKind.RESULTS: _remove_results,
    RetentionKind.OTHERS: _remove_other_instances,
    RetentionKind.RECORDS: _remove_key_records,
}

SHARDS: Final = {
    RetentionKind.MARKERS: len(_BOUNDS) - 1,
    RetentionKind.STEPS: len(_BOUNDS) - 1,
    RetentionKind.SENT_EVENTS: lists.SHARDS,
    RetentionKind.COMMITS: lists.SHARDS,
    RetentionKind.OPERATIONS: 4,
}
"""Parts of a kind, where it has several; each can be removed by another worker."""
