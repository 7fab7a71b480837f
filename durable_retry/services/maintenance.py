"""Maintenance: finish what crashes interrupted, and remove what is past its time until nothing is left.

A timer removes each kind of what is past its time for a few seconds. Where more is left, the orchestration
`retention` continues until nothing is left, one instance for each part of the kind. Kinds without a list by
time scan a whole table or task hub in rounds: they store their position, and begin a round once an hour at
most.

    markers, steps                 rounds of their tables, in four parts by the operation's id
    sent events, commits           their lists, in the parts of the outbox's index
    dead letters, metrics          their lists
    results                        the days until which they are kept
    operations                     the index of operations, in four parts by time
    batches                        rounds of the lists of batches, sagas and bulk actions
    others, records                rounds of the instances and of the entities of the task hub

What is removed of each, and in which order, is in `services.retention` and `services.operation_index`.
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
from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import RETENTION
from durable_retry.services.failures import sweep_failed, sweep_terminated
from durable_retry.services.metrics import ROWS_PER_STEP, fold_metrics, remove_old_metrics
from durable_retry.services.operation_index import add_lost, purge_others, remove_old
from durable_retry.services.replay import finish_replay
from durable_retry.services.retention import (
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
from durable_retry.settings.maintenance import maintenance_settings
from durable_retry.stores import operation_index, operation_writes, steps, tables
from durable_retry.stores.dead_letters.records import Intent, left_over
from durable_retry.stores.results import REMOVED_AT_ONCE, remove_results
from durable_retry.stores.task_hub import (
    TaskHubUnavailableError,
    clean_entities,
    start_instance,
)
from durable_retry.stores.workflows import LISTED, LISTS_TABLE, TABLE

_log = logging.getLogger(__name__)

INTENTS_PER_RUN: Final = 200

LOOK_SECONDS: Final = 5.0
"""How long the timer removes one part of a kind: all parts together stay below `functionTimeout`."""

STEP_SECONDS: Final = 25.0
"""How long one activity of the orchestration runs."""

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent belongs to a change that is still under way."""

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
    """One part of what is removed.

    Attributes:
        kind: Of what.
        shard: Which part of the kind, from 0.
    """

    kind: RetentionKind
    shard: int

    @property
    def instance_id(self) -> str:
        """Of the orchestration that removes the rest of it."""
        return f"{RETENTION}-{self.kind}-{self.shard}"


async def run_maintenance(hub: str, now: datetime) -> None:
    """Finish what crashes interrupted, and look at every kind of retention for a while.

    Raises:
        TaskHubUnavailableError: Something is left for the next run.
    """
    finished = await finish_left_over(hub, now)
    swept = await sweep_failed(hub, now)
    cancelled = await sweep_terminated(hub, now)
    await fold_metrics(now, STEP_SECONDS)
    kept_for = maintenance_settings().metrics_for
    if kept_for is not None:
        until = clock.monotonic_seconds() + STEP_SECONDS
        while await remove_old_metrics(now - kept_for) >= ROWS_PER_STEP and clock.monotonic_seconds() < until:
            pass
    await add_lost(hub, now)
    if swept:
        _log.error("%d operations whose orchestration failed are dead letters now", swept)
    if finished or cancelled:
        _log.info("finished %d changes; completed %d terminated operations", finished, cancelled)
    for kind in RetentionKind:
        if kind is not RetentionKind.RECORDS:  # They have a timer of their own.
            await look_at(hub, kind, now)


async def look_at(hub: str, kind: RetentionKind, now: datetime) -> None:
    """Remove what is past its time for a few seconds; leave the rest to orchestrations.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """
    for shard in range(SHARDS.get(kind, 1)):
        part = RetentionPart(kind, shard)
        if await remove_past(hub, part, now, LOOK_SECONDS):
            await start_instance(hub, RETENTION, part.instance_id, {"kind": kind, "shard": shard}, again=True)


