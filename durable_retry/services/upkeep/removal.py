"""Retention: what each step removes of what is past its time. `services.upkeep.rounds` repeats the steps.

    markers         of attempts, when a later attempt was made or the operation has ended
    steps           rows of an operation whose record is gone, and that no dead letter may replay
    dead letters    archived ones only: record --> list rows --> entry in the order of deletion
    sent events     rows of the run --> entry in the list of sent
    commits         commit row --> entry in the list of commits
    batches         rows of the batch --> entry in the list of batches
    lists           rows of a bulk action's items --> entry in the list of bulk actions; and other lists

The list entry is deleted last, so the next step repeats what a crash interrupted. Failed events stay: a
person has to handle their dead letters.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import batched, groupby
from typing import Final

from durable_retry.engine.base.instants import age
from durable_retry.engine.base.json_forms import UnreadableRecordError
from durable_retry.engine.base.names import EventState, outbox_instance
from durable_retry.engine.dead_letters.record import Status
from durable_retry.engine.operations.idempotency import is_live
from durable_retry.engine.outbox import outbox_id_of
from durable_retry.stores.dead_letters.index import drop_due, due, unlist_archived
from durable_retry.stores.dead_letters.records import find_dead_letter, remove_archived
from durable_retry.stores.operations import steps
from durable_retry.stores.operations.key_record import read_record
from durable_retry.stores.operations.markers import OwnedMarkers, owners_of_markers, remove_markers
from durable_retry.stores.operations.status import has_ended
from durable_retry.stores.operations.writes import remove_commit
from durable_retry.stores.outbox.events import events_of, find_event, remove_event, remove_sent_run
from durable_retry.stores.outbox.index import (
    CommitNote,
    EndedEvent,
    drop_entries,
    list_old_commits,
    list_older,
    own_location,
    remove_location,
)
from durable_retry.stores.storage import rounds, tables
from durable_retry.stores.task_hub import TaskHub
from durable_retry.stores.workflows import BULK_ACTION, CREATED, LISTS_TABLE, SAGA, TABLE, find_batch

# Requests to storage take their time on the way, and the account serves many at once.
_REMOVED_AT_ONCE: Final = 16


async def _remove_few_at_once[T](remove: Callable[[T], Awaitable[int]], found: Iterable[T]) -> int:
    """Remove what was found, a few at once; return how many there were in all."""
    total = 0
    for few in batched(found, _REMOVED_AT_ONCE, strict=False):
        total += sum(await asyncio.gather(*map(remove, few)))
    return total


MARKERS_PER_STEP: Final = 1_000

MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than any execution of an attempt can be delayed: a marker must outlive all of them."""


async def remove_attempt_markers(
    hub: TaskHub, marked_before: datetime, after: str, before: str | None = None
) -> tuple[int, str]:
    """Delete markers older than an instant; the last of an owner only when the operation has ended.

    An operation may retry for ever, and an attempt is over when a later one, or the commit, has a marker.

    Returns:
        Number of deleted markers, and the next `after`, as `rounds.partitions_after` returns it. At most
        `MARKERS_PER_STEP` are read, so that operations that wait for weeks do not block the others.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """

    async def remove(of: OwnedMarkers) -> int:
        old = of.before(marked_before)
        if len(old) == len(of.marked) and not await has_ended(hub, of.operation_id):
            old.pop()
        await remove_markers(of.owner, old)
        return len(old)

    owners, following = await owners_of_markers(after, MARKERS_PER_STEP, before)
    return await _remove_few_at_once(remove, owners), following


STEPS_PER_STEP: Final = 1_000


async def remove_steps(
    hub: TaskHub, changed_before: datetime, now: datetime, after: str, before: str | None = None
) -> tuple[int, str]:
    """Delete the remembered steps of operations that need them no more.

    They live as long as the record of the operation's key, and as long as a dead letter that may be replayed
    with them.

    Returns:
        Number of operations whose steps were deleted, and the next `after`. At most `STEPS_PER_STEP` rows
        are read.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """

    async def remove(remembered: steps.RememberedSteps) -> int:
        if remembered.changed_at >= changed_before or await _are_steps_needed(hub, remembered, now):
            return 0
        await steps.forget_steps(remembered)
        return 1

    found, following = await steps.remembered_steps(after, STEPS_PER_STEP, before)
    return await _remove_few_at_once(remove, found), following


async def _are_steps_needed(hub: TaskHub, remembered: steps.RememberedSteps, now: datetime) -> bool:
    try:
        record = await read_record(hub, remembered.operation_id)
    except UnreadableRecordError:
        return True
    if is_live(record, now) or not await has_ended(hub, remembered.operation_id):
        return True
    return any([await _may_be_replayed(each) for each in remembered.dead_letter_ids])


async def _may_be_replayed(dead_letter_id: str) -> bool:
    """Whether a dead letter, or the last one that its replays became, may be replayed again."""
    found = await find_dead_letter(dead_letter_id)
    while found is not None and found.unreadable is None and found.status is Status.REPLAYED:
        following = found.replays[-1].dead_letter_id
        if following is None:
            return False
        found = await find_dead_letter(following)
    return found is not None


DEAD_LETTERS_PER_STEP: Final = 200


