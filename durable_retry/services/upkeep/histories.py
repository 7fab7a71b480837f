"""Upkeep of histories and of the index of operations: remove what is old."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Final

from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.engine.base.json_forms import UnreadableRecordError
from durable_retry.engine.base.names import (
    DIAGNOSIS,
    ORCHESTRATIONS,
    RETENTION,
    outbox_instance,
)
from durable_retry.services.upkeep.lost_ends import complete_lost_end
from durable_retry.services.upkeep.purges import purge_operation
from durable_retry.settings.configuration import function_name
from durable_retry.stores.instances import ENDED_BADLY
from durable_retry.stores.operations.index import (
    OperationEntry,
    OperationList,
    remove_older,
)
from durable_retry.stores.operations.key_record import expire_record, purge_record, read_record
from durable_retry.stores.operations.status import (
    has_ended,
)
from durable_retry.stores.storage import rounds
from durable_retry.stores.task_hub import ID_PREFIX, Selection, TaskHub

PURGED_AT_ONCE: Final = 32

SETTLED_AFTER: Final = timedelta(hours=1)
"""A task hub purges no entity that changed lately: the entity remembers recent messages, to put later ones in
order. On Azure Storage for half an hour (`entityMessageReorderWindowInMinutes`)."""

# A history waits for the completion of its record no longer: two dozen rounds of `purge_others`.
_HISTORY_NEEDED_FOR: Final = timedelta(days=1)

_log = logging.getLogger(__name__)


async def remove_record(hub: TaskHub, operation_id: str, now: datetime) -> bool:
    """Remove the record of a key whose operation's history goes; later, if its time is not over yet.

    Returns:
        Whether the history may go. A record that is in progress is completed from it, if its operation has
        ended: by a signal, which may be lost again. A later round sees what became of that.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run repeats it.
    """
    try:
        record = await read_record(hub, operation_id)
    except UnreadableRecordError as error:
        _log.warning("the record of %s cannot be read, and stays: %s", operation_id, error)
        return True
    if record is None or record.expires_at is None:
        return not await complete_lost_end(hub, operation_id)
    is_settled = record.expires_at <= now - SETTLED_AFTER
    if not is_settled or not await purge_record(hub, operation_id):
        await expire_record(hub, operation_id, max(record.expires_at, now))
    return True


async def remove_old(
    hub: TaskHub, created_before: datetime, now: datetime, part: int = 0, parts: int = 1
) -> AsyncGenerator[int]:
    """Purge the histories of operations created before an instant, their records, and their index entries.

    The index finds them at a cost that depends on their number: a task hub reads all its instances for that.
    In the list of those that failed, an operation that has not ended keeps its entry; its history is purged
    when its end is noted in the index, or by `purge_others`. So is one that `remove_record` still needs.

    Yields:
        How many entries were removed, ten seconds of operations at a time.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """

    async def is_needed(entry: OperationEntry) -> bool:
        return not await has_ended(hub, entry.operation_id)

    async def purge_one(operation_id: str) -> None:
        if await remove_record(hub, operation_id, now):
            await purge_operation(hub, operation_id, completed_before=created_before)

    async def purge(entries: Sequence[OperationEntry]) -> None:
        for some in batched(entries, PURGED_AT_ONCE, strict=False):
            await asyncio.gather(*(purge_one(each.operation_id) for each in some))

    for kind in OperationList:
        before_removal = purge if kind is OperationList.ALL else None
        async for removed in remove_older(kind, created_before, is_needed, before_removal, (part, parts)):
            yield removed


# What the ids of this engine's instances begin with.
_ID_PREFIXES: Final = (
    *(ID_PREFIX, outbox_instance(""), f"{RETENTION}-", f"{DIAGNOSIS}-"),
    *("batch-", "saga-", "replay-", "bulk-", "release-", "call-", "turn-"),
)


async def purge_others(hub: TaskHub, started_before: datetime, now: datetime, after: str) -> tuple[int, str]:
    """Purge finished orchestrations of this engine that started before an instant, one page of the task hub.

    The task hub's own purge by time takes no names: it would purge those of the app around the engine too.

    Args:
        after: Where the step before ended; `rounds.FIRST` for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    place, _, token = ("0", "", "") if after == rounds.FIRST else after.partition("|")
    prefix = _ID_PREFIXES[int(place)]
    # An operation that ended badly is purged with its dead letter.
    badly = () if prefix == ID_PREFIX else ENDED_BADLY
    statuses = (OrchestrationStatus.COMPLETED, *badly)
    wanted = Selection(runtime_statuses=statuses, created_before=started_before, prefix=prefix)
    page = await hub.instance_page(wanted, token or None)
    names = {function_name(name) for name in ORCHESTRATIONS}

    async def purge_one(state: pb.OrchestrationState) -> bool:
        may_go = prefix != ID_PREFIX or await remove_record(hub, state.instanceId, now)
        was_seen = state.createdTimestamp.ToDatetime(tzinfo=UTC) < started_before - _HISTORY_NEEDED_FOR
        had_ended = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC) < now - _HISTORY_NEEDED_FOR
        if not may_go and not (was_seen and had_ended):
            return False
        if prefix == ID_PREFIX:
            return await purge_operation(hub, state.instanceId)
        return await hub.purge_instance(state.instanceId) is not None

    purged = 0
    for few in batched((each for each in page.instances if each.name in names), PURGED_AT_ONCE, strict=False):
        purged += sum(await asyncio.gather(*map(purge_one, few)))
    if page.following is not None:
        return purged, f"{place}|{page.following}"
    following = int(place) + 1
    return purged, f"{following}|" if following < len(_ID_PREFIXES) else rounds.FIRST
