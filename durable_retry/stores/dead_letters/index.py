"""Write and delete the index rows of dead letters.

All rows of one dead letter under one status are written in one transaction, together with the counters of
open ones. So the rows exist all or not at all, and the counters match them exactly.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status
from durable_retry.stores.dead_letters.counters import counter_changes, counter_lock
from durable_retry.stores.dead_letters.keys import TABLE, IndexEntry, due_key, list_prefix
from durable_retry.stores.storage import tables

_TRIES: Final = 20


class IndexContendedError(Exception):
    """Other processes kept changing the same counters. The step is safe to repeat."""


async def list_open(record: DeadLetterRecord) -> None:
    """List a new dead letter."""
    await _list_open(record)


async def move_to_status(record: DeadLetterRecord) -> None:
    """List a dead letter under its status and remove it from the lists of the others."""
    entry = IndexEntry.of(record)
    if record.status is Status.OPEN:
        await _list_open(record)
    else:
        await _list_closed(record)
    for status in Status:
        if status is not record.status and await _is_listed(entry, status):
            await _unlist(record, status)


async def unlist_archived(entry: IndexEntry, archived_at: datetime) -> None:
    """Remove a deleted dead letter from the lists of archived ones."""
    await _delete(entry, Status.ARCHIVED)
    await drop_due(entry.id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Remove a dead letter from the queue of those to delete."""
    await tables.delete(TABLE, Status.ARCHIVED.value, due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[IndexEntry, datetime]]:
    """Return dead letters archived before an instant with the archiving time of each, the oldest first."""
    page = await tables.rows_between(
        TABLE, Status.ARCHIVED.value, after="d|", before=due_key(archived_before), limit=limit
    )
    return [(IndexEntry.from_row(row), from_rfc3339(row["archived_at"])) for row in page.rows]


async def _list_open(record: DeadLetterRecord) -> None:
    rows = [
        _row(Status.OPEN, key, IndexEntry.of(record)) for key in IndexEntry.of(record).keys_under(Status.OPEN)
    ]
    await _counted(record, [("create", row) for row in rows], step=1)


async def _list_closed(record: DeadLetterRecord) -> None:
    entry = IndexEntry.of(record)
    rows = [_row(record.status, key, entry) for key in entry.keys_under(record.status)]
    if record.archived_at is not None:
        # Not removed when the dead letter is restored; the removal compares the archiving time.
        waiting = _row(record.status, due_key(record.archived_at, record.id), entry)
        rows.append({**waiting, "archived_at": to_rfc3339(record.archived_at)})
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def _unlist(record: DeadLetterRecord, status: Status) -> None:
    entry = IndexEntry.of(record)
    if status is Status.OPEN:
        keys = entry.keys_under(status)
        await _counted(record, [("delete", _keys(status, key)) for key in keys], step=-1)
    else:
        await _delete(entry, status)


async def _delete(entry: IndexEntry, status: Status) -> None:
    changes: list[tables.Change] = [("delete", _keys(status, key)) for key in entry.keys_under(status)]
    try:
        await tables.transact(TABLE, changes)
    except tables.StorageRefusedError:
        if await _is_listed(entry, status):
            raise


async def _counted(record: DeadLetterRecord, changes: Sequence[tables.Change], *, step: int) -> None:
    """Change the rows of an open dead letter and the counters in one transaction. Idempotent.

    Args:
        record: Whose rows.
        changes: Creations or deletions; storage refuses them when they were made before.
        step: 1 or -1.
    """
    entry = IndexEntry.of(record)
    async with counter_lock():
        for _ in range(_TRIES):
            counts = await counter_changes(record, step)
            try:
                if await tables.transact(TABLE, [*changes, *counts]):
                    return
            except tables.StorageRefusedError:
                pass  # Either done before, or another process changed the counters; checked below.
            if await _is_listed(entry, Status.OPEN) is (step > 0):
                return
    raise IndexContendedError(record.id)


async def _is_listed(entry: IndexEntry, status: Status) -> bool:
    return await tables.read(TABLE, status.value, f"{list_prefix('all')}{entry.position}") is not None


def _row(status: Status, key: str, entry: IndexEntry) -> tables.Row:
    return {**_keys(status, key), **entry.properties()}


def _keys(status: Status, key: str) -> tables.Row:
    return {"PartitionKey": status.value, "RowKey": key}
