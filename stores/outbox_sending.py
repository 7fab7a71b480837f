"""Getting the events of an operation sent: by hand, and by the sweeper that makes up what a crash left."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from engine.outbox import StoredEvent, operation_id_of
from stores.instances import start
from stores.outbox import find_event, mark_pending
from stores.outbox_index import Note, keep_sweep_cursor, list_notes, read_sweep_cursor
from stores.task_hub import OUTBOX, outbox_instance

SWEPT_AFTER: Final = timedelta(minutes=2)
"""A younger note is that of a commit which is under way, or of an orchestration that starts by itself."""

NOTES_PER_SWEEP: Final = 1_000
_STARTS_AT_ONCE: Final = 16


async def start_sending(hub: str, operation_id: str) -> bool:
    """Start the orchestration that sends an operation's pending events; False when it is running.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    given = {"operation_id": operation_id}
    return await start(hub, OUTBOX, outbox_instance(operation_id), given, again=True)


async def resend(hub: str, event_id: str, now: datetime) -> StoredEvent:
    """Send an event once more, under the id that it has always had.

    One that waits for its next attempt is sent at once. The orchestration that sends it may be running for
    other events of the operation; it looks again before it ends.

    Args:
        hub: Configuration of the durable client.
        event_id: Which.
        now: Aware UTC instant.

    Raises:
        stores.outbox.NoSuchEventError: There is no such event.
        TaskHubUnavailableError: The event is pending, and a sweeper will send it.
    """
    event = await mark_pending(event_id, now)
    operation_id = operation_id_of(event_id) or ""
    if not await start_sending(hub, operation_id):
        given = {"operation_id": operation_id, "event_id": event_id}
        instance_id = f"{outbox_instance(operation_id)}-{event_id.rpartition('.')[2]}"
        await start(hub, OUTBOX, instance_id, given, again=True)
    return event


async def was_resent(event_id: str, since: datetime) -> bool:
    """Tell whether an event became pending again at an instant or later; also when it has no row any more."""
    kept = await find_event(event_id)
    return kept is None or kept.event.pending_since >= since


async def sweep(hub: str, now: datetime) -> int:
    """See to operations whose events have been pending for a while.

    Their orchestration is started where none runs; where one runs or waits, nothing happens. One sweep sees
    to `NOTES_PER_SWEEP` at most and the next goes on from there, so that the cost is bounded, and depends on
    what is pending only.

    Returns:
        How many orchestrations were started.

    Raises:
        TaskHubUnavailableError: Not all could be started.
    """
    notes, cursor = await list_notes(NOTES_PER_SWEEP, await read_sweep_cursor())
    due = [note for note in notes if note.noted_at <= now - SWEPT_AFTER]
    gate = asyncio.Semaphore(_STARTS_AT_ONCE)

    async def start_one(note: Note) -> bool:
        async with gate:
            return await start_sending(hub, note.operation_id)

    started = await asyncio.gather(*(start_one(note) for note in due))
    await keep_sweep_cursor(cursor)
    return sum(started)
