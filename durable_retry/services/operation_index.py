"""Upkeep of the index of operations and of histories: add what processes lost, remove what is old."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from itertools import batched
from typing import Final

from durabletask.client import OrchestrationStatus

from durable_retry.engine.base.names import ORCHESTRATIONS, RETENTION, outbox_instance
from durable_retry.engine.operations.status import last_error
from durable_retry.settings.configuration import function_name
from durable_retry.stores import tables
from durable_retry.stores.operation_index import (
    OperationEntry,
    OperationList,
    buckets,
    close_gap,
    gaps,
    remove_older,
)
from durable_retry.stores.operation_notes import note_document, write_noted
from durable_retry.stores.operations import find_status, has_ended, scan_operations
from durable_retry.stores.task_hub import (
    ENDED_WELL,
    ID_PREFIX,
    Selection,
    expire_record,
    operations_page,
    purge_ended,
    purge_history,
    purge_record,
    read_record,
)

LOST_AFTER: Final = timedelta(minutes=3)
"""A process that holds unwritten entries renews its row more often than this."""

PURGED_AT_ONCE: Final = 32

SETTLED_AFTER: Final = timedelta(hours=1)
"""A task hub purges no entity that changed lately: the entity remembers recent messages, to put later ones in
order. On Azure Storage for half an hour (`entityMessageReorderWindowInMinutes`)."""

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
    async for begin, _, entries in buckets(OperationList.ALL, None):
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


async def remove_record(hub: str, operation_id: str, now: datetime) -> None:
    """Remove the record of a key whose operation's history goes; later, if its time is not over yet.

    A record that is in progress removes itself when it is completed.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run repeats it.
    """
    record = await read_record(hub, operation_id)
    if record is None or record.expires_at is None:
        return
    is_settled = record.expires_at <= now - SETTLED_AFTER
    if not is_settled or not await purge_record(hub, operation_id):
        await expire_record(hub, operation_id, max(record.expires_at, now))


async def remove_old(
    hub: str, created_before: datetime, now: datetime, part: int = 0, parts: int = 1
) -> AsyncGenerator[int]:
    """Purge the histories of operations created before an instant, their records, and their index entries.

    The index finds them at a cost that depends on their number: a task hub reads all its instances for that.
    In the list of those that failed, an operation that has not ended keeps its entry; its history is purged
    when its end is noted in the index, or by `purge_others`.

    Args:
        hub: Configuration of the durable client.
        created_before: Aware UTC instant.
        now: The present.
        part: Which part of the index, from 0.
        parts: How many there are.

    Yields:
        How many entries were removed, ten seconds of operations at a time.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """

    async def is_needed(entry: OperationEntry) -> bool:
        return not await has_ended(hub, entry.operation_id)

    async def purge_one(operation_id: str) -> None:
        await remove_record(hub, operation_id, now)
        await purge_ended(hub, operation_id, created_before)

    async def purge(entries: Sequence[OperationEntry]) -> None:
        for some in batched(entries, PURGED_AT_ONCE, strict=False):
            await asyncio.gather(*(purge_one(each.operation_id) for each in some))

    for kind in OperationList:
        before_removal = purge if kind is OperationList.ALL else None
        async for removed in remove_older(kind, created_before, is_needed, before_removal, (part, parts)):
            yield removed


_PREFIXES: Final = (
    *(ID_PREFIX, outbox_instance(""), f"{RETENTION}-"),
    *("batch-", "saga-", "replay-", "bulk-", "release-", "call-"),
)
"""What the ids of this engine's instances begin with."""


async def purge_others(hub: str, started_before: datetime, now: datetime, after: str) -> tuple[int, str]:
    """Purge finished orchestrations of this engine that started before an instant, one page of the task hub.

    The task hub's own purge by time takes no names: it would purge those of the app around the engine too.

    Args:
        hub: Configuration of the durable client.
        started_before: Aware UTC instant.
        now: The present.
        after: Where the step before ended; `tables.FIRST` for the first.

    Returns:
        How many, and the next `after`.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    place, _, token = ("0", "", "") if after == tables.FIRST else after.partition("|")
    prefix = _PREFIXES[int(place)]
    failed = () if prefix == ID_PREFIX else (OrchestrationStatus.FAILED,)
    wanted = Selection(runtime_statuses=(*ENDED_WELL, *failed), created_before=started_before, prefix=prefix)
    page = await operations_page(hub, wanted, token or None)
    names = {function_name(name) for name in ORCHESTRATIONS}
    ids = [each.instanceId for each in page.instances if each.name in names]
    for few in batched(ids, PURGED_AT_ONCE, strict=False):
        if prefix == ID_PREFIX:
            await asyncio.gather(*(remove_record(hub, each, now) for each in few))
        await asyncio.gather(*(purge_history(hub, each) for each in few))
    if page.following is not None:
        return len(ids), f"{place}|{page.following}"
    following = int(place) + 1
    return len(ids), f"{following}|" if following < len(_PREFIXES) else tables.FIRST
