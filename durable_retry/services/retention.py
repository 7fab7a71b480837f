"""Retention: delete what is past its time, step by step until nothing is left or the time of a run is up.

The next run continues where this one stopped.

    sent events     event row --> with the last one commit row and location --> entry in the list of sent
    events batches         rows of the batch --> entry in the list of batches
    dead letters    archived ones only: record --> list rows --> entry in the order of deletion
    metrics         minutes --> hours; then whole days
    steps           rows of an operation whose record is gone, and that no dead letter may replay

The list entry is deleted last, so the next step repeats what a crash interrupted. Failed events stay: a
person has to handle their dead letters.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import batched
from typing import Final

import grpc
from azure.core.exceptions import AzureError
from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import ORCHESTRATIONS, outbox_instance
from durable_retry.engine.dead_letters.record import Status
from durable_retry.engine.operations.idempotency import RecordState, state_of
from durable_retry.engine.outbox import EventState, outbox_id_of
from durable_retry.services.failures import sweep_failed, sweep_terminated
from durable_retry.services.metrics import ROWS_PER_STEP, fold_metrics, remove_old_metrics
from durable_retry.services.operation_index import add_lost, remove_old
from durable_retry.services.replay import finish_replay
from durable_retry.settings.configuration import function_name
from durable_retry.settings.maintenance import maintenance_settings
from durable_retry.stores import operation_writes, steps, tables
from durable_retry.stores.dead_letters.index import drop_due, due, unlist_archived
from durable_retry.stores.dead_letters.records import Intent, find_dead_letter, left_over, remove_archived
from durable_retry.stores.operation_writes import (
    marked_runs,
    remove_commit,
    remove_marker,
)
from durable_retry.stores.operations import is_over
from durable_retry.stores.outbox import events_of, find_event, remove_event
from durable_retry.stores.outbox_index import (
    CommitNote,
    EndedEvent,
    drop_commit_note,
    drop_entry,
    list_old_commits,
    list_older,
    remove_location,
)
from durable_retry.stores.task_hub import (
    ID_PREFIX,
    Selection,
    TaskHubUnavailableError,
    client_for,
    operations_page,
    purge_history,
    read_record,
    task_hub_unavailable,
)
from durable_retry.stores.workflows import CREATED, TABLE, age, find_batch

_log = logging.getLogger(__name__)

INTENTS_PER_RUN: Final = 200

SECONDS_OF_A_KIND: Final = 25.0
"""How long one run goes on with one kind of what is past its time: all kinds together stay below
`functionTimeout`, and a backlog of one does not keep the others waiting."""

_REMOVED_AT_ONCE: Final = 16
"""Requests to storage take their time on the way, and the account serves many at once."""

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent belongs to a change that is still under way."""


async def run_maintenance(hub: str, now: datetime) -> None:
    """Run every kind of retention, each until nothing is left for it or its time is up.

    Raises:
        TaskHubUnavailableError: Something is left for the next run.
    """
    settings = maintenance_settings()
    finished = await finish_left_over(hub, now)
    swept = await sweep_failed(hub, now)
    cancelled = await sweep_terminated(hub, now)
    old = now - MARKERS_KEPT
    markers = await _to_the_end(partial(remove_attempt_markers, hub, old), operation_writes.TABLE)
    forgotten = await _to_the_end(partial(remove_steps, hub, old, now), steps.TABLE)
    await fold_metrics(now, SECONDS_OF_A_KIND)
    if settings.metrics_for is not None:
        await _drained(partial(remove_old_metrics, now - settings.metrics_for), ROWS_PER_STEP)
    await add_lost(hub, now)
    removed = purged = batches = sent = commits = 0
    if settings.archived_for is not None:
        before = now - settings.archived_for
        removed = await _drained(partial(remove_archived_dead_letters, before), DEAD_LETTERS_PER_STEP)
    if settings.sent_for is not None:
        before = now - settings.sent_for
        sent = await _drained(partial(remove_sent_events, before), EVENTS_PER_STEP)
        commits = await _drained(partial(remove_old_commits, before), COMMITS_PER_STEP)
    if settings.history_for is not None:
        before = now - settings.history_for
        batches = await _drained(partial(remove_batches, before), BATCHES_PER_STEP)
        purged = await purge_histories(hub, before)
        await remove_old(hub, before)
    if swept:
        _log.error("%d operations whose orchestration failed are dead letters now", swept)
    counts = (finished, cancelled, removed, sent, commits, batches, markers, forgotten, purged)
    if any(counts):
        _log.info(
            "finished %d changes; completed %d terminated operations; removed %d dead letters, "
            "%d sent events, %d commits, %d batches, %d attempt markers, the steps of %d operations; "
            "purged %d histories",
            *counts,
        )


