"""Listing dead letters and taking them out of lists again.

The rows of one dead letter under one status are written in one transaction, and the counts of open ones with
them: there are all or none, and the counts are exactly those of the rows.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from engine.dead_letter import DeadLetterRecord, Status
from engine.instants import from_rfc3339, to_rfc3339
from stores import tables
from stores.dead_letter_keys import TABLE, Entry, due_key, list_prefix
from stores.dead_letter_tally import tally_changes, tally_lock

_TRIES: Final = 20


class IndexContendedError(Exception):
    """Other processes changed the same counts again and again; the same step may be made again."""


async def list_open(record: DeadLetterRecord) -> None:
    """List a new dead letter."""
    await _list_open(record)


async def place(record: DeadLetterRecord) -> None:
    """List a dead letter under its status, and under no other."""
    entry = Entry.of(record)
    if record.status is Status.OPEN:
        await _list_open(record)
    else:
        await _list_closed(record)
    for status in Status:
        if status is not record.status and await _is_listed(entry, status):
            await _unlist(record, status)


async def unlist_archived(entry: Entry, archived_at: datetime) -> None:
    """Take a removed dead letter out of the lists of archived ones."""
    await _delete(entry, Status.ARCHIVED)
    await drop_due(entry.id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Forget that a dead letter waits to go."""
    await tables.delete(TABLE, Status.ARCHIVED.value, due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[Entry, datetime]]:
    """Return dead letters archived before an instant, with that of each, the first to go first."""
    page = await tables.rows_between(
        TABLE, Status.ARCHIVED.value, after="d|", before=due_key(archived_before), limit=limit
    )
    return [(Entry.from_row(row), from_rfc3339(row["archived_at"])) for row in page.rows]


async def _list_open(record: DeadLetterRecord) -> None:
    rows = [_row(Status.OPEN, key, Entry.of(record)) for key in Entry.of(record).keys_under(Status.OPEN)]
    await _counted(record, [("create", row) for row in rows], step=1)


async def _list_closed(record: DeadLetterRecord) -> None:
    entry = Entry.of(record)
    rows = [_row(record.status, key, entry) for key in entry.keys_under(record.status)]
    if record.archived_at is not None:
        # It stays behind when the dead letter is restored; whoever finds it due finds that out.
        waiting = _row(record.status, due_key(record.archived_at, record.id), entry)
        rows.append({**waiting, "archived_at": to_rfc3339(record.archived_at)})
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def _unlist(record: DeadLetterRecord, status: Status) -> None:
    entry = Entry.of(record)
    if status is Status.OPEN:
        keys = entry.keys_under(status)
        await _counted(record, [("delete", _keys(status, key)) for key in keys], step=-1)
    else:
        await _delete(entry, status)


async def _delete(entry: Entry, status: Status) -> None:
    changes: list[tables.Change] = [("delete", _keys(status, key)) for key in entry.keys_under(status)]
    try:
        await tables.transact(TABLE, changes)
    except tables.StorageRefusedError:
        if await _is_listed(entry, status):
            raise


async def _counted(record: DeadLetterRecord, changes: Sequence[tables.Change], *, step: int) -> None:
    """Change the rows of an open dead letter and the counts together, unless that is done already.

    Args:
        record: Whose rows.
        changes: Creations or deletions; refused when they were made before.
        step: 1 or -1.
    """
    entry = Entry.of(record)
    async with tally_lock():
        for _ in range(_TRIES):
            counts = await tally_changes(record, step)
            try:
                if await tables.transact(TABLE, [*changes, *counts]):
                    return
            except tables.StorageRefusedError:
                pass  # Told apart below: the rows are as wanted, or somebody else counted meanwhile.
            if await _is_listed(entry, Status.OPEN) is (step > 0):
                return
    raise IndexContendedError(record.id)


async def _is_listed(entry: Entry, status: Status) -> bool:
    return await tables.read(TABLE, status.value, f"{list_prefix('all')}{entry.position}") is not None


def _row(status: Status, key: str, entry: Entry) -> tables.Row:
    return {**_keys(status, key), **entry.properties()}


def _keys(status: Status, key: str) -> tables.Row:
    return {"PartitionKey": status.value, "RowKey": key}
