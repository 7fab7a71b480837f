"""Writing to the index of operations, whoever writes there in the app."""

from collections.abc import Iterable
from datetime import datetime

from durable_retry.storage import tables
from durable_retry_console.index.store import (
    TABLE,
    OperationEntry,
    OperationList,
    row_of_gap,
    rows_of_entries,
)


async def write_entries(name: str, held: Iterable[tuple[OperationList, OperationEntry]]) -> None:
    """Write entries under a name that is unique to this call."""
    for table, rows in rows_of_entries(name, held):
        await tables.transact(table, [("upsert", row) for row in rows])


async def write_since(name: str, since: datetime) -> None:
    """Say that a process may lose what it noted since an instant."""
    await tables.merge(TABLE, row_of_gap(name, since))
