"""The index of the outbox: what is pending, and what was sent or failed, each found at the cost of itself.

    PK `pending`          RK <operation id>            the operation may have events to send: a note
    PK `sent` | `failed`  RK <newest first><event id>  one per event that has ended

A note is written before the events it stands for, and goes after the last of them has ended: there may be a
note too many, never one too few. An event's own row is the truth; an entry here may be a moment older.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from engine.instants import from_rfc3339, to_rfc3339
from engine.outbox import EventState, StoredEvent
from stores import tables
from stores.outbox_place import Place

INDEX_TABLE: Final = "OutboxIndex"

PENDING_PARTITION: Final = EventState.PENDING.value
_STATE_PARTITION: Final = "sweeper"
_CURSOR_KEY: Final = "cursor"

_LAST_INSTANT_US: Final = 10**17
"""Microseconds since 1970 in the year 5138: subtracted from, so that the newest row sorts first."""


@dataclass(frozen=True, slots=True)
class Note:
    """An operation that may have pending events.

    Attributes:
        operation_id: Which.
        place: Where its rows stand.
        noted_at: When it was last noted.
        etag: Of this version of the note.
    """

    operation_id: str
    place: Place
    noted_at: datetime
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event in the list of sent or of failed events."""

    state: EventState
    row_key: str
    event_id: str
    place: Place


async def note_pending(operation_id: str, place: Place, now: datetime) -> None:
    """Note that an operation is about to have pending events; a repeated note is a new version."""
    keys = {"PartitionKey": PENDING_PARTITION, "RowKey": operation_id}
    await tables.merge(INDEX_TABLE, keys | place.to_json() | {"noted_at": to_rfc3339(now)})


async def read_note(operation_id: str) -> Note | None:
    """Return an operation's note, or None."""
    found = await tables.read_version(INDEX_TABLE, PENDING_PARTITION, operation_id)
    return None if found is None else _note(found.row, found.etag)


async def drop_note(note: Note) -> bool:
    """Remove a note; False when the operation was noted again since."""
    return await tables.delete_version(INDEX_TABLE, PENDING_PARTITION, note.operation_id, note.etag)


async def list_notes(limit: int, cursor: str | None, *, first: str = "") -> tuple[list[Note], str | None]:
    """Return notes by operation id, and the cursor of the next ones (None at the end).

    Args:
        limit: The most notes to return.
        cursor: From the page before; None to begin.
        first: Where to begin: the operation's own note is the first one.
    """
    page = await tables.rows_between(INDEX_TABLE, PENDING_PARTITION, after=first, limit=limit, cursor=cursor)
    return [_note(row) for row in page.rows], page.cursor


async def note_ended(event: StoredEvent, place: Place) -> None:
    """List an event among the sent or the failed ones; again and again is the same as once."""
    await tables.merge(INDEX_TABLE, ended_row(event, place))


def ended_row(event: StoredEvent, place: Place) -> tables.Row:
    """Return the entry of an event that has ended."""
    keys = {"PartitionKey": event.state.value, "RowKey": _ended_key(event)}
    return keys | place.to_json() | tables.packed("document", json.dumps(event.to_json()))


async def drop_ended(event: StoredEvent) -> None:
    """Take an event off the sent and the failed ones."""
    for state in (EventState.SENT, EventState.FAILED):
        await tables.delete(INDEX_TABLE, state.value, _ended_key(event))


async def list_ended(
    state: EventState, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return documents of sent or failed events, the newest operation first."""
    page = await tables.rows_between(INDEX_TABLE, state.value, limit=limit, cursor=cursor)
    return [json.loads(tables.unpacked("document", row)) for row in page.rows], page.cursor


async def list_older(state: EventState, created_before: datetime, limit: int) -> list[Entry]:
    """Return entries of events that were created before an instant, at their own cost."""
    page = await tables.rows_between(INDEX_TABLE, state.value, after=f"{_age(created_before)}.", limit=limit)
    return [
        Entry(state, row["RowKey"], row["RowKey"].partition("-")[2], Place.from_json(row))
        for row in page.rows
    ]


async def drop_entry(entry: Entry) -> None:
    """Take an entry off its list."""
    await tables.delete(INDEX_TABLE, entry.state.value, entry.row_key)


async def read_sweep_cursor() -> str | None:
    """Return where the last sweep stopped; None when it saw everything."""
    row = await tables.read(INDEX_TABLE, _STATE_PARTITION, _CURSOR_KEY)
    return None if row is None else row.get("cursor") or None


async def keep_sweep_cursor(cursor: str | None) -> None:
    """Remember where a sweep stopped."""
    keys = {"PartitionKey": _STATE_PARTITION, "RowKey": _CURSOR_KEY}
    await tables.merge(INDEX_TABLE, keys | {"cursor": cursor or ""})


def _note(row: tables.Row, etag: str = "") -> Note:
    return Note(row["RowKey"], Place.from_json(row), from_rfc3339(row["noted_at"]), etag)


def _ended_key(event: StoredEvent) -> str:
    """Sort by creation, the newest first: it never changes, so that a repeated entry is the same row."""
    return f"{_age(event.created_at)}-{event.event_id}"


def _age(created_at: datetime) -> str:
    """Return what sorts after everything younger."""
    return f"{_LAST_INSTANT_US - round(created_at.timestamp() * 1_000_000):017d}"
