"""The replay of the dead letter of an event: it is sent again under its id; its operation has succeeded."""

from datetime import datetime
from typing import Final

from durable_retry.base.names import EventState
from durable_retry.features.outbox.event_store import find_event
from durable_retry.features.outbox.rules.outbox import event_id_in
from durable_retry.features.outbox.sending import resend
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.runtime import clock

CONTENT: Final = "an event"


async def start(hub: TaskHub, record: KeptDeadLetter) -> None:
    """Send the event again, unless a resend by hand has sent it since it failed."""
    event_id = event_id_in(record)
    row = await find_event(event_id)
    if row is None or row.event.state is not EventState.SENT:
        await resend(hub, event_id, clock.now())


async def was_started(record: KeptDeadLetter, requested_at: datetime) -> bool:
    """Return whether the event became pending since the replay was requested, is sent, or its row is gone."""
    row = await find_event(event_id_in(record))
    return row is None or row.event.state is EventState.SENT or row.event.pending_since >= requested_at
