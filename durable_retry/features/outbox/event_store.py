"""The outbox rows: events that were committed with a success, and their delivery state.

    commit ──> pending ──publish──> sent        a resend makes a sent or failed event pending again
                       └─give up──> failed

Every change is conditional on the version of the row that was read. Two executions of the same step can both
send an event; the row is updated once, and the receiver deduplicates on the event's id.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from durable_retry.attempt.commits import CommitLocation, own_location
from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import from_ms, from_rfc3339, to_rfc3339
from durable_retry.base.names import EventState
from durable_retry.dead_letters.records import TABLE as DEAD_LETTERS
from durable_retry.features.outbox.index_store import (
    PendingNote,
    drop_ended,
    drop_note,
    list_notes,
    note_ended,
    note_pending,
    read_location,
    read_note,
    write_location,
)
from durable_retry.features.outbox.rules.outbox import (
    NoSuchEventError,
    OutboxEvent,
    StoredEvent,
    UnreadableEventError,
    event_id_for,
    events_in,
    failure_events_of,
    failure_id_of,
    number_of,
    outbox_id_of,
    unreadable_event,
    with_dead_letter,
)
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.operations.completion import Success
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.settings.configuration import api_path
from durable_retry.storage import contents, tables

_ROW_PREFIX: Final = "outbox-"

_COMMIT_OVER: Final = timedelta(hours=1)
"""A note without events belongs to a commit that is under way or never completed. A commit takes seconds
after its note, and a repeated commit writes the note again."""

_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An event with the location and etag of its row."""

    event: StoredEvent
    location: CommitLocation
    etag: str


def row_of(location: CommitLocation, event: StoredEvent) -> tables.Row:
    """Return the row of an event; its other columns are shown where the document cannot be read."""
    return {
        "PartitionKey": location.partition_key,
        "RowKey": f"{_ROW_PREFIX}{event.event_id}",
        "state": event.state.value,
        "created_at": to_rfc3339(event.created_at),
        **contents.packed("event", json.dumps(event.to_json())),
    }


async def rows_of_commit(
    outbox_id: str, location: CommitLocation, success: Success, now: datetime
) -> list[tables.Row]:
    """Return the rows of the events of a success that is about to be committed, after a note of them.

    The note comes before the transaction: a crash in between costs the sweeper one look at nothing, whereas
    committed events that no index names would never be sent.
    """
    return await _rows_of_events(outbox_id, location, events_in(success), success, now)


async def rows_of_failure(record: KeptDeadLetter, now: datetime) -> list[tables.Row]:
    """Return the rows of the events of a dead letter that is about to be stored; as `rows_of_commit`."""
    events = failure_events_of(record.operation or {})
    if not events:
        return []
    operation, url = OperationInput.from_json(record.operation), f"{api_path()}/dead-letters/{record.id}"
    events = [with_dead_letter(event, record, url) for event in events]
    location = CommitLocation(DEAD_LETTERS, record.id)
    return await _rows_of_events(failure_id_of(operation.run_id), location, events, operation, now)


async def _rows_of_events(
    outbox_id: str,
    location: CommitLocation,
    events: Sequence[Mapping[str, Any]],
    source: Success | OperationInput,
    now: datetime,
) -> list[tables.Row]:
    if events:
        await write_location(outbox_id, location)
        await note_pending(outbox_id, location, now, events=len(events))
    pending = (
        StoredEvent(
            event_id=event_id_for(outbox_id, number),
            event=event,
            state=EventState.PENDING,
            created_at=now,
            pending_since=now,
            correlation_id=source.correlation_id,
            trace=source.trace,
            limit_key=source.limit_key,
        )
        for number, event in enumerate(events, start=1)
    )
    return [row_of(location, event) for event in pending]


async def with_event_states(document: dict[str, Any]) -> dict[str, Any]:
    """Return a status document with its events' present states; events are sent after the operation ends.

    It costs one query where there are events. An event without a row keeps the state in the document.
    """
    if not document["events"]:
        return document
    outbox_id = outbox_id_of(document["events"][0]["event_id"]) or document["operation_id"]
    states = {event.event_id: event.state.value for event in await events_of(outbox_id)}
    events = [
        {**event, "state": states.get(event["event_id"], event["state"])} for event in document["events"]
    ]
    return {**document, "events": events}