type _Step = Callable[[], Awaitable[int]]


async def _drained(step: _Step, most: int) -> int:
    """Repeat a step while it handles as many as it takes at once; return how many it handled in all."""
    until, handled = clock.monotonic_seconds() + SECONDS_OF_A_KIND, [await step()]
    while handled[-1] >= most and clock.monotonic_seconds() < until:
        handled.append(await step())
    return sum(handled)


async def _to_the_end(step: _Step, table: str) -> int:
    """Repeat a step until its table's cursor is back at the beginning; return how many it removed in all."""
    until, removed = clock.monotonic_seconds() + SECONDS_OF_A_KIND, await step()
    while clock.monotonic_seconds() < until and await tables.read_removal_cursor(table) != tables.FIRST:
        removed += await step()
    return removed


async def _all[T](remove: Callable[[T], Awaitable[None]], found: Iterable[T]) -> None:
    """Remove what was found, a few at once."""
    for few in batched(found, _REMOVED_AT_ONCE, strict=False):
        await asyncio.gather(*map(remove, few))


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


EVENTS_PER_STEP: Final = 200


async def remove_sent_events(created_before: datetime) -> int:
    """Delete sent events of operations that succeeded before an instant.

    The commit row is deleted with the last event: until then a repeated commit must find it.

    Returns:
        Number of entries handled; `EVENTS_PER_STEP` means that there may be more.
    """
    entries = await list_older(EventState.SENT, created_before, EVENTS_PER_STEP)
    await _all(_remove, entries)
    return len(entries)


async def _remove(entry: EndedEvent) -> None:
    stored = await find_event(entry.event_id, entry.location)
    if stored is not None and stored.event.state is EventState.SENT:
        await remove_event(stored)
    outbox_id = outbox_id_of(entry.event_id) or ""
    if not await events_of(outbox_id, entry.location):
        await remove_commit(outbox_id, entry.location)
        await remove_location(outbox_id)
    # An event that was made pending again is listed again when it ends.
    await drop_entry(entry)


COMMITS_PER_STEP: Final = 200


async def remove_old_commits(committed_before: datetime) -> int:
    """Delete commit rows without events from before an instant; what a handler wrote beside them stays.

    Returns:
        Number of rows handled; `COMMITS_PER_STEP` means that there may be more.
    """
    notes = await list_old_commits(committed_before, COMMITS_PER_STEP)
    await _all(_remove_commit, notes)
    return len(notes)


async def _remove_commit(note: CommitNote) -> None:
    await remove_commit(note.outbox_id, note.location)
    await drop_commit_note(note)


BATCHES_PER_STEP: Final = 20

_ROWS_AT_ONCE: Final = 100
_KEYS: Final = ("PartitionKey", "RowKey")


async def remove_batches(created_before: datetime) -> int:
    """Delete batches created before an instant that finished or were never accepted.

    The list entry is deleted last: the next step repeats what a crash interrupted.

    Returns:
        Number of deleted batches.
    """
    after = f"{age(to_rfc3339(created_before))}."
    page = await tables.rows_between(TABLE, CREATED, after=after, limit=BATCHES_PER_STEP)
    removed = 0
    for row in page.rows:
        batch_id = row["RowKey"].partition("-")[2]
        batch = await find_batch(batch_id)
        if batch is None or batch.finished_at is not None:
            await _remove_rows(batch_id)
            await tables.delete(TABLE, CREATED, row["RowKey"])
            removed += 1
    return removed


async def _remove_rows(batch_id: str) -> None:
    page = await tables.rows_between(TABLE, batch_id, only=_KEYS)
    # The row of the batch sorts before its items, so it is deleted in the first transaction: a batch that is
    # deleted half is not found any more.
    for rows in batched(page.rows, _ROWS_AT_ONCE, strict=False):
        await tables.transact(TABLE, [("delete", {name: row[name] for name in _KEYS}) for row in rows])


DEAD_LETTERS_PER_STEP: Final = 200

MARKERS_PER_STEP: Final = 1_000

MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than any execution of an attempt can be delayed: a marker must outlive all of them."""

_PURGE_SECONDS: Final = 30
"""For one purge of histories: far below `functionTimeout`; the next run continues."""

_PURGED_AT_ONCE: Final = 16

_PREFIXES: Final = (ID_PREFIX, outbox_instance(""), "batch-", "saga-", "replay-", "release-", "call-")
"""What the ids of this engine's instances begin with."""

_CLEAN_SECONDS: Final = 120
"""For one pass over the entities."""

_FINISHED: Final = [OrchestrationStatus.COMPLETED, OrchestrationStatus.TERMINATED]
"""A failed operation is purged with its dead letter, by `services.failures`."""


