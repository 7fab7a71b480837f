"""Upkeep of the index of operations: add what processes lost, remove what is past its time."""

import logging
from datetime import datetime, timedelta
from typing import Final

from durable_retry import clock
from durable_retry.engine.operations.status import last_error
from durable_retry.stores.operation_index import Entry, Kind, buckets, close_gap, gaps, remove_older
from durable_retry.stores.operation_notes import note_document, write_noted
from durable_retry.stores.operations import find_status, is_over, scan_operations

LOST_AFTER: Final = timedelta(minutes=3)
"""A process that holds entries says so more often."""

_SECONDS_PER_RUN: Final = 25.0

_log = logging.getLogger(__name__)


async def add_lost(hub: str, now: datetime) -> int:
    """Add the operations that ended processes had not written; return how many were missing.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run repeats it.
    """
    found = await gaps(now - LOST_AFTER)
    if not found:
        return 0
    since = min(found.values())
    known: set[str] = set()
    async for begin, _, entries in buckets(Kind.ALL, None):
        known.update(entry.operation_id for entry in entries if entry.created_at >= since)
        if begin <= since:
            break
    missing = 0
    async for one in scan_operations(hub, created_after=since, created_before=now - LOST_AFTER):
        if one.operation_id in known:
            continue
        document = await find_status(hub, one.operation_id)
        if document is not None:
            note_document(document, last_error(document))
            missing += 1
    await write_noted()
    for name in found:
        await close_gap(name)
    _log.warning("added %d operations to the index that an ended process had not written", missing)
    return missing


async def remove_old(hub: str, created_before: datetime) -> int:
    """Remove the entries of operations created before an instant, for 25 s at most.

    In the list of those that failed, an operation that has not ended keeps its entry.

    Returns:
        How many entries were removed.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """

    async def is_needed(entry: Entry) -> bool:
        return not await is_over(hub, entry.operation_id)

    until, removed = clock.monotonic_seconds() + _SECONDS_PER_RUN, 0
    for kind in Kind:
        async for entries in remove_older(kind, created_before, is_needed):
            removed += entries
            if clock.monotonic_seconds() >= until:
                break
    return removed
