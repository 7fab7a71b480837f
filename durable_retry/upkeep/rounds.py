"""Maintenance: finish what crashes interrupted, and remove what is past its time until nothing is left.

A timer removes each kind of what is past its time for a few seconds. Where more is left, the orchestration
`retention` continues until nothing is left, one instance for each part of the kind. Kinds without a list by
time scan a whole table or task hub in rounds: they store their position, and begin a round once an hour at
most.

`kinds` has them all. What is removed of each, and in which order, is in `upkeep.removal` and
`upkeep.histories`.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import Final

from azure.core.exceptions import AzureError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import RETENTION
from durable_retry.dead_letters.actions import finish_interrupted
from durable_retry.dead_letters.records import Intent, left_over
from durable_retry.hub.orchestrations import listed_names
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features, plugins
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import raise_first, run_each, settle_all
from durable_retry.runtime.deferred import deferred, imported
from durable_retry.settings.app import RetentionSettings, retention_settings
from durable_retry.storage import lists, rounds
from durable_retry.upkeep.histories import clean_key_records, purge_others
from durable_retry.upkeep.removal import (
    BOUNDS,
    MARKERS_KEPT,
    Past,
    Removal,
    remove_archived_dead_letters,
    remove_attempt_markers,
    remove_listed,
    remove_old_commits,
    remove_results_of_days,
)

_log = logging.getLogger(__name__)

INTENTS_PER_RUN: Final = 200

LOOK_SECONDS: Final = 5.0
"""How long the timer removes one part of a kind: all parts together stay below `functionTimeout`."""

STEP_SECONDS: Final = 25.0
"""How long one activity of the orchestration runs."""

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent belongs to a change that is still under way."""

MAINTENANCE_EVERY: Final = timedelta(minutes=5)

ROUND_EVERY: Final = timedelta(hours=1)


class RetentionKind(StrEnum):
    """The core's kinds of what is removed when it is past its time; plugins add theirs."""

    MARKERS = "markers"
    DEAD_LETTERS = "dead_letters"
    COMMITS = "commits"
    LISTS = "lists"
    RESULTS = "results"
    OTHERS = "others"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class RetentionPart:
    kind: str
    shard: int

    @property
    def instance_id(self) -> str:
        """The instance id of the orchestration that removes the rest of it."""
        return f"{RETENTION}-{self.kind}-{self.shard}"


async def run_maintenance(hub: TaskHub, now: datetime) -> None:
    """Finish what crashes interrupted, and look at every kind of retention for a while."""
    steps_: list[Callable[[], Awaitable[object]]] = [
        partial(finish_left_over, hub, now),
        *(partial(deferred(step), hub, now) for plugin in plugins() for step in plugin.each_round),
        # Records have a timer of their own.
        *(partial(look_at, hub, kind, now) for kind in kinds() if kind != RetentionKind.RECORDS),
    ]
    # Each run begins one step later: the last are reached also when `functionTimeout` cuts every run short.
    first = int(now.timestamp() / MAINTENANCE_EVERY.total_seconds()) % len(steps_)
    await run_each(steps_[first:] + steps_[:first])


async def clean_records(hub: TaskHub, now: datetime) -> None:
    """As `look_at`, of expired idempotency records."""
    await look_at(hub, RetentionKind.RECORDS, now)


async def look_at(hub: TaskHub, kind: str, now: datetime) -> None:
    """Remove what is past its time for a few seconds; leave the rest to orchestrations."""
    shards = range(kinds()[kind].shards)
    await run_each(partial(_look_at_part, hub, RetentionPart(kind, shard), now) for shard in shards)


async def _look_at_part(hub: TaskHub, part: RetentionPart, now: datetime) -> None:
    if await remove_past(hub, part, now, LOOK_SECONDS):
        given = {"kind": part.kind, "shard": part.shard}
        if not await hub.start_instance(RETENTION, part.instance_id, given, again=True):
            for feature in features():
                if feature.unwatched:
                    await imported(feature.unwatched)(hub, part.instance_id, now)


