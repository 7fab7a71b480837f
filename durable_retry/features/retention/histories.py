"""Upkeep of histories: remove what is old."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import UnreadableRecordError
from durable_retry.hub.instances import ENDED_BADLY, Instance
from durable_retry.hub.orchestrations import orchestrations
from durable_retry.hub.task_hub import ID_PREFIX, Selection, TaskHub
from durable_retry.operations.entities import complete_record, expire_record, purge_record, read_record
from durable_retry.operations.lone_records import let_answer_alone
from durable_retry.operations.status import operation_of
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.settings.configuration import function_name
from durable_retry.upkeep.failures import completion_of_ended, purge_operation
from durable_retry.upkeep.removal import Past

PURGED_AT_ONCE: Final = 32

SETTLED_AFTER: Final = timedelta(hours=1)
"""A task hub purges no entity that changed lately: the entity remembers recent messages, to put later ones in
order. On Azure Storage for half an hour (`entityMessageReorderWindowInMinutes`)."""

# The longest that a history stays for its record to be completed: two dozen rounds of `purge_others`.
_HISTORY_NEEDED_FOR: Final = timedelta(days=1)

_log = logging.getLogger(__name__)


async def remove_record(hub: TaskHub, operation_id: str, instance: Instance | None, now: datetime) -> bool:
    """Remove the record of a key before the operation's history is purged, or let it expire when it is due.

    Args:
        instance: With the history; None where it is gone.

    Returns:
        Whether the history may be purged. It stays while the record lacks the end, which a signal completes
        from the history: the signal may be lost. It stays too until every process reads a record that will
        answer alone. A later round looks again.
    """
    completion = None if instance is None else completion_of_ended(instance)
    if completion is None and instance is not None:
        return True  # It has no record, or has not ended well: `purge_others` leaves such a history.
    is_long_over = completion is not None and completion.expires_at <= now - SETTLED_AFTER
    may_have_record = instance is None or _may_have_record(instance)
    if is_long_over and (not may_have_record or await purge_record(hub, operation_id)):
        return True  # Any record has expired, so it need not be read.
    try:
        record = await read_record(hub, operation_id)
    except UnreadableRecordError as error:
        _log.warning("the record of %s cannot be read, and stays: %s", operation_id, error)
        return True
    is_missing = record is None or (completion is not None and record.run < completion.run)
    if completion is not None and completion.expires_at > now and is_missing:
        await complete_record(hub, operation_id, completion)
        # The next round may come when the key's time is long over, and then it reads no record.
        await expire_record(hub, operation_id, completion.expires_at)
        return False
    if record is not None:
        answers_on = record.expires_at > now
        if answers_on and not await let_answer_alone(record.expires_at, now) and instance is not None:
            return False
        is_settled = record.expires_at <= now - SETTLED_AFTER
        if not is_settled or not await purge_record(hub, operation_id):
            await expire_record(hub, operation_id, max(record.expires_at, now))
    return True


def _may_have_record(instance: Instance) -> bool:
    """Whether the run that ended completed a record, or one before it may have."""
    operation = read_or(lambda: operation_of(instance), lambda _: None)
    if operation is None or operation.replay_of is not None:
        return True
    return operation.needs_record(instance.updated_at)


async def purge_others(past: Past) -> tuple[int, str]:
    """Purge old orchestrations of this engine that have finished, one page of the task hub.

    The task hub's own purge by time takes no names: it would purge those of the app around the engine too.
    An operation that ended badly is purged with its dead letter.
    """
    hub = past.hub
    own = orchestrations()
    names, prefixes = {function_name(name) for name in own}, sorted({kind.prefix for kind in own.values()})

    async def purge_one(state: pb.OrchestrationState) -> bool:
        instance = await hub.read_instance(state.instanceId)
        if instance is None:
            return False
        if not state.instanceId.startswith(ID_PREFIX):
            return await hub.purge_instance(instance)
        may_go = await remove_record(hub, state.instanceId, instance, past.now)
        was_seen = state.createdTimestamp.ToDatetime(tzinfo=UTC) < past.before - _HISTORY_NEEDED_FOR
        had_ended = state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC) < past.now - _HISTORY_NEEDED_FOR
        if not may_go and not (was_seen and had_ended):
            return False
        return await purge_operation(hub, instance)

    statuses = (OrchestrationStatus.COMPLETED, *ENDED_BADLY)
    selection = Selection(runtime_statuses=statuses, created_before=past.before)
    instances, following = await hub.page_of_prefixes(selection, tuple(prefixes), past.after or None)
    purgeable = [other for other in instances if other.name in names and not _is_operation_without_end(other)]
    purged = await map_bounded(purge_one, purgeable, PURGED_AT_ONCE)
    return sum(purged), following or ""


def _is_operation_without_end(state: pb.OrchestrationState) -> bool:
    is_operation = state.instanceId.startswith(ID_PREFIX)
    return is_operation and OrchestrationStatus(state.orchestrationStatus) in ENDED_BADLY


async def clean_key_records(past: Past) -> tuple[int, str]:
    """Remove what expired records of keys leave in the task hub."""
    removed, following = await past.hub.clean_entities(past.after or None)
    return removed, following or ""
