"""Locations and index of outbox rows.

A transaction cannot span partitions, so the events of a handler with table writes are in the partition of its
writes. All others are in the table `Commits`, partition = outbox id (the operation's id, and its run's number
behind a dot). For events elsewhere that partition holds one row with their location, so that an event is
found by its id alone.

The index lists pending, sent and failed events, each at a cost that depends on its own length:

    PK `pending`          RK <outbox id>               a note: the run may have events to send
    PK `sent` | `failed`  RK <newest first><event id>  one per event that has ended

Each of the three has several partitions, by the run: see `storage.tables`.

A note is written before its events and deleted after the last of them has ended. So there may be a note
without pending events, but no pending event without a note. An event's own row is authoritative; an index
entry may be older for a moment.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from durable_retry.attempt.commits import (
    INDEX_TABLE,
    TABLE,
    CommitLocation,
    location_in,
    own_location,
)
from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import (
    from_ms,
    from_newest_first,
    from_rfc3339,
    newest_first,
    to_rfc3339,
)
from durable_retry.base.names import EventState
from durable_retry.features.outbox.rules.outbox import (
    OutboxEvent,
    StoredEvent,
    outbox_id_of,
    unreadable_event,
)
from durable_retry.storage import contents, lists, tables
from durable_retry.storage.lists import partition_of, partitions

_LOCATION_KEY: Final = "place"


async def write_location(outbox_id: str, location: CommitLocation) -> None:
    """Store the location of a run's rows unless it is the default one."""
    if location == own_location(outbox_id):
        return
    keys = {"PartitionKey": outbox_id, "RowKey": _LOCATION_KEY}
    await tables.merge(TABLE, keys | location.to_json())


async def read_location(outbox_id: str) -> CommitLocation:
    """Return the location of a run's rows."""
    row = await tables.read(TABLE, outbox_id, _LOCATION_KEY)
    return own_location(outbox_id) if row is None else CommitLocation.from_json(row)


async def remove_location(outbox_id: str) -> None:
    """Delete the stored location; no error when there is none."""
    await tables.delete(TABLE, outbox_id, _LOCATION_KEY)


_PENDING: Final = EventState.PENDING.value


@dataclass(frozen=True, slots=True)
class PendingNote:
    """A run that may have pending events."""

    outbox_id: str
    location: CommitLocation
    noted_at: datetime  # when the note was last written
    partition: str  # the partition of the note
    etag: str = ""  # the ETag of this version of the note
    # Why `location` and `noted_at` cannot be read; they are the default location and long ago then.
    unreadable: str | None = None
    # How many events the commit has; None where a resend wrote the note.
    events: int | None = None


async def note_pending(
    outbox_id: str, location: CommitLocation, now: datetime, *, events: int | None = None
) -> None:
    """Write a note before a run gets pending events; writing it again makes a new version.

    `events` is how many the commit has; None leaves the number in the note.
    """
    keys = {"PartitionKey": partition_of(_PENDING, outbox_id), "RowKey": outbox_id}
    count = {} if events is None else {"events": events}
    await tables.merge(INDEX_TABLE, keys | location.to_json() | {"noted_at": to_rfc3339(now)} | count)


async def read_note(outbox_id: str) -> PendingNote | None:
    """Return a run's note, or None."""
    version = await tables.read_version(INDEX_TABLE, partition_of(_PENDING, outbox_id), outbox_id)
    return None if version is None else _note_of_row(version.row, version.etag)


async def drop_note(note: PendingNote) -> bool:
    """Delete a note; False when it was written again since it was read."""
    return await tables.delete_version(INDEX_TABLE, note.partition, note.outbox_id, note.etag)


async def list_notes(
    limit: int, cursor: str | None, *, first: str = ""
) -> tuple[list[PendingNote], str | None]:
    """Return notes by operation id from `first` on, and the cursor of the next ones (None at the end)."""
    page = await lists.merged_rows(INDEX_TABLE, partitions(_PENDING), after=first, limit=limit, cursor=cursor)
    return [_note_of_row(row) for row in page.rows], page.cursor


async def note_ended(event: StoredEvent, location: CommitLocation) -> None:
    """List an event under `sent` or `failed`. Idempotent."""
    await tables.merge(INDEX_TABLE, ended_row(event, location))


def ended_row(event: StoredEvent, location: CommitLocation) -> tables.Row:
    """Return the entry of an event that has ended."""
    partition = partition_of(event.state.value, outbox_id_of(event.event_id) or "")
    keys = {"PartitionKey": partition, "RowKey": _ended_key(event)}
    return keys | location.to_json() | contents.packed("document", json.dumps(event.listed().to_json()))


async def drop_ended(event: StoredEvent) -> None:
    """Remove an event from the lists of sent and failed events."""
    for state in (EventState.SENT, EventState.FAILED):
        partition = partition_of(state.value, outbox_id_of(event.event_id) or "")
        await tables.delete(INDEX_TABLE, partition, _ended_key(event))


async def list_ended(
    state: EventState,
    limit: int,
    cursor: str | None,
    *,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> tuple[list[OutboxEvent], str | None]:
    """Return sent or failed events, the newest operation first."""
    page = await lists.merged_rows(
        INDEX_TABLE,
        partitions(state.value),
        after="" if created_before is None else f"{newest_first(created_before)}.",
        before=None if created_after is None else f"{newest_first(created_after)}.",
        limit=limit,
        cursor=cursor,
    )
    return [_ended_event(row, state) for row in page.rows], page.cursor


def cursor_at(event: OutboxEvent) -> str:
    """Return the cursor behind an event of the list of its state."""
    return event.event_id if event.state is EventState.PENDING else _ended_key(event)


def _ended_event(row: tables.Row, state: EventState) -> OutboxEvent:
    def stand_in(reason: str) -> OutboxEvent:
        digits, _, event_id = str(row["RowKey"]).partition("-")
        created_at = read_or(lambda: from_newest_first(digits), lambda _: from_ms(0))
        return unreadable_event(event_id, state, created_at, reason).listed()

    return read_or(lambda: OutboxEvent.read(json.loads(contents.unpacked("document", row))), stand_in)


def _note_of_row(row: tables.Row, etag: str = "") -> PendingNote:
    outbox_id, partition = str(row["RowKey"]), str(row["PartitionKey"])

    def stand_in(reason: str) -> PendingNote:
        return PendingNote(outbox_id, location_in(row, outbox_id), from_ms(0), partition, etag, reason)

    def note() -> PendingNote:
        location, noted_at = CommitLocation.from_json(row), from_rfc3339(row["noted_at"])
        events = row.get("events")
        return PendingNote(outbox_id, location, noted_at, partition, etag, None, events and int(events))

    return read_or(note, stand_in)


def _ended_key(event: StoredEvent | OutboxEvent) -> str:
    """Key by creation time, the newest first; it never changes, so a repeated entry is the same row."""
    return f"{newest_first(event.created_at)}-{event.event_id}"
