"""Removes what is past its time until nothing is left.

A timer removes each kind of what is past its time for a few seconds. Where more is left, the orchestration
`retention` continues until nothing is left, one instance for each part of the kind. Kinds without a list by
time scan a whole table or task hub in rounds: they store their position, and begin a round once an hour at
most.

`kinds` has them all. What is removed of each, and in which order, is in `features.retention.removal` and
`features.retention.histories`.
"""

import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import Final

from durable_retry.features.retention.histories import clean_key_records, purge_others
from durable_retry.features.retention.names import RETENTION
from durable_retry.features.retention.removal import (
    COMMITS,
    MARKERS,
    list_of,
    remove_archived_dead_letters,
    remove_results_of_days,
)
from durable_retry.features.retention.walks import (
    ROUND_EVERY,
    Declared,
    from_the_begin,
    in_rounds,
    kind_of,
)
from durable_retry.hub.orchestrations import listed_names
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features, plugins
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import run_each
from durable_retry.runtime.deferred import imported
from durable_retry.settings.retention import retention
from durable_retry.upkeep.removal import Kind, Past
from durable_retry.upkeep.rounds import rotated

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""How long the timer removes one part of a kind: all parts together stay below `functionTimeout`."""


class RetentionKind(StrEnum):
    """The core's kinds of what is removed when it is past its time; plugins add theirs."""

    MARKERS = "markers"
    DEAD_LETTERS = "dead_letters"
    COMMITS = "commits"
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


async def look_at_all(hub: TaskHub, now: datetime) -> None:
    """Look at every kind for a while."""
    # Records have a timer of their own.
    looked_at = [kind for kind in kinds() if kind != RetentionKind.RECORDS]
    # Rotated by the hour: one run of maintenance in an hour begins with this step.
    await run_each(partial(look_at, hub, kind, now) for kind in rotated(looked_at, now, ROUND_EVERY))


async def clean_records(hub: TaskHub, now: datetime) -> None:
    """Remove what expired idempotency records leave, as `look_at` does."""
    await look_at(hub, RetentionKind.RECORDS, now)


async def look_at(hub: TaskHub, kind: str, now: datetime) -> None:
    """Remove what is past its time for a few seconds; leave the rest to orchestrations."""
    shards = range(kinds()[kind].shards)
    await run_each(partial(_look_at_part, hub, RetentionPart(kind, shard), now) for shard in shards)


async def _look_at_part(hub: TaskHub, part: RetentionPart, now: datetime) -> None:
    if await remove_past(hub, part, now, LOOK_SECONDS):
        input_ = {"kind": part.kind, "shard": part.shard}
        if not await hub.start_instance(RETENTION, part.instance_id, input_, again=True):
            for feature in features():
                if feature.unwatched:
                    await imported(feature.unwatched)(hub, part.instance_id, now)


async def remove_past(hub: TaskHub, part: RetentionPart, now: datetime, seconds: float) -> bool:
    """Remove one part until nothing is left or the time is up; return whether more may be left."""
    settings, kind = retention(), kinds().get(part.kind)
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


_DECLARED: Final[Mapping[str, Declared]] = {
    RetentionKind.MARKERS: MARKERS,
    RetentionKind.DEAD_LETTERS: Kind(
        from_the_begin(remove_archived_dead_letters), lambda settings: settings.archived_for
    ),
    RetentionKind.COMMITS: COMMITS,
    RetentionKind.RESULTS: Kind(
        from_the_begin(remove_results_of_days), lambda settings: settings.history_for
    ),
    RetentionKind.OTHERS: Kind(in_rounds(purge_others), lambda settings: settings.history_for),
    RetentionKind.RECORDS: Kind(in_rounds(clean_key_records), lambda _: timedelta()),
}


@cache
def kinds() -> Mapping[str, Kind]:
    """Return all kinds by their names, those of what plugs in among them."""
    added = {name: imported(kind) for plugin in plugins() for name, kind in plugin.retention.items()}
    lists = {f"list_of_{name}": list_of(name) for name in listed_names()}
    return {name: kind_of(declared) for name, declared in {**_DECLARED, **lists, **added}.items()}
