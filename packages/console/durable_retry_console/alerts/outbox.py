"""How long events have waited, where the app has an outbox."""

from datetime import datetime
from typing import Final

from durable_retry.features.outbox.event_store import pending_at
from durable_retry.features.outbox.index_store import list_notes
from durable_retry.features.outbox.sending import was_swept_empty
from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.alerts.health import seconds_since

_MANY_NOTES: Final = 999
# One query each, one after the other; mostly the first has a pending event.
_NOTES_LOOKED_AT: Final = 50


async def outbox_lag_seconds(hub: TaskHub, now: datetime, _letters: object) -> float:
    """Return the lag of the outbox, from its first 999 notes.

    A note without a pending event does not count: its commit was refused, or is under way. Of a great many
    such notes only the oldest are known to be so.
    """
    if was_swept_empty(hub, now):
        return 0.0
    notes, _ = await list_notes(_MANY_NOTES, None)
    oldest = sorted((note for note in notes if note.unreadable is None), key=lambda note: note.noted_at)
    for note in oldest[:_NOTES_LOOKED_AT]:
        if await pending_at(note):
            return seconds_since(note.noted_at, now)
    return seconds_since(min((note.noted_at for note in oldest[_NOTES_LOOKED_AT:]), default=None), now)
