"""Retention of sent events: the rows of a run, then their entries in the list of what was sent.

Failed events stay: a person has to handle their dead letters.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from durable_retry.attempt.commits import own_location, remove_commit
from durable_retry.base.names import EventState
from durable_retry.features.outbox.event_store import events_of, find_event, remove_event, remove_sent_run
from durable_retry.features.outbox.index_store import remove_location
from durable_retry.features.outbox.names import outbox_instance
from durable_retry.features.outbox.rules.outbox import outbox_id_of
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.upkeep.removal import REMOVED_AT_ONCE, CommitEntries, OldEntry, Past


async def remove_sent_events(past: Past, entries: Sequence[OldEntry]) -> int:
    """Delete sent events of operations that succeeded long ago, and the histories of their sending.

    The commit row is deleted with the last event: until then a repeated commit must find it. An event that
    was made pending again is listed again when it ends.
    """

    async def remove(run: tuple[str, Sequence[OldEntry]]) -> None:
        await _remove_sent_of_run(*run)
        if past.histories_before is not None:
            sending = await past.hub.read_instance(outbox_instance(run[0]))
            if sending is not None:
                await past.hub.purge_instance(sending, past.histories_before)

    # Events of one run have one instant, so their entries are neighbours.
    by_run = groupby(entries, lambda entry: _outbox_id_of(entry.id))
    await map_bounded(remove, [(outbox_id, list(group)) for outbox_id, group in by_run], REMOVED_AT_ONCE)
    return len(entries)


def _outbox_id_of(event_id: str) -> str:
    return outbox_id_of(event_id) or ""


async def _remove_sent_of_run(outbox_id: str, entries: Sequence[OldEntry]) -> None:
    location = entries[0].location
    if location == own_location(outbox_id) and await remove_sent_run(outbox_id):
        return
    for entry in entries:
        stored = await find_event(entry.id, entry.location)
        if stored is not None and stored.event.state is EventState.SENT:
            await remove_event(stored)
    if not await events_of(outbox_id, location):
        await remove_commit(outbox_id, location)
        await remove_location(outbox_id)


SENT_EVENTS: Final = CommitEntries(EventState.SENT, remove_sent_events, _outbox_id_of)
