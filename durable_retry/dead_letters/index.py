"""The lists of dead letters.

Each status has a partition. A dead letter has its rows in the partition of its status.

    open, replayed, archived     the partitions of lists
    n|<newest first><id>         every one of them, with what filters and searches look at
    o|<oldest first><id>         open ones, the oldest first
    d|<archived at><id>          archived ones, the next to delete first

The rows of one status are written in one transaction. They repeat parts of `DeadLetters`, which is
authoritative: see docs/decisions/dead-letter-tables.md.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from durable_retry.base.json_forms import (
    DIGITS,
    from_rfc3339,
    newest_first,
    oldest_first,
    to_rfc3339,
)
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry.storage import contents, tables

TABLE: Final = "DeadLetterIndex"

NEWEST_FIRST: Final = "n|"
OLDEST_FIRST: Final = "o|"
DUE: Final = "d|"
AFTER_ALL: Final = "~"
"""Sorts after every character that a key can contain."""


async def list_record(record: KeptDeadLetter) -> None:
    """List a dead letter under its status. Idempotent."""
    columns = {"created_at": to_rfc3339(record.created_at), **record.listed}
    keys = list(_list_keys(record.status, record.id, record.created_at))
    if record.archived_at is not None:
        # This row stays when the dead letter is restored; the removal compares the archiving time.
        keys.append(_due_key(record.archived_at, record.id))
        columns["archived_at"] = to_rfc3339(record.archived_at)
    rows = [{"PartitionKey": record.status.value, "RowKey": key, **columns} for key in keys]
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def move_to_status(record: KeptDeadLetter) -> None:
    """List a dead letter under its status and remove it from the lists of the others."""
    await list_record(record)
    others = [status for status in Status if status is not record.status]
    await _unlist(others, record.id, record.created_at)


async def unlist_archived(dead_letter_id: str, created_at: datetime, archived_at: datetime) -> None:
    """Remove a deleted dead letter from the lists of archived ones."""
    await _unlist([Status.ARCHIVED], dead_letter_id, created_at)
    await drop_due(dead_letter_id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Remove a dead letter from the queue of those to delete."""
    await tables.delete(TABLE, Status.ARCHIVED, _due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[str, datetime, datetime]]:
    """Return id, creation and archiving time of dead letters archived before an instant, the oldest first."""
    page = await tables.rows_between(
        TABLE, Status.ARCHIVED, after=DUE, before=_due_key(archived_before), limit=limit
    )
    return contents.readable(
        TABLE,
        page.rows,
        lambda row: (
            id_at(row["RowKey"].removeprefix(DUE)),
            from_rfc3339(row["created_at"]),
            from_rfc3339(row["archived_at"]),
        ),
    )


def id_at(position: str) -> str:
    """Return the id of the dead letter at a position of a list, which is the row key behind its prefix."""
    return position[DIGITS:]


async def _unlist(statuses: Iterable[Status], dead_letter_id: str, created_at: datetime) -> None:
    rows = [
        {"PartitionKey": status.value, "RowKey": key}
        for status in statuses
        for key in _list_keys(status, dead_letter_id, created_at)
    ]
    await tables.delete_rows(TABLE, rows)


def _list_keys(status: Status, dead_letter_id: str, created_at: datetime) -> Iterator[str]:
    yield f"{NEWEST_FIRST}{newest_first(created_at)}{dead_letter_id}"
    if status is Status.OPEN:
        yield f"{OLDEST_FIRST}{oldest_first(created_at)}{dead_letter_id}"


def _due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    return f"{DUE}{oldest_first(archived_at)}{dead_letter_id}"
