"""Steps through what is past its time: how each class of `upkeep.removal` is removed."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import batched
from typing import Final

from durable_retry.attempt.commits import INDEX_TABLE, location_in
from durable_retry.base.json_forms import from_rfc3339, newest_first, to_rfc3339
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.runtime.deferred import imported
from durable_retry.storage import lists, rounds, tables
from durable_retry.upkeep.removal import (
    REMOVED_AT_ONCE,
    CommitEntries,
    Kind,
    ListByTime,
    OldEntry,
    Past,
    RowsOfOperations,
)

type Removal = Callable[[Past], Awaitable[tuple[int, str]]]
"""A step; it returns how many it handled, and where the next one goes on: "" where nothing is left."""

type Declared = Kind | RowsOfOperations | ListByTime | CommitEntries

ROUND_EVERY: Final = timedelta(hours=1)

ROWS_PER_STEP: Final = 1_000
ENTRIES_PER_STEP: Final = 400
LISTED_PER_STEP: Final = 20

MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than any execution of an attempt can be delayed: a marker must outlive all of them."""

BOUNDS: Final = ("", "op-b~", "op-j~", "op-r~", None)
"""The bounds of shards by ids of operations, in base32: each has eight of the letters 2 to 7 and a to z."""

_MORE: Final = "more"


def kind_of(declared: Declared) -> Kind:
    """Return the steps that remove what is declared."""
    match declared:
        case RowsOfOperations():
            remove = partial(remove_in_partitions, declared)
            return Kind(in_rounds(remove), lambda _: MARKERS_KEPT, len(BOUNDS) - 1)
        case ListByTime():
            return Kind(in_rounds(partial(remove_of_list, declared)), lambda settings: settings.history_for)
        case CommitEntries():
            drain = from_the_begin(partial(remove_entries, declared))
            return Kind(drain, lambda settings: settings.sent_for, lists.SHARDS)
        case Kind():
            return declared


def from_the_begin(remove: Removal) -> Callable[[str, Past], AsyncGenerator[int]]:
    """Return the steps of a removal that lists what is past its time, and nothing else."""

    async def steps(_name: str, past: Past) -> AsyncGenerator[int]:
        while True:
            removed, following = await remove(past)
            yield removed
            if not following:
                return
            past = replace(past, after=following)

    return steps


def in_rounds(remove: Removal) -> Callable[[str, Past], AsyncGenerator[int]]:
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


def drained(handled: int, most: int) -> tuple[int, str]:
    """Return the result of a step that removes the first entries of a list: a full step has a next one."""
    return handled, "" if handled < most else _MORE


async def remove_in_partitions(rows: RowsOfOperations, past: Past) -> tuple[int, str]:
    """Remove what is old from the next partitions of a table; at most `ROWS_PER_STEP` rows are read."""
    after, before = past.after or str(BOUNDS[past.shard]), BOUNDS[past.shard + 1]
    columns = (*tables.KEYS, *rows.columns)
    partitions, following = await rounds.partitions_after(
        imported(rows.table), after, limit=ROWS_PER_STEP, only=columns, before=before
    )
    removed = await map_bounded(lambda read: rows.remove(past, *read), partitions, REMOVED_AT_ONCE)
    return sum(removed), following


async def remove_of_list(listed: ListByTime, past: Past) -> tuple[int, str]:
    """Delete the entries of a list that are over, and the rows of their ids.

    The entry is deleted last: the next round repeats what a crash interrupted.
    """
    table: str = imported(listed.table)

    async def remove(row: tables.Row) -> bool:
        id_ = row["RowKey"].partition("-")[2]
        is_over = await listed.is_over(past.hub, id_)
        if is_over:
            await _remove_rows(table, id_)
            await tables.delete(table, listed.name, row["RowKey"])
        return is_over

    oldest = f"{newest_first(past.before)}."
    cursor = max(past.after, oldest) if past.after else None
    page = await tables.rows_between(table, listed.name, after=oldest, cursor=cursor, limit=LISTED_PER_STEP)
    return sum(await map_bounded(remove, page.rows, REMOVED_AT_ONCE)), page.cursor or ""


async def _remove_rows(table: str, partition: str) -> None:
    page = await tables.rows_between(table, partition, only=tables.KEYS)
    # The row of a batch sorts before its items, so it is deleted in the first transaction: a batch that is
    # deleted half is not found any more.
    for rows in batched(page.rows, tables.MOST_CHANGES, strict=False):
        await tables.transact(table, [("delete", tables.keys_of(row)) for row in rows])


async def remove_entries(listed: CommitEntries, past: Past) -> tuple[int, str]:
    """Remove what the oldest entries of one shard of a list of commits name, then the entries."""
    partition, oldest = lists.partitions(listed.name)[past.shard], f"{newest_first(past.before)}."
    page = await tables.rows_between(INDEX_TABLE, partition, after=oldest, limit=ENTRIES_PER_STEP)

    def entry(row: tables.Row) -> OldEntry:
        id_ = str(row["RowKey"]).partition("-")[2]
        return OldEntry(partition, row["RowKey"], id_, location_in(row, listed.run_of_id(id_)))

    removed = await listed.remove(past, [entry(row) for row in page.rows])
    await tables.delete_rows(INDEX_TABLE, page.rows)
    return drained(removed, ENTRIES_PER_STEP)
