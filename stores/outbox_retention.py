"""Removing sent events after their time, a bounded step at a time, at the cost of what is removed.

    event row --> commit and place of the operation, with its last event --> entry in the list of sent events

The entry in the list goes last: a crash in between is made up by the next step. Failed events stay: a person
has to see to their dead letters.
"""

from datetime import datetime
from typing import Final

from engine.outbox import EventState, operation_id_of
from stores.commits import remove_commit
from stores.outbox import events_of, find_event, remove_event
from stores.outbox_index import Entry, drop_entry, list_older
from stores.outbox_place import remove_place

EVENTS_PER_STEP: Final = 200


async def remove_sent_events(created_before: datetime) -> int:
    """Remove events that were sent and whose operation succeeded before an instant.

    An operation's commit goes with its last event: until then a repeated commit finds it.

    Returns:
        How many were looked at; `EVENTS_PER_STEP` means that there may be more.
    """
    entries = await list_older(EventState.SENT, created_before, EVENTS_PER_STEP)
    for entry in entries:
        await _remove(entry)
    return len(entries)


async def _remove(entry: Entry) -> None:
    kept = await find_event(entry.event_id, entry.place)
    if kept is not None and kept.event.state is EventState.SENT:
        await remove_event(kept)
    operation_id = operation_id_of(entry.event_id) or ""
    if not await events_of(operation_id, entry.place):
        await remove_commit(operation_id, entry.place)
        await remove_place(operation_id)
    # An event that was made pending again is listed anew when it ends.
    await drop_entry(entry)
