"""The entity of an operation: the record of its key, which answers without its history.

Every function raises `TaskHubUnavailableError` where the task hub does not answer.
"""

from datetime import datetime

from durabletask.entities import EntityInstanceId

from durable_retry.base.documents import json_object
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import IDEMPOTENCY_RECORD
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.keys import KeyCompletion, KeyRecord
from durable_retry.settings.configuration import function_name


def record_id(operation_id: str) -> EntityInstanceId:
    """Return the id of the entity that keeps the record of an operation's key."""
    return EntityInstanceId(function_name(IDEMPOTENCY_RECORD), operation_id)


async def read_record(hub: TaskHub, operation_id: str) -> KeyRecord | None:
    """Return an operation's idempotency record, or None; UnreadableRecordError where it cannot be read."""
    state = json_object(await hub.read_entity(record_id(operation_id)))
    return None if state is None else KeyRecord.from_json(state)


async def complete_record(hub: TaskHub, operation_id: str, completion: KeyCompletion) -> None:
    """Complete the record of the key of an operation that is over, by a signal; see the entity."""
    await hub.signal_entity(record_id(operation_id), "complete", completion.to_json())


async def expire_record(hub: TaskHub, operation_id: str, at: datetime) -> None:
    """Let the record of an operation's key expire at an instant, by a message that is delivered then."""
    await hub.signal_entity(record_id(operation_id), "expire", {"now": to_rfc3339(at)}, at=at)


async def purge_record(hub: TaskHub, operation_id: str) -> bool:
    """Purge the entity of an expired record; False where the task hub does not do that, or has none."""
    return await hub.purge_entity(record_id(operation_id))
