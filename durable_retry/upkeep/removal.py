"""Retention: what each step removes of what is past its time. `upkeep.rounds` repeats the steps.

    markers         of attempts, when a later attempt was made or the operation has ended
    dead letters    archived ones only: record --> list rows --> entry in the order of deletion
    commits         commit row --> entry in the list of commits
    lists           rows of an instance --> its entry in the list of its orchestrator

The list entry is deleted last, so the next step repeats what a crash interrupted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Final

from durable_retry.attempt import markers
from durable_retry.attempt.commits import (
    COMMITTED,
    OldEntry,
    drop_entries,
    list_older,
    remove_commit,
)
from durable_retry.attempt.results import remove_results
from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import from_rfc3339, newest_first
from durable_retry.dead_letters.index import drop_due, due, unlist_archived
from durable_retry.dead_letters.records import remove_archived
from durable_retry.hub import instance_lists
from durable_retry.hub.orchestrations import listed_names
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import has_ended
from durable_retry.storage import rounds, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a step removes: what of one part was made, or ended, before an instant."""

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

# Requests to storage take their time on the way, and the account serves many at once.
_REMOVED_AT_ONCE: Final = 16


async def remove_few_at_once[T](remove: Callable[[T], Awaitable[int]], items: Iterable[T]) -> int:
    """Remove what was found, a few at once; return how many there were in all."""
    total = 0
    for few in batched(items, _REMOVED_AT_ONCE, strict=False):
        total += sum(await asyncio.gather(*map(remove, few)))
    return total


MARKERS_PER_STEP: Final = 1_000

MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than any execution of an attempt can be delayed: a marker must outlive all of them."""

BOUNDS: Final = ("", "op-b~", "op-j~", "op-r~", None)
"""Between which ids of operations each part of markers and steps is: eight of the digits 2 to 7, a to z."""


type RowsOfPartition = tuple[str, list[tables.Row]]


async def remove_in_partitions(
    past: Past,
    table: str,
    only: Sequence[str],
    most: int,
    remove: Callable[[RowsOfPartition], Awaitable[int]],
) -> tuple[int, str]:
    """Remove what is old of the next partitions of a table, each of an operation; most rows are read."""
    after, before = past.after or str(BOUNDS[past.shard]), BOUNDS[past.shard + 1]
    names = (*tables.KEYS, *only)
    partitions, following = await rounds.partitions_after(table, after, limit=most, only=names, before=before)
    return await remove_few_at_once(remove, partitions), following


def instant_in(row: tables.Row, name: str) -> datetime:
    """Return an instant of a row; one of long ago where it has none."""
    # An outcome written after its marker was deleted leaves a row without a time: treat it as old.
    return read_or(lambda: from_rfc3339(row[name]), lambda _: datetime.min.replace(tzinfo=UTC))


async def remove_attempt_markers(past: Past) -> tuple[int, str]:
    """Delete old markers; the last of an owner only when the operation has ended.

    An operation may retry for ever, and an attempt is over when a later one, or the commit, has a marker. At
    most `MARKERS_PER_STEP` are read, so that operations that wait for weeks do not block the others.
    """

    async def remove(marked: RowsOfPartition) -> int:
        owner, rows = marked
        old = [row for row in rows if instant_in(row, "marked_at") < past.before]
        # A replay's owner has the dead letter's id behind a dot.
        if len(old) == len(rows) and not await has_ended(past.hub, owner.partition(".")[0]):
            old.pop()
        await tables.delete_rows(markers.TABLE, old)
        return len(old)

    return await remove_in_partitions(past, markers.TABLE, ("marked_at",), MARKERS_PER_STEP, remove)


_MORE: Final = "more"


def drained(handled: int, most: int) -> tuple[int, str]:
    """Return what a step returns that takes so many at most from a list, and leaves none behind it."""
    return handled, "" if handled < most else _MORE


DEAD_LETTERS_PER_STEP: Final = 200


async def remove_archived_dead_letters(past: Past) -> tuple[int, str]:
    """Delete archived dead letters.

    The record is deleted first, since lists do not show entries without a record; the due entry last, so the
    next run repeats what a crash interrupted.
    """
    waiting = await due(past.before, DEAD_LETTERS_PER_STEP)
    return drained(await remove_few_at_once(_remove_archived, waiting), DEAD_LETTERS_PER_STEP)


async def _remove_archived(waiting: tuple[str, datetime, datetime]) -> int:
    dead_letter_id, created_at, archived_at = waiting
    if await remove_archived(dead_letter_id, archived_at):
        await unlist_archived(dead_letter_id, created_at, archived_at)
    else:
        await drop_due(dead_letter_id, archived_at)
    return 1


COMMITS_PER_STEP: Final = 400


async def remove_old_commits(past: Past) -> tuple[int, str]:
    """Delete commit rows without events; what a handler wrote beside them stays."""

    async def remove(entry: OldEntry) -> int:
        await remove_commit(entry.id, entry.location)
        return 1

    entries = await list_older(COMMITTED, past.before, COMMITS_PER_STEP, past.shard)
    removed = await remove_few_at_once(remove, entries)
    await drop_entries(entries)
    return drained(removed, COMMITS_PER_STEP)


async def remove_results_of_days(past: Past) -> tuple[int, str]:
    """Drop the tables of large results whose records and histories are over."""
    return await remove_results(past.now, past.now - past.before), ""


LISTED_PER_STEP: Final = 20


async def remove_listed(past: Past) -> tuple[int, str]:
    """Delete the entries of an orchestrator's list for instances that are gone, and what is kept of these."""

    async def is_over(instance_id: str) -> bool:
        return await past.hub.read_instance(instance_id) is None

    return await remove_of_list(past, instance_lists.TABLE, listed_names()[past.shard], is_over)


async def remove_of_list(
    past: Past, table: str, name: str, is_over: Callable[[str], Awaitable[bool]]
) -> tuple[int, str]:
    """Delete the entries of a list by time for what is over, and the rows that are kept of it.

    The entry is deleted last: the next round repeats what a crash interrupted.

    Args:
        table: Has the list, with its name as partition, and the rows, with the id in the entry as theirs.
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
