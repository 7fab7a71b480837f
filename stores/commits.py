"""The commit of a success: result, a handler's table writes and outbox rows, in one entity-group transaction.

    row `commit-<operation>`   insert: a repeated commit finds it, changes nothing and gives the same answer
    a handler's own rows       as the handler said
    rows `outbox-<event id>`   one per follow-up message, state `pending`

All share the table and partition of the handler's writes, because a transaction cannot span them; without
writes they stand in the table `Outbox`. Where to look for pending rows is noted in `OutboxIndex` before the
transaction: whoever sweeps reads that index, whose size depends on what is pending, not on all ever sent.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from azure.data.tables import UpdateMode

from engine.instants import to_rfc3339
from engine.trace_context import TraceContext
from stores import tables
from stores.outbox import new_event, row_of
from stores.outbox_index import note_pending
from stores.outbox_place import Place, note_place, own_place


async def commit_success(
    operation_id: str,
    result: Mapping[str, Any],
    writes: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    correlation_id: str | None = None,
    trace: TraceContext | None = None,
) -> list[dict[str, str]]:
    """Commit a success, once however often this runs.

    Args:
        operation_id: Whose.
        result: What the status document will show.
        writes: JSON forms of `TableWrite`, all in one table and partition.
        events: JSON forms of `engine.models.Event`.
        now: Aware UTC instant.
        correlation_id: The caller's name for the wider piece of work; None when not given.
        trace: Where in a trace the operation was submitted; None when nobody traces it.

    Returns:
        `event_id`, `type` and `state` of each event.

    Raises:
        StorageRefusedError: The handler's writes can never be made as they are.
    """
    place = Place.from_json(writes[0]) if writes else own_place(operation_id)
    outbox = [
        new_event(operation_id, number, event, correlation_id, now, trace=trace)
        for number, event in enumerate(events, start=1)
    ]
    if outbox:
        await note_place(operation_id, place)
        await note_pending(operation_id, place, now)
    changes = [
        _commit_row(operation_id, place, result, now),
        *(_change(write) for write in writes),
        *(("create", row_of(place, event)) for event in outbox),
    ]
    if not await tables.transact(place.table, changes) and not await _is_committed(operation_id, place):
        raise tables.StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
    return [
        {"event_id": event.event_id, "type": event.event["type"], "state": event.state.value}
        for event in outbox
    ]


async def remove_commit(operation_id: str, place: Place) -> None:
    """Remove the row of a commit; what a handler wrote beside it stays."""
    await tables.delete(place.table, place.partition_key, _commit_key(operation_id))


async def _is_committed(operation_id: str, place: Place) -> bool:
    return await tables.read(place.table, place.partition_key, _commit_key(operation_id)) is not None


def _commit_key(operation_id: str) -> str:
    return f"commit-{operation_id}"


def _commit_row(operation_id: str, place: Place, result: Mapping[str, Any], now: datetime) -> tables.Change:
    row = {
        "PartitionKey": place.partition_key,
        "RowKey": _commit_key(operation_id),
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
