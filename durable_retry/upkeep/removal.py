"""How features remove what is past its time: steps of a removal, and what many removals need.

A `Kind` says how one kind is removed; the feature `retention` repeats its steps.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Final

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import from_rfc3339, newest_first, to_rfc3339
from durable_retry.hub.task_hub import TaskHub
from durable_retry.settings.retention import Retention
from durable_retry.storage import rounds, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The arguments of a step, which removes what was made, or ended, before an instant."""

    hub: TaskHub
    now: datetime
    before: datetime
    after: str = ""  # where the step before ended; "" for the first
    shard: int = 0
    histories_before: datetime | None = None  # before when histories are past their time; None for never


type Removal = Callable[[Past], Awaitable[tuple[int, str]]]
"""A step; it returns how many it handled, and where the next one goes on: "" where nothing is left.

Raises `TaskHubUnavailableError` where the task hub did not answer.
"""

ROUND_EVERY: Final = timedelta(hours=1)

type _Steps = Callable[[str, Past], AsyncGenerator[int]]
"""Takes the name of a part; yields how many each step handled."""


def from_the_begin(remove: Removal) -> _Steps:
    """Return the steps of a removal that lists what is past its time, and nothing else."""

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
    kept_for: Callable[[Retention], timedelta | None]
    shards: int = 1


# Requests to storage take their time on the way, and the account serves many at once.
_REMOVED_AT_ONCE: Final = 16

LISTED_PER_STEP: Final = 20


async def remove_few_at_once[T](remove: Callable[[T], Awaitable[int]], items: Iterable[T]) -> int:
    """Remove what was found, a few at once; return how many there were in all."""
    total = 0
    for few in batched(items, _REMOVED_AT_ONCE, strict=False):
        total += sum(await asyncio.gather(*map(remove, few)))
    return total


MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than any execution of an attempt can be delayed: a marker must outlive all of them."""

BOUNDS: Final = ("", "op-b~", "op-j~", "op-r~", None)
"""The bounds of shards by ids of operations, in base32: each has eight of the letters 2 to 7 and a to z."""


type RowsOfPartition = tuple[str, list[tables.Row]]


async def remove_in_partitions(
    past: Past,
    table: str,
    only: Sequence[str],
    most: int,
    remove: Callable[[RowsOfPartition], Awaitable[int]],
) -> tuple[int, str]:
    """Remove what is old from the next partitions of a table, one for each operation; reads `most` rows."""
    after, before = past.after or str(BOUNDS[past.shard]), BOUNDS[past.shard + 1]
    names = (*tables.KEYS, *only)
    partitions, following = await rounds.partitions_after(table, after, limit=most, only=names, before=before)
    return await remove_few_at_once(remove, partitions), following


def instant_in(row: tables.Row, name: str) -> datetime:
    """Return an instant of a row; one of long ago where it has none."""
    # An outcome written after its marker was deleted leaves a row without a time: treat it as old.
    return read_or(lambda: from_rfc3339(row[name]), lambda _: datetime.min.replace(tzinfo=UTC))


_MORE: Final = "more"


def drained(handled: int, most: int) -> tuple[int, str]:
    """Return the result of a step that removes the first entries of a list: a full step has a next one."""
    return handled, "" if handled < most else _MORE


async def remove_of_list(
    past: Past, table: str, name: str, is_over: Callable[[str], Awaitable[bool]]
) -> tuple[int, str]:
    """Delete the entries of a list by time that are over, and the rows of their ids.

    The entry is deleted last: the next round repeats what a crash interrupted.

    Args:
        table: Has the list in the partition `name`, and the rows in the partition of the entry's id.
    """

    async def remove(row: tables.Row) -> int:
        id_ = row["RowKey"].partition("-")[2]
        if not await is_over(id_):
            return 0
        await _remove_rows(table, id_)
        await tables.delete(table, name, row["RowKey"])
        return 1

    oldest = f"{newest_first(past.before)}."
    cursor = max(past.after, oldest) if past.after else None
    page = await tables.rows_between(table, name, after=oldest, cursor=cursor, limit=LISTED_PER_STEP)
    return await remove_few_at_once(remove, page.rows), page.cursor or ""


async def _remove_rows(table: str, partition: str) -> None:
    page = await tables.rows_between(table, partition, only=tables.KEYS)
    # The row of a batch sorts before its items, so it is deleted in the first transaction: a batch that is
    # deleted half is not found any more.
    for rows in batched(page.rows, tables.MOST_CHANGES, strict=False):
        await tables.transact(table, [("delete", tables.keys_of(row)) for row in rows])