async def events_of(outbox_id: str, location: CommitLocation | None = None) -> list[StoredEvent]:
    """Return the events of a run in their order, whatever their state; a location of None is looked up."""
    events = await _events_at(outbox_id, location or own_location(outbox_id))
    if events or location is not None:
        return events
    noted = await read_location(outbox_id)
    return [] if noted == own_location(outbox_id) else await _events_at(outbox_id, noted)


async def find_event(event_id: str, location: CommitLocation | None = None) -> StoredRow | None:
    """Return an event with its version, or None; a location of None is looked up."""
    outbox_id = outbox_id_of(event_id)
    if outbox_id is None:
        return None
    stored = await _event_at(event_id, location or own_location(outbox_id))
    if stored is not None or location is not None:
        return stored
    return await _event_at(event_id, await read_location(outbox_id))


async def pending_of(outbox_id: str, now: datetime) -> tuple[CommitLocation, list[StoredEvent]]:
    """Return a run's pending events and their location; delete its note when there are none."""
    note = await read_note(outbox_id)
    location = await read_location(outbox_id) if note is None else note.location
    events = await events_of(outbox_id, location)
    pending = [event for event in events if event.state is EventState.PENDING]
    is_known = note is not None and note.unreadable is None
    if note is not None and is_known and not pending and (events or note.noted_at < now - _COMMIT_OVER):
        await drop_note(note)
    return location, pending


async def list_pending(limit: int, cursor: str | None) -> tuple[list[OutboxEvent], str | None]:
    """Return pending events by operation. The cost depends on what is pending only."""
    first, seen = ("", 0) if cursor is None else (outbox_id_of(cursor) or "", number_of(cursor))
    items: list[OutboxEvent] = []
    following: str | None = None
    while len(items) <= limit:
        notes, following = await list_notes(limit + 1, following, first=first)
        for note, events in zip(notes, await asyncio.gather(*map(pending_at, notes)), strict=True):
            after = seen if note.outbox_id == first else 0
            items.extend(event.listed() for event in events if number_of(event.event_id) > after)
        if following is None:
            break
    has_more = len(items) > limit
    return items[:limit], items[limit - 1].event_id if has_more else None


async def mark_sent(stored: StoredRow, now: datetime, attempt_count: int) -> None:
    """Mark an event sent, whatever state its row has by now; NoSuchEventError where it has none."""

    def sent(event: StoredEvent) -> StoredEvent:
        if event.state is EventState.SENT:
            return event
        return replace(event, state=EventState.SENT, sent_at=now, detail=None, attempt_count=attempt_count)

    await _end_event(stored, sent)


async def mark_failed(stored: StoredRow, detail: str, attempt_count: int) -> None:
    """Mark an event failed unless it was sent meanwhile; NoSuchEventError where it has no row."""

    def failed(event: StoredEvent) -> StoredEvent:
        if event.state is not EventState.PENDING:
            return event
        short = detail[:_DETAIL_CHARS]
        return replace(event, state=EventState.FAILED, detail=short, attempt_count=attempt_count)

    await _end_event(stored, failed)


async def mark_pending(event_id: str, now: datetime) -> StoredEvent:
    """Make an event pending again; it keeps its id.

    Its note is written before and after: a delivery that ends concurrently may delete the first note.
    """

    def pending(event: StoredEvent) -> StoredEvent:
        if event.state is EventState.PENDING:
            return event
        again = replace(event, state=EventState.PENDING, pending_since=now)
        return replace(again, sent_at=None, detail=None, attempt_count=None)

    stored = _existing_row(event_id, await find_event(event_id))
    outbox_id = outbox_id_of(event_id) or ""
    await note_pending(outbox_id, stored.location, now)
    before, after = await _change_event(stored, pending)
    if after is not before:
        await note_pending(outbox_id, stored.location, now)
        await drop_ended(after)
    return after