async def remove_past(hub: str, part: RetentionPart, now: datetime, seconds: float) -> bool:
    """Remove one part of what is past its time, until nothing is left or the time is up.

    Returns:
        Whether more may be left.

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


async def _drained(step: Callable[[], Awaitable[int]], most: int) -> AsyncGenerator[int]:
    """Repeat a step while it handles as many as it takes at once; yield how many it handled."""
    while True:
        handled = await step()
        yield handled
        if handled < most:
            return


type _Walk = Callable[[str], Awaitable[tuple[int, str]]]
"""Takes a cursor; returns how many were removed, and the cursor behind them."""


async def _round(walk: _Walk, table: str, name: str, now: datetime) -> AsyncGenerator[int]:
    """Finish the round that the last run began, or begin one; none when one began within the last hour."""
    place = await tables.read_round(table, name)
    if place.after == tables.FIRST:
        if place.begun_at and now - from_rfc3339(place.begun_at) < ROUND_EVERY:
            return
        place = tables.Round(begun_at=to_rfc3339(now))
    while True:
        removed, following = await walk(place.after)
        place = replace(place, after=following)
        await tables.write_round(table, place, name)
        yield removed
        if following == tables.FIRST:
            return


async def finish_left_over(hub: str, now: datetime) -> int:
    """Finish changes of dead letters that a crash interrupted; return their number.

    Raises:
        TaskHubUnavailableError: A replay could not be started; it is tried again by the next run.
    """
    due = [intent for intent in await left_over(INTENTS_PER_RUN) if intent.begun_at <= now - SETTLED_AFTER]
    return sum([await _finished(hub, intent) for intent in due])


async def _finished(hub: str, intent: Intent) -> bool:
    """Finish one change; an error of one change does not stop the others."""
    try:
        await finish_replay(hub, intent)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad change must not stop the others for ever
        _log.exception("a change of %s cannot be finished", intent.dead_letter_id)
        return False
    return True


_BOUNDS: Final = (tables.FIRST, "op-3~", "op-7~", "op-b~", None)
"""Between which ids of operations each part of markers and steps is; ids are hexadecimal."""


def _bounds(shard: int, after: str) -> tuple[str, str | None]:
    """Return the exclusive bounds of a walk through one part."""
    return (str(_BOUNDS[shard]) if after == tables.FIRST else after), _BOUNDS[shard + 1]


def _markers(hub: str, shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        return await remove_attempt_markers(hub, now - MARKERS_KEPT, *_bounds(shard, after))

    return _round(walk, operation_writes.TABLE, f"place-{shard}", now)


def _remembered(hub: str, shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        return await remove_steps(hub, now - MARKERS_KEPT, now, *_bounds(shard, after))

    return _round(walk, steps.TABLE, f"place-{shard}", now)


async def _letters(_hub: str, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = maintenance_settings().archived_for
    if kept_for is not None:
        step = partial(remove_archived_dead_letters, now - kept_for)
        async for number in _drained(step, DEAD_LETTERS_PER_STEP):
            yield number


async def _sent(hub: str, shard: int, now: datetime) -> AsyncGenerator[int]:
    settings = maintenance_settings()
    if settings.sent_for is not None:
        purged_before = None if settings.history_for is None else now - settings.history_for
        step = partial(remove_sent_events, hub, now - settings.sent_for, shard, purged_before)
        async for number in _drained(step, EVENTS_PER_STEP):
            yield number


async def _commits(_hub: str, shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = maintenance_settings().sent_for
    if kept_for is not None:
        async for number in _drained(partial(remove_old_commits, now - kept_for, shard), COMMITS_PER_STEP):
            yield number


async def _batches(hub: str, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = maintenance_settings().history_for
    if kept_for is not None:
        walk = partial(remove_batches, now - kept_for)
        async for number in _round(walk, TABLE, "place", now):
            yield number
        for kind in LISTED:
            walk = partial(remove_listed, hub, kind, now - kept_for)
            async for number in _round(walk, LISTS_TABLE, kind, now):
                yield number


async def _operations(hub: str, shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = maintenance_settings().history_for
    if kept_for is not None:
        async for number in remove_old(hub, now - kept_for, now, shard, SHARDS[RetentionKind.OPERATIONS]):
            yield number


async def _results(_hub: str, _shard: int, now: datetime) -> AsyncGenerator[int]:
    async for number in _drained(partial(remove_results, now), REMOVED_AT_ONCE):
        yield number


async def _others(hub: str, _shard: int, now: datetime) -> AsyncGenerator[int]:
    kept_for = maintenance_settings().history_for
    if kept_for is not None:
        walk = partial(purge_others, hub, now - kept_for, now)
        async for number in _round(walk, operation_index.TABLE, RetentionKind.OTHERS.value, now):
            yield number


def _records(hub: str, _shard: int, now: datetime) -> AsyncGenerator[int]:
    async def walk(after: str) -> tuple[int, str]:
        removed, following = await clean_entities(hub, None if after == tables.FIRST else after)
        return removed, following or tables.FIRST

    return _round(walk, operation_index.TABLE, RetentionKind.RECORDS.value, now)


_STEPS: Final[dict[RetentionKind, Callable[[str, int, datetime], AsyncGenerator[int]]]] = {
    RetentionKind.MARKERS: _markers,
    RetentionKind.STEPS: _remembered,
    RetentionKind.DEAD_LETTERS: _letters,
    RetentionKind.SENT_EVENTS: _sent,
    RetentionKind.COMMITS: _commits,
    RetentionKind.BATCHES: _batches,
    RetentionKind.OPERATIONS: _operations,
    RetentionKind.RESULTS: _results,
    RetentionKind.OTHERS: _others,
    RetentionKind.RECORDS: _records,
}

SHARDS: Final = {
    RetentionKind.MARKERS: len(_BOUNDS) - 1,
    RetentionKind.STEPS: len(_BOUNDS) - 1,
    RetentionKind.SENT_EVENTS: tables.SHARDS,
    RetentionKind.COMMITS: tables.SHARDS,
    RetentionKind.OPERATIONS: 4,
}
"""Parts of a kind, where it has several; each can be removed by another worker."""
