"""What each step removes of what is past its time.

    markers         of attempts, when a later attempt was made or the operation has ended
    dead letters    archived ones only: record --> list rows --> entry in the order of deletion
    commits         commit row --> entry in the list of commits
    lists           rows of an instance --> its entry in the list of its orchestrator

The list entry is deleted last, so the next step repeats what a crash interrupted.
"""

from datetime import datetime
from typing import Final

from durable_retry.attempt import markers
from durable_retry.attempt.commits import COMMITTED, OldEntry, drop_entries, list_older, remove_commit
from durable_retry.attempt.results import remove_results
from durable_retry.dead_letters.index import drop_due, due, unlist_archived
from durable_retry.dead_letters.records import remove_archived
from durable_retry.hub import instance_lists
from durable_retry.hub.orchestrations import listed_names
from durable_retry.operations.status import has_ended
from durable_retry.storage import tables
from durable_retry.upkeep.removal import (
    Past,
    RowsOfPartition,
    drained,
    instant_in,
    remove_few_at_once,
    remove_in_partitions,
    remove_of_list,
)

MARKERS_PER_STEP: Final = 1_000


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


DEAD_LETTERS_PER_STEP: Final = 200


async def remove_archived_dead_letters(past: Past) -> tuple[int, str]:
    """Delete archived dead letters.

    The record is deleted first, since lists do not show entries without a record; the due entry last, so the
    next run repeats what a crash interrupted.
    """
    entries = await due(past.before, DEAD_LETTERS_PER_STEP)
    return drained(await remove_few_at_once(_remove_archived, entries), DEAD_LETTERS_PER_STEP)


async def _remove_archived(entry: tuple[str, datetime, datetime]) -> int:
    dead_letter_id, created_at, archived_at = entry
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


async def remove_listed(past: Past) -> tuple[int, str]:
    """Delete the entries of an orchestrator's list for instances that are gone, and what is kept of these."""

    async def is_over(instance_id: str) -> bool:
        return await past.hub.read_instance(instance_id) is None

    return await remove_of_list(past, instance_lists.TABLE, listed_names()[past.shard], is_over)