async def remove_past(hub: TaskHub, part: RetentionPart, now: datetime, seconds: float) -> bool:
    """Remove one part until nothing is left or the time is up; return whether more may be left."""
    settings, kind = retention_settings(), kinds().get(part.kind)
    kept_for = None if kind is None else kind.kept_for(settings)
    if kind is None or kept_for is None:
        return False
    histories_for = settings.history_for
    past = Past(
        hub=hub,
        now=now,
        before=now - kept_for,
        shard=part.shard,
        histories_before=None if histories_for is None else now - histories_for,
    )
    until, removed, is_left = clock.monotonic_seconds() + seconds, 0, False
    async with aclosing(kind.steps(part.instance_id, past)) as steps:
        async for number in steps:
            removed += number
            if is_left := clock.monotonic_seconds() >= until:
                break
    if removed or is_left:
        more = "; more may be left" if is_left else ""
        _log.info("removed %d past their time: %s%s", removed, part.instance_id, more)
    return is_left


type _Steps = Callable[[str, Past], AsyncGenerator[int]]
"""Takes the name of a part; yields how many each step handled."""


def from_the_begin(remove: Removal) -> _Steps:
    """Return the steps of a removal that finds the first that is past its time at once."""

    async def steps(_name: str, past: Past) -> AsyncGenerator[int]:
        while True:
            removed, following = await remove(past)
            yield removed
            if not following:
                return
            past = replace(past, after=following)

    return steps


def in_rounds(remove: Removal) -> _Steps:
    """Return the steps of a removal that looks at everything: once an hour, from where the last run was."""

    async def steps(name: str, past: Past) -> AsyncGenerator[int]:
        place = await rounds.read_round(name)
        if not place.after:
            if place.begun_at and past.now - from_rfc3339(place.begun_at) < ROUND_EVERY:
                return
            place = rounds.Round(begun_at=to_rfc3339(past.now))
        while True:
            removed, following = await remove(replace(past, after=place.after))
            place = replace(place, after=following)
            await rounds.write_round(name, place)
            yield removed
            if not following:
                return

    return steps


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind is removed; `kept_for` returns None where it is kept for ever.

    Each of its shards can be removed by another worker.
    """

    steps: _Steps
    kept_for: Callable[[RetentionSettings], timedelta | None]
    shards: int = 1


_KINDS: Final[Mapping[str, Kind]] = {
    RetentionKind.MARKERS: Kind(in_rounds(remove_attempt_markers), lambda _: MARKERS_KEPT, len(BOUNDS) - 1),
    RetentionKind.DEAD_LETTERS: Kind(
        from_the_begin(remove_archived_dead_letters), lambda settings: settings.archived_for
    ),
    RetentionKind.COMMITS: Kind(
        from_the_begin(remove_old_commits), lambda settings: settings.sent_for, lists.SHARDS
    ),
    RetentionKind.RESULTS: Kind(
        from_the_begin(remove_results_of_days), lambda settings: settings.history_for
    ),
    RetentionKind.OTHERS: Kind(in_rounds(purge_others), lambda settings: settings.history_for),
    RetentionKind.RECORDS: Kind(in_rounds(clean_key_records), lambda _: timedelta()),
}


@cache
def kinds() -> Mapping[str, Kind]:
    """Return all kinds by their names, those of what plugs in among them."""
    lists = Kind(in_rounds(remove_listed), lambda settings: settings.history_for, len(listed_names()))
    added = {name: each for plugin in plugins() for name, each in plugin.retention.items()}
    return {**_KINDS, RetentionKind.LISTS: lists, **{name: imported(kind) for name, kind in added.items()}}


async def finish_left_over(hub: TaskHub, now: datetime) -> int:
    """Finish changes of dead letters that a crash interrupted; return their number.

    Raises:
        TaskHubUnavailableError: A replay could not be started; it is tried again by the next run.
    """
    finished, errors = list[bool](), list[Exception]()
    async for intents in rounds.pages_from_place("intents", partial(left_over, INTENTS_PER_RUN)):
        due = [intent for intent in intents if intent.begun_at <= now - SETTLED_AFTER]
        done, failed = await settle_all(partial(_finish_change, hub), due, 1)
        finished, errors = finished + done, errors + failed
    if any(finished):
        _log.info("finished %d changes", sum(finished))
    raise_first(errors)
    return sum(finished)


async def _finish_change(hub: TaskHub, intent: Intent) -> bool:
    # An error of one change must not stop the others.
    try:
        await finish_interrupted(hub, intent)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad change must not stop the others for ever
        _log.exception("a change of %s cannot be finished", intent.dead_letter_id)
        return False
    return True
