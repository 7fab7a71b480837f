"""The commit of a success: result, a handler's table writes and outbox rows, in one entity-group transaction.

    row `commit-<outbox id>`   insert: a repeated commit of the same run finds it and changes nothing
    a handler's own rows       with the handler's modes
    rows `outbox-<event id>`   one per follow-up message, state `pending`

A transaction cannot span partitions, so all rows are in the partition of the handler's writes; without writes
in the table `Outbox`. The location is written to `OutboxIndex` before the transaction, so that a sweeper
finds pending rows at a cost that depends on what is pending only.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from azure.data.tables import UpdateMode

from durable_retry.engine.base.json_forms import TraceContext, to_rfc3339
from durable_retry.stores.outbox.events import new_event, row_of
from durable_retry.stores.outbox.index import (
    OutboxLocation,
    note_commit,
    note_pending,
    own_location,
    write_location,
)
from durable_retry.stores.storage import tables


async def commit_success(
    outbox_id: str,
    result: Mapping[str, Any],
    writes: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    correlation_id: str | None = None,
    trace: TraceContext | None = None,
) -> list[dict[str, str]]:
    """Commit a success. Idempotent.

    Args:
        outbox_id: Names the run: `OperationInput.outbox_id`.
        result: Of the status document.
        writes: JSON forms of `TableWrite`, all in one table and partition.
        events: JSON forms of `engine.operations.request.Event`.
        now: Aware UTC instant.
        correlation_id: The caller's name for the wider piece of work; None when not given.
        trace: Trace context of the submission; None without tracing.

    Returns:
        `event_id`, `type` and `state` of each event.

    Raises:
        StorageRefusedError: Storage refuses the writes permanently.
    """
    location = OutboxLocation.from_json(writes[0]) if writes else own_location(outbox_id)
    outbox = [
        new_event(outbox_id, number, event, correlation_id, now, trace=trace)
        for number, event in enumerate(events, start=1)
    ]
    if outbox:
        await write_location(outbox_id, location)
        await note_pending(outbox_id, location, now)
    else:
        await note_commit(outbox_id, location, now)
    changes = [
        _commit_row(outbox_id, location, result, now),
        *(_change(write) for write in writes),
        *(("create", row_of(location, event)) for event in outbox),
    ]
    if not await tables.transact(location.table, changes) and not await _is_committed(outbox_id, location):
        raise tables.StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
    return [
        {"event_id": event.event_id, "type": event.event["type"], "state": event.state.value}
        for event in outbox
    ]


async def remove_commit(outbox_id: str, location: OutboxLocation) -> None:
    """Delete the commit row; a handler's own rows stay."""
    await tables.delete(location.table, location.partition_key, _commit_key(outbox_id))


async def _is_committed(outbox_id: str, location: OutboxLocation) -> bool:
    return await tables.read(location.table, location.partition_key, _commit_key(outbox_id)) is not None


def _commit_key(outbox_id: str) -> str:
    return f"commit-{outbox_id}"


def _commit_row(
    outbox_id: str, location: OutboxLocation, result: Mapping[str, Any], now: datetime
) -> tables.Change:
    row = {
        "PartitionKey": location.partition_key,
        "RowKey": _commit_key(outbox_id),
        "committed_at": to_rfc3339(now),
        **tables.packed("result", json.dumps(result)),
    }
    return ("create", row)


def _change(write: Mapping[str, Any]) -> tables.Change:
    row = {**write["values"], "PartitionKey": write["partition_key"], "RowKey": write["row_key"]}
    match write["mode"]:
        case "insert":
            return ("create", row)
        case "delete":
            return ("delete", row)
        case "merge":
            return ("upsert", row, {"mode": UpdateMode.MERGE})
        case _:
            return ("upsert", row, {"mode": UpdateMode.REPLACE})
