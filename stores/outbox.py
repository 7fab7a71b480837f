"""The outbox rows: events that were committed with a success, and what became of each.

    commit ──> pending ──publish──> sent        a resend makes a sent or failed event pending again
                       └─give up──> failed

Every change names the version of the row that it was decided on. Two executions of the same step can both
send an event; the row says it once, and the receiver sees one id.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from engine.instants import from_rfc3339, optional_from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.outbox import EventState, StoredEvent, event_id_for, number_of, operation_id_of
from engine.trace_context import TraceContext
from stores import tables
from stores.outbox_index import Note, drop_ended, drop_note, list_notes, note_ended, note_pending, read_note
from stores.outbox_place import Place, noted_place, own_place

_ROW_PREFIX: Final = "outbox-"

_COMMIT_OVER: Final = timedelta(hours=1)
"""A note without events is that of a commit which is under way, or never came to be. A commit takes seconds
after its note, and notes again whenever it is repeated."""

_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """An event with its row's place and version."""

    event: StoredEvent
    place: Place
    etag: str


class NoSuchEventError(LookupError):
    """No event of this id was ever committed, or it was cleaned away."""


def row_of(place: Place, event: StoredEvent) -> tables.Row:
    """Return the row of an event."""
    return {
        "PartitionKey": place.partition_key,
        "RowKey": f"{_ROW_PREFIX}{event.event_id}",
        "operation_id": operation_id_of(event.event_id) or "",
        "event_id": event.event_id,
        "state": event.state.value,
        "created_at": to_rfc3339(event.created_at),
        "pending_since": to_rfc3339(event.pending_since),
        "sent_at": optional_to_rfc3339(event.sent_at) or "",
        "detail": event.detail or "",
        "correlation_id": event.correlation_id or "",
        **({} if event.trace is None else event.trace.to_json()),
        **tables.packed("event", json.dumps(dict(event.event))),
    }


def new_event(
    operation_id: str,
    number: int,
    event: Mapping[str, Any],
    correlation_id: str | None,
    now: datetime,
    *,
    trace: TraceContext | None = None,
) -> StoredEvent:
    """Return a pending event.

    Args:
        operation_id: Whose.
        number: Its place among the operation's events, from 1.
        event: The JSON form of `engine.models.Event`.
        correlation_id: The operation's.
        now: Aware UTC instant of the commit.
        trace: The operation's.
    """
    return StoredEvent(
        event_id=event_id_for(operation_id, number),
        event=event,
        state=EventState.PENDING,
        created_at=now,
        pending_since=now,
        correlation_id=correlation_id,
        trace=trace,
    )


async def events_of(operation_id: str, place: Place | None = None) -> list[StoredEvent]:
    """Return an operation's events in their order, whatever their state.

    Args:
        operation_id: Whose.
        place: Where they stand; None means to find out.
    """
    found = await _events_at(operation_id, place or own_place(operation_id))
    if found or place is not None:
        return found
    noted = await noted_place(operation_id)
    return [] if noted == own_place(operation_id) else await _events_at(operation_id, noted)


async def find_event(event_id: str, place: Place | None = None) -> Kept | None:
    """Return an event with its version, or None when there is none.

    Args:
        event_id: Which.
        place: Where it stands; None means to find out.
    """
    operation_id = operation_id_of(event_id)
    if operation_id is None:
        return None
    found = await _event_at(event_id, place or own_place(operation_id))
    if found is not None or place is not None:
        return found
    return await _event_at(event_id, await noted_place(operation_id))


async def pending_of(operation_id: str, now: datetime) -> tuple[Place, list[StoredEvent]]:
    """Return the events that an operation has to send; when there are none its note goes.

    Args:
        operation_id: Whose.
        now: Aware UTC instant.
    """
    note = await read_note(operation_id)
    place = await noted_place(operation_id) if note is None else note.place
    events = await events_of(operation_id, place)
    pending = [event for event in events if event.state is EventState.PENDING]
    if note is not None and not pending and (events or note.noted_at < now - _COMMIT_OVER):
        await drop_note(note)
    return place, pending