async def remove_archived_dead_letters(archived_before: datetime) -> int:
    """Delete dead letters archived before an instant, `DEAD_LETTERS_PER_STEP` at most; return how many.

    The record is deleted first, since lists do not show entries without a record; the due entry last, so the
    next run repeats what a crash interrupted.
    """
    return await _remove_few_at_once(_remove_archived, await due(archived_before, DEAD_LETTERS_PER_STEP))


async def _remove_archived(waiting: tuple[str, datetime, datetime]) -> int:
    dead_letter_id, created_at, archived_at = waiting
    if await remove_archived(dead_letter_id, archived_at):
        await unlist_archived(dead_letter_id, created_at, archived_at)
    else:
        await drop_due(dead_letter_id, archived_at)
    return 1


EVENTS_PER_STEP: Final = 400


async def remove_sent_events(
    hub: TaskHub, created_before: datetime, shard: int, purged_before: datetime | None
) -> int:
    """Delete sent events of operations that succeeded before an instant.

    The commit row is deleted with the last event: until then a repeated commit must find it.

    Args:
        purged_before: The history of their sending is purged too, if it began before this instant; None: not.

    Returns:
        Number of entries handled; `EVENTS_PER_STEP` means that there may be more.
    """
    entries = await list_older(EventState.SENT, created_before, EVENTS_PER_STEP, shard)

    async def remove(run: tuple[str, Sequence[EndedEvent]]) -> int:
        await _remove_sent_of_run(*run)
        if purged_before is not None:
            sending = await hub.read_instance(outbox_instance(run[0]))
            if sending is not None:
                await hub.purge_instance(sending, purged_before)
        return len(run[1])

    # Events of one run have one instant, so their entries are neighbours.
    by_run = groupby(entries, lambda entry: outbox_id_of(entry.event_id) or "")
    removed = await _remove_few_at_once(remove, [(outbox_id, list(some)) for outbox_id, some in by_run])
    # An event that was made pending again is listed again when it ends.
    await drop_entries(entries)
    return removed


async def _remove_sent_of_run(outbox_id: str, entries: Sequence[EndedEvent]) -> None:
    location = entries[0].location
    if location == own_location(outbox_id) and await remove_sent_run(outbox_id):
        return
    for entry in entries:
        stored = await find_event(entry.event_id, entry.location)
        if stored is not None and stored.event.state is EventState.SENT:
            await remove_event(stored)
    if not await events_of(outbox_id, location):
        await remove_commit(outbox_id, location)
        await remove_location(outbox_id)


COMMITS_PER_STEP: Final = 400


async def remove_old_commits(committed_before: datetime, shard: int) -> int:
    """Delete commit rows without events from before an instant; what a handler wrote beside them stays."""

    async def remove(note: CommitNote) -> int:
        await remove_commit(note.outbox_id, note.location)
        return 1

    notes = await list_old_commits(committed_before, COMMITS_PER_STEP, shard)
    removed = await _remove_few_at_once(remove, notes)
    await drop_entries(notes)
    return removed


BATCHES_PER_STEP: Final = 20


async def remove_batches(created_before: datetime, after: str) -> tuple[int, str]:
    """Delete batches created before an instant that finished or were never accepted.

    The list entry is deleted last: the next round repeats what a crash interrupted.

    Args:
        after: Where the step before ended; `rounds.FIRST` for the first.
    """

    async def remove(row: tables.Row) -> int:
        batch_id = row["RowKey"].partition("-")[2]
        batch = await find_batch(batch_id)
        if batch is not None and batch.finished_at is None:
            return 0
        await _remove_rows(TABLE, batch_id)
        await tables.delete(TABLE, CREATED, row["RowKey"])
        return 1

    page = await _page_of_older(TABLE, CREATED, created_before, after)
    return await _remove_few_at_once(remove, page.rows), page.cursor or rounds.FIRST


async def remove_listed(hub: TaskHub, kind: str, created_before: datetime, after: str) -> tuple[int, str]:
    """Delete entries of a list from before an instant whose instances are gone, and what is kept of these.

    Args:
        after: Where the step before ended; `rounds.FIRST` for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """

    async def remove(row: tables.Row) -> int:
        instance_id = row["RowKey"].partition("-")[2]
        if await hub.read_instance(instance_id) is not None:
            return 0
        if kind in {BULK_ACTION, SAGA}:
            await _remove_rows(LISTS_TABLE, instance_id)
        await tables.delete(LISTS_TABLE, kind, row["RowKey"])
        return 1

    page = await _page_of_older(LISTS_TABLE, kind, created_before, after)
    return await _remove_few_at_once(remove, page.rows), page.cursor or rounds.FIRST


async def _page_of_older(table: str, partition: str, created_before: datetime, after: str) -> tables.Page:
    oldest = f"{age(created_before)}."
    cursor = None if after == rounds.FIRST else max(after, oldest)
    return await tables.rows_between(table, partition, after=oldest, cursor=cursor, limit=BATCHES_PER_STEP)


async def _remove_rows(table: str, partition: str) -> None:
    page = await tables.rows_between(table, partition, only=tables.KEYS)
    # The row of the batch sorts before its items, so it is deleted in the first transaction: a batch that is
    # deleted half is not found any more.
    for rows in batched(page.rows, tables.MOST_CHANGES, strict=False):
        await tables.transact(table, [("delete", tables.keys_of(row)) for row in rows])
