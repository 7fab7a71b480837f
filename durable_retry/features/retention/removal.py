"""What each step removes of what is past its time.

    markers         of attempts, when a later attempt was made or the operation has ended
    dead letters    archived ones only: record --> list rows --> entry in the order of deletion
    commits         commit row --> entry in the list of commits
    lists           rows of an instance --> its entry in the list of its orchestrator

The list entry is deleted last, so the next step repeats what a crash interrupted.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from durable_retry.attempt import markers
from durable_retry.attempt.commits import COMMITTED, remove_commit
from durable_retry.attempt.results import remove_results
from durable_retry.dead_letters.index import drop_due, due, unlist_archived
from durable_retry.dead_letters.records import remove_archived
from durable_retry.features.retention.walks import drained
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import has_ended
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.storage import tables
from durable_retry.upkeep.removal import (
    REMOVED_AT_ONCE,
    CommitEntries,
    ListByTime,
    OldEntry,
    Past,
    RowsOfOperations,
)


async def remove_attempt_markers(past: Past, owner: str, rows: list[tables.Row]) -> int:
    """Delete old markers; the last of an owner only when the operation has ended.

    An operation may retry for ever, and an attempt is over when a later one, or the commit, has a marker. So
    operations that wait for weeks do not block the others.
    """
    old = [row for row in rows if past.has(row, "marked_at")]
    # A replay's owner has the dead letter's id behind a dot.
    if len(old) == len(rows) and not await has_ended(past.hub, owner.partition(".")[0]):
        old.pop()
    await tables.delete_rows(markers.TABLE, old)
    return len(old)


MARKERS: Final = RowsOfOperations(
    "durable_retry.attempt.markers:TABLE", ("marked_at",), remove_attempt_markers
)


DEAD_LETTERS_PER_STEP: Final = 200


async def remove_archived_dead_letters(past: Past) -> tuple[int, str]:
    """Delete archived dead letters.

    The record is deleted first, since lists do not show entries without a record; the due entry last, so the
    next run repeats what a crash interrupted.
    """
    entries = await due(past.before, DEAD_LETTERS_PER_STEP)
    await map_bounded(_remove_archived, entries, REMOVED_AT_ONCE)
    return drained(len(entries), DEAD_LETTERS_PER_STEP)


async def _remove_archived(entry: tuple[str, datetime, datetime]) -> None:
    dead_letter_id, created_at, archived_at = entry
    if await remove_archived(dead_letter_id, archived_at):
        await unlist_archived(dead_letter_id, created_at, archived_at)
    else:
        await drop_due(dead_letter_id, archived_at)


async def remove_old_commits(_past: Past, entries: Sequence[OldEntry]) -> int:
    """Delete commit rows without events; what a handler wrote beside them stays."""
    await map_bounded(lambda entry: remove_commit(entry.id, entry.location), entries, REMOVED_AT_ONCE)
    return len(entries)


COMMITS: Final = CommitEntries(COMMITTED, remove_old_commits)


async def remove_results_of_days(past: Past) -> tuple[int, str]:
    """Drop the tables of large results whose records and histories are over."""
    return await remove_results(past.now, past.now - past.before), ""


async def _is_gone(hub: TaskHub, instance_id: str) -> bool:
    return await hub.read_instance(instance_id) is None


def list_of(orchestration: str) -> ListByTime:
    """Return the list of an orchestrator, whose entries are over when their instances are gone."""
    return ListByTime("durable_retry.hub.instance_lists:TABLE", orchestration, _is_gone)