async def remove_archived_dead_letters(archived_before: datetime) -> int:
    """Delete dead letters that were archived before an instant, at most `DEAD_LETTERS_PER_STEP`.

    The record is deleted first, since lists do not show entries without a record; the due entry last, so the
    next run repeats what a crash interrupted.

    Returns:
        Number of dead letters handled.
    """
    waiting = await due(archived_before, DEAD_LETTERS_PER_STEP)
    for entry, archived_at in waiting:
        if await remove_archived(entry.id, archived_at):
            await unlist_archived(entry, archived_at)
        else:
            await drop_due(entry.id, archived_at)
    return len(waiting)


async def remove_attempt_markers(hub: str, marked_before: datetime) -> int:
    """Delete markers older than an instant; that of the last attempt only when the operation has ended.

    An operation may retry for ever, and an attempt is over when a later one has a marker.

    Reads at most `MARKERS_PER_STEP` and continues behind them the next time, so that operations that wait for
    weeks do not block the others.

    Returns:
        Number of deleted markers.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run begins at the same cursor.
    """
    runs, following = await marked_runs(
        await tables.read_removal_cursor(operation_writes.TABLE), MARKERS_PER_STEP
    )
    removed = 0
    for run in runs:
        old = run.before(marked_before)
        if len(old) == len(run.marked) and not await is_over(hub, run.operation_id):
            old.pop()
        await _all(partial(remove_marker, run.name), old)
        removed += len(old)
    await tables.write_removal_cursor(operation_writes.TABLE, following)
    return removed


STEPS_PER_STEP: Final = 1_000


async def remove_steps(hub: str, changed_before: datetime, now: datetime) -> int:
    """Delete the remembered steps of operations that need them no more.

    They live as long as the record of the operation's key, and as long as a dead letter that may be replayed
    with them. Reads at most `STEPS_PER_STEP` rows and continues behind them the next time.

    Returns:
        Number of operations whose steps were deleted.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run begins at the same cursor.
    """
    found, following = await steps.remembered_steps(
        await tables.read_removal_cursor(steps.TABLE), STEPS_PER_STEP
    )
    removed = 0
    for remembered in found:
        if remembered.changed_at < changed_before and not await _are_needed(hub, remembered, now):
            await steps.forget_steps(remembered)
            removed += 1
    await tables.write_removal_cursor(steps.TABLE, following)
    return removed


async def _are_needed(hub: str, remembered: steps.RememberedSteps, now: datetime) -> bool:
    record = await read_record(hub, remembered.operation_id)
    if state_of(record, now) is not RecordState.ABSENT or not await is_over(hub, remembered.operation_id):
        return True
    return any([await _may_be_replayed(each) for each in remembered.dead_letter_ids])


async def _may_be_replayed(dead_letter_id: str) -> bool:
    """Whether a dead letter, or the last one that its replays became, may be replayed again."""
    found = await find_dead_letter(dead_letter_id)
    while found is not None and found.status is Status.REPLAYED:
        following = found.replays[-1].dead_letter_id
        if following is None:
            return False
        found = await find_dead_letter(following)
    return found is not None


async def purge_histories(hub: str, started_before: datetime) -> int:
    """Purge finished orchestrations of this engine that started before an instant, for 30 s at most.

    The task hub's own purge by time takes no names: it would purge those of the app around the engine too.

    Returns:
        How many.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    purged = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_PURGE_SECONDS):
            for prefix in _PREFIXES:
                failed = () if prefix == ID_PREFIX else (OrchestrationStatus.FAILED,)
                wanted = Selection(
                    runtime_statuses=(*_FINISHED, *failed), created_before=started_before, prefix=prefix
                )
                async for ids in _finished_ids(hub, wanted):
                    await asyncio.gather(*(purge_history(hub, each) for each in ids))
                    purged += len(ids)
    return purged


async def _finished_ids(hub: str, wanted: Selection) -> AsyncIterator[tuple[str, ...]]:
    """Look up orchestrations of this engine, a few ids at a time."""
    names = {function_name(name) for name in ORCHESTRATIONS}
    token = None
    while True:
        page = await operations_page(hub, wanted, token)
        ids = (each.instanceId for each in page.instances if each.name in names)
        for few in batched(ids, _PURGED_AT_ONCE, strict=False):
            yield few
        token = page.following
        if token is None:
            return


async def clean_expired_records(hub: str) -> int:
    """Delete the entities whose idempotency record has expired, for two minutes at most.

    Returns:
        Their number; 0 when the time was up before the end of the list.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        async with asyncio.timeout(_CLEAN_SECONDS):
            result = await client.clean_entity_storage()
    except TimeoutError:
        return 0
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    return result.empty_entities_removed
