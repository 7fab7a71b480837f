"""How long events have waited, where the app has an outbox."""

from datetime import datetime
from typing import Final

from durable_retry.features.outbox.event_store import pending_at
from durable_retry.features.outbox.index_store import list_notes
from durable_retry.features.outbox.sending import was_swept_empty
from durable_retry_console.alerts import gauges, rules
from durable_retry_console.alerts.health import Look

_MANY_NOTES: Final = 999
# One query each, one after the other; mostly the first has a pending event.
_NOTES_LOOKED_AT: Final = 50


async def outbox_lag(look: Look) -> None:
    """Find the age of the oldest pending event, from the first 999 notes; 0 when none is pending.

    A note without a pending event does not count: its commit was refused, or is under way. Of a great many
    such notes only the oldest are known to be so.
    """
    seconds = look.seconds_since(None if was_swept_empty(look.hub, look.now) else await _oldest_note())
    look.found(rules.OUTBOX_LAG, seconds)
    look.shown(gauges.OUTBOX_LAG, seconds)


async def _oldest_note() -> datetime | None:
    notes, _ = await list_notes(_MANY_NOTES, None)
    oldest = sorted((note for note in notes if note.unreadable is None), key=lambda note: note.noted_at)
    for note in oldest[:_NOTES_LOOKED_AT]:
        if await pending_at(note):
            return note.noted_at
    return min((note.noted_at for note in oldest[_NOTES_LOOKED_AT:]), default=None)