async def list_pending(limit: int, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return documents of pending events by operation, at the cost of what is pending.

    Args:
        limit: The most events to return.
        cursor: The last event's id of the page before; None to begin.
    """
    first, seen = ("", 0) if cursor is None else (operation_id_of(cursor) or "", number_of(cursor))
    items: list[dict[str, Any]] = []
    following: str | None = None
    while len(items) <= limit:
        notes, following = await list_notes(limit + 1, following, first=first)
        for note, events in zip(notes, await asyncio.gather(*map(_pending_at, notes)), strict=True):
            after = seen if note.operation_id == first else 0
            items.extend(event.to_json() for event in events if number_of(event.event_id) > after)
        if following is None:
            break
    more = len(items) > limit
    return items[:limit], items[limit - 1]["event_id"] if more else None


async def mark_sent(kept: Kept, now: datetime) -> None:
    """Say that an event was sent, whatever its row says of it by now: it was.

    Args:
        kept: As it stood before it was sent.
        now: Aware UTC instant.

    Raises:
        NoSuchEventError: Its row is gone.
    """
    while kept.event.state is not EventState.SENT:
        sent = replace(kept.event, state=EventState.SENT, sent_at=now, detail=None)
        if await _changed(kept, sent):
            await _list(sent, kept.place, was=kept.event.state)
            return
        kept = await _anew(kept)
    await note_ended(kept.event, kept.place)


async def mark_failed(kept: Kept, detail: str) -> None:
    """Say that an event cannot be delivered; one that was sent after all stays so.

    Args:
        kept: As it stood when that was found.
        detail: Why, for a person.

    Raises:
        NoSuchEventError: Its row is gone.
    """
    while kept.event.state is not EventState.SENT:
        failed = replace(kept.event, state=EventState.FAILED, detail=detail[:_DETAIL_CHARS])
        if kept.event.state is EventState.FAILED or await _changed(kept, failed):
            await _list(failed, kept.place, was=kept.event.state)
            return
        kept = await _anew(kept)


async def mark_pending(event_id: str, now: datetime) -> StoredEvent:
    """Make an event pending again, to be sent once more under the id it has always had.

    Its note is written before and after: what finishes at this very moment may take the first one away.

    Raises:
        NoSuchEventError: It has no row.
    """
    while True:
        kept = await find_event(event_id)
        if kept is None:
            raise NoSuchEventError(event_id)
        operation_id = operation_id_of(event_id) or ""
        await note_pending(operation_id, kept.place, now)
        if kept.event.state is EventState.PENDING:
            return kept.event
        pending = replace(kept.event, state=EventState.PENDING, pending_since=now, sent_at=None, detail=None)
        if await _changed(kept, pending):
            await note_pending(operation_id, kept.place, now)
            await drop_ended(pending)
            return pending


async def _pending_at(note: Note) -> list[StoredEvent]:
    events = await _events_at(note.operation_id, note.place)
    return [event for event in events if event.state is EventState.PENDING]


async def remove_event(kept: Kept) -> None:
    """Remove an event's row, unless it has changed since it was read."""
    row_key = f"{_ROW_PREFIX}{kept.event.event_id}"
    await tables.delete_version(kept.place.table, kept.place.partition_key, row_key, kept.etag)


async def _list(event: StoredEvent, place: Place, *, was: EventState) -> None:
    """List an event where it now belongs; one that ended before may still stand elsewhere."""
    if was is EventState.FAILED or event.pending_since != event.created_at:
        await drop_ended(event)
    await note_ended(event, place)


async def _changed(kept: Kept, event: StoredEvent) -> bool:
    return await tables.merge_version(kept.place.table, _state_of(kept.place, event), kept.etag)


def _state_of(place: Place, event: StoredEvent) -> tables.Row:
    """Return the part of a row that ever changes, and its keys."""
    names = ("PartitionKey", "RowKey", "state", "pending_since", "sent_at", "detail")
    row = row_of(place, event)
    return {name: row[name] for name in names}


async def _anew(kept: Kept) -> Kept:
    found = await find_event(kept.event.event_id, kept.place)
    if found is None:
        raise NoSuchEventError(kept.event.event_id)
    return found


async def _event_at(event_id: str, place: Place) -> Kept | None:
    found = await tables.read_version(place.table, place.partition_key, f"{_ROW_PREFIX}{event_id}")
    return None if found is None else Kept(_event(found.row), place, found.etag)


async def _events_at(operation_id: str, place: Place) -> list[StoredEvent]:
    begin, end = f"{_ROW_PREFIX}{operation_id}.", f"{_ROW_PREFIX}{operation_id}/"
    page = await tables.rows_between(place.table, place.partition_key, after=begin, before=end)
    return sorted(map(_event, page.rows), key=lambda event: number_of(event.event_id))


def _event(row: tables.Row) -> StoredEvent:
    return StoredEvent(
        event_id=row["event_id"],
        event=json.loads(tables.unpacked("event", row)),
        state=EventState(row["state"]),
        created_at=from_rfc3339(row["created_at"]),
        pending_since=from_rfc3339(row.get("pending_since") or row["created_at"]),
        sent_at=optional_from_rfc3339(row.get("sent_at") or None),
        detail=row.get("detail") or None,
        correlation_id=row.get("correlation_id") or None,
        trace=TraceContext.from_json(row),
    )
