"""Events that are not sent, in numbers."""

import asyncio
from operator import attrgetter
from typing import Final

from pydantic import Field

from durable_retry.attempt.commits import INDEX_TABLE
from durable_retry.base.answers import Answer
from durable_retry.base.names import EventState
from durable_retry.features.outbox.event_store import pending_at
from durable_retry.features.outbox.index_store import list_ended, list_notes
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.storage import tables
from durable_retry.storage.lists import partitions
from durable_retry_console.alerts.settings import alert_settings

_SHOWN: Final = 8
_LISTED: Final = 50
_MOST: Final = 10_000
_AT_ONCE: Final = 16

_ALL: Final = "False when there are more than were counted: then at least this many."


class OutboxGlance(Answer):
    """Events that are not sent, of each state up to 10,000 in a partition of its list."""

    pending: int
    pending_complete: bool = Field(description=_ALL)
    oldest: OutboxEvent | None = Field(description="Of the pending ones.")
    failed: int
    failed_complete: bool = Field(description=_ALL)
    latest_failed: tuple[OutboxEvent, ...]
    alarm_lag_seconds: float = Field(
        description="The age of a pending event above which an alert is raised; 0 means never."
    )


async def outbox_glance(_hub: TaskHub) -> OutboxGlance:
    """Count events that are not sent, and return the oldest pending one and the latest failed ones."""
    (pending, is_all, oldest), (latest, more) = await asyncio.gather(
        _pending(), list_ended(EventState.FAILED, _LISTED, None)
    )
    failed, is_every = (len(latest), True) if more is None else await _count_failed()
    return OutboxGlance(
        pending=pending,
        pending_complete=is_all,
        oldest=oldest,
        failed=failed,
        failed_complete=is_every,
        latest_failed=tuple(latest[:_SHOWN]),
        alarm_lag_seconds=alert_settings().alert_outbox_lag_seconds,
    )


async def _pending() -> tuple[int, bool, OutboxEvent | None]:
    """Count pending events by the notes of their runs.

    The events of the runs that wait longest are read, and of some whose note does not say that there is one.
    Any other note stands for one event; a run of one has nothing else to say.
    """
    notes, more = await list_notes(_MOST, None)
    notes.sort(key=attrgetter("noted_at"))
    several = [note for note in notes[_LISTED:] if note.events != 1]
    looked_at = [*notes[:_LISTED], *several[:_LISTED]]
    events = [event for found in await map_bounded(pending_at, looked_at, _AT_ONCE) for event in found]
    oldest = min(events, key=attrgetter("pending_since"), default=None)
    is_all = more is None and len(several) <= _LISTED
    shown = None if oldest is None else oldest.listed()
    return len(events) + len(notes) - len(looked_at), is_all, shown


async def _count_failed() -> tuple[int, bool]:
    """Count failed events by the keys of their entries, about 1,000 with each request to storage."""
    pages = await asyncio.gather(
        *(
            tables.rows_between(INDEX_TABLE, partition, limit=_MOST, only=("RowKey",))
            for partition in partitions(EventState.FAILED.value)
        )
    )
    return sum(len(page.rows) for page in pages), all(page.cursor is None for page in pages)
