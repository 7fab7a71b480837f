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
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from azure.data.tables import UpdateMode

from engine.instants import to_rfc3339
from stores import tables

OUTBOX_TABLE: Final = "Outbox"
INDEX_TABLE: Final = "OutboxIndex"
INDEX_PARTITION: Final = "pending"

PENDING: Final = "pending"


@dataclass(frozen=True, slots=True)
class Place:
    """The partition in which an operation's rows stand."""

    table: str
    partition_key: str


async def commit_success(
    operation_id: str,
    result: Mapping[str, Any],
    writes: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: datetime,
) -> list[dict[str, str]]:
    """Commit a success, once however often this runs.

    Args:
        operation_id: Whose.
        result: What the status document will show.
        writes: JSON forms of `TableWrite`, all in one table and partition.
        events: JSON forms of `engine.models.Event`.
        now: Aware UTC instant.

    Returns:
        `event_id`, `type` and `state` of each event.

    Raises:
        StorageRefusedError: The handler's writes can never be made as they are.
    """
    place = (
        Place(writes[0]["table"], writes[0]["partition_key"]) if writes else Place(OUTBOX_TABLE, operation_id)
    )
    shown = [
        {"event_id": f"{operation_id}.{number}", "type": event["type"], "state": PENDING}
        for number, event in enumerate(events, start=1)
    ]
    if events:
        await _note_pending(operation_id, place, now)
    changes = [
        _commit_row(operation_id, place, result, now),
        *(_change(write) for write in writes),
        *(
            _outbox_row(place, operation_id, seen["event_id"], event, now)
            for seen, event in zip(shown, events, strict=True)
        ),
    ]
    if not await tables.transact(place.table, changes) and not await _is_committed(operation_id, place):
        raise tables.StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
    return shown


async def _note_pending(operation_id: str, place: Place, now: datetime) -> None:
    row = {
        "PartitionKey": INDEX_PARTITION,
        "RowKey": operation_id,
        "table": place.table,
        "partition_key": place.partition_key,
        "noted_at": to_rfc3339(now),
    }
    await tables.merge(INDEX_TABLE, row)


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


def _outbox_row(
    place: Place, operation_id: str, event_id: str, event: Mapping[str, Any], now: datetime
) -> tables.Change:
    row = {
        "PartitionKey": place.partition_key,
        "RowKey": f"outbox-{event_id}",
        "operation_id": operation_id,
        "event_id": event_id,
        "state": PENDING,
        "created_at": to_rfc3339(now),
        **tables.packed("event", json.dumps(event)),
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
