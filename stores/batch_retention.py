"""Removing finished batches after their time, a bounded step at a time."""

from datetime import datetime
from itertools import batched
from typing import Final

from engine.instants import to_rfc3339
from stores import tables
from stores.batches import CREATED, TABLE, age, find_batch

BATCHES_PER_STEP: Final = 20

_ROWS_AT_ONCE: Final = 100
_KEYS: Final = ("PartitionKey", "RowKey")


async def remove_batches(created_before: datetime) -> int:
    """Remove batches that finished, or were never accepted, and were created before an instant.

    The name in the list goes last: a crash in between is made up by the next step.

    Returns:
        How many were removed.
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
    # The row of the batch sorts before those of its items, and so goes with the first of them: what is half
    # removed is no batch any more.
    for rows in batched(page.rows, _ROWS_AT_ONCE, strict=False):
        await tables.transact(TABLE, [("delete", {name: row[name] for name in _KEYS}) for row in rows])