async def pending_at(note: PendingNote) -> list[StoredEvent]:
    """Return the pending events of a note; it may have none."""
    events = await _events_at(note.outbox_id, note.location)
    return [event for event in events if event.state is EventState.PENDING]


async def remove_sent_run(outbox_id: str) -> bool:
    """Delete all rows of a run whose events have a partition of their own, if every event was sent.

    False when it has an event that was not, or one was changed meanwhile.
    """
    location = own_location(outbox_id)
    stored = await tables.read_partition(location.table, location.partition_key)
    events = [
        _event_or_stand_in(version.row) for version in stored if version.row["RowKey"].startswith(_ROW_PREFIX)
    ]
    if any(event.state is not EventState.SENT for event in events):
        return False
    return not stored or await tables.delete_versions(location.table, stored)


async def remove_event(stored: StoredRow) -> None:
    """Delete an event's row unless it was changed since it was read."""
    row_key = f"{_ROW_PREFIX}{stored.event.event_id}"
    await tables.delete_version(stored.location.table, stored.location.partition_key, row_key, stored.etag)


async def _end_event(stored: StoredRow, rule: Callable[[StoredEvent], StoredEvent]) -> None:
    """Change an event by a rule that ends it, and list it under its state alone."""
    before, after = await _change_event(stored, rule)
    if before.state is EventState.FAILED or after.pending_since != after.created_at:
        await drop_ended(after)
    await note_ended(after, stored.location)


async def _change_event(
    stored: StoredRow, rule: Callable[[StoredEvent], StoredEvent]
) -> tuple[StoredEvent, StoredEvent]:
    """Change an event by a rule, whatever its row holds by now; return it as it was before and is after."""
    while (changed := rule(stored.event)) is not stored.event:
        row = row_of(stored.location, changed)
        if await tables.replace_version(stored.location.table, row, stored.etag):
            break
        event_id = stored.event.event_id
        stored = _existing_row(event_id, await find_event(event_id, stored.location))
    return stored.event, changed


def _existing_row(event_id: str, stored: StoredRow | None) -> StoredRow:
    if stored is None:
        raise NoSuchEventError(event_id)
    if stored.event.unreadable is not None:
        raise UnreadableEventError(stored.event.unreadable)
    return stored


async def _event_at(event_id: str, location: CommitLocation) -> StoredRow | None:
    version = await tables.read_version(location.table, location.partition_key, f"{_ROW_PREFIX}{event_id}")
    return None if version is None else StoredRow(_event_or_stand_in(version.row), location, version.etag)


async def _events_at(outbox_id: str, location: CommitLocation) -> list[StoredEvent]:
    begin, end = f"{_ROW_PREFIX}{outbox_id}.", f"{_ROW_PREFIX}{outbox_id}/"
    page = await tables.rows_between(location.table, location.partition_key, after=begin, before=end)
    # A run without a number has the name of its operation, which the other runs' names begin with.
    events = [
        event for event in map(_event_or_stand_in, page.rows) if outbox_id_of(event.event_id) == outbox_id
    ]
    return sorted(events, key=lambda event: number_of(event.event_id))


def _event_or_stand_in(row: tables.Row) -> StoredEvent:
    """Return an event; where its row cannot be read, its id and what else is known of it."""
    event_id = str(row["RowKey"]).removeprefix(_ROW_PREFIX)

    def stand_in(reason: str) -> StoredEvent:
        state = read_or(lambda: EventState(row["state"]), lambda _: EventState.FAILED)
        created_at = read_or(lambda: from_rfc3339(row["created_at"]), lambda _: from_ms(0))
        return unreadable_event(event_id, state, created_at, reason)

    return read_or(lambda: _event_of_row(row), stand_in)


def _event_of_row(row: tables.Row) -> StoredEvent:
    event = StoredEvent.from_json_text(contents.unpacked("event", row))
    if row["RowKey"] != f"{_ROW_PREFIX}{event.event_id}":
        raise ValueError(f"its id is {event.event_id!r:.80}")
    event.listed()  # Refuses what is not of its type.
    return event
