"""Upkeep of the index of operations: remove what is old, and with it the histories that it finds."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from durable_retry.features.retention.histories import PURGED_AT_ONCE, remove_record
from durable_retry.operations.status import document_of
from durable_retry.rules.operations.status import is_finished
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.upkeep.failures import purge_operation
from durable_retry.upkeep.removal import Kind, Past
from durable_retry_console.index.reconcile import keep_gone
from durable_retry_console.index.store import OperationEntry, OperationList, remove_older

PARTS_OF_OPERATIONS: Final = 4


async def remove_old(_name: str, past: Past) -> AsyncGenerator[int]:
    """Purge the histories of old operations, their records, and their index entries, in one of four parts.

    The index finds them at a cost that depends on their number: a task hub reads all its instances for that.
    In the list of those that failed, an operation that has not ended keeps its entry; its history is purged
    when its end is noted in the index, or by `purge_others`. So is one that `remove_record` still needs.

    Yields:
        How many entries were removed, ten seconds of operations at a time.
    """
    hub = past.hub

    async def is_needed(entry: OperationEntry) -> bool:
        instance = await hub.read_instance(entry.operation_id)
        if instance is None:
            await keep_gone(hub, entry)
        return instance is not None and not is_finished(document_of(instance))

    async def purge_one(operation_id: str) -> None:
        instance = await hub.read_instance(operation_id)
        may_go = await remove_record(hub, operation_id, instance, past.now)
        if may_go and instance is not None:
            await purge_operation(hub, instance, completed_before=past.before)

    async def purge(entries: Sequence[OperationEntry]) -> None:
        await map_bounded(purge_one, (entry.operation_id for entry in entries), PURGED_AT_ONCE)

    part = (past.shard, PARTS_OF_OPERATIONS)
    for kind in OperationList:
        async for removed in remove_older(kind, past.before, part, is_needed, purge):
            yield removed


OPERATIONS: Final = Kind(remove_old, lambda settings: settings.history_for, PARTS_OF_OPERATIONS)
