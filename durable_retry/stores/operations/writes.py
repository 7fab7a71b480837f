"""The commit of an operation: result, a handler's table writes and outbox rows, in one transaction.

    row `commit-<run id>`      insert: a repeated commit of the same run finds it and changes nothing
    row `fence-<operation id>` beside a handler's rows: the highest run that has committed them
    a handler's own rows       with the handler's modes
    rows `outbox-<event id>`   one per follow-up message, state `pending`

A marker says before which run commits, see `stores.operations.markers.take_commit`. One that was let through
may be overtaken right after, and for that is the fence. It is inserted, since an operation has one run as a
rule. When it exists, it is read, and replaced in the version that was read: of two runs of one key the lower
never commits behind the higher, however late it comes. A commit without a handler's rows has a partition of
its own for each run, and no fence.

A transaction cannot span partitions, so all rows are in the partition of the handler's writes; without writes
in the table `Outbox`. The location is written to `OutboxIndex` before the transaction, so that a sweeper
finds pending rows at a cost that depends on what is pending only.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from durable_retry.engine.base.errors import StorageRefusedError
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.operations.keys import run_of
from durable_retry.engine.operations.steps import OvertakenError
from durable_retry.stores.outbox.events import new_event, row_of
from durable_retry.stores.outbox.index import (
    OutboxLocation,
    note_commit,
    note_pending,
    own_location,
    write_location,
)
from durable_retry.stores.storage import contents, tables


async def commit_success(
    run_id: str,
    result: Mapping[str, Any],
    writes: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    correlation_id: str | None = None,
    trace: TraceContext | None = None,
) -> list[dict[str, str]]:
    """Commit a success, its writes all in one table and partition; return its events by id, type and state.

    Idempotent.

    Raises:
        StorageRefusedError: Storage refuses the writes permanently.
        OvertakenError: A later run of the key made its own.
    """
    location = OutboxLocation.from_json(writes[0]) if writes else own_location(run_id)
    outbox = [
        new_event(run_id, number, event, correlation_id, now, trace=trace)
        for number, event in enumerate(events, start=1)
    ]
    # Before the transaction: a crash in between costs the sweeper one look at nothing, whereas committed
    # events that no index names would never be sent.
    if outbox:
        await write_location(run_id, location)
        await note_pending(run_id, location, now, events=len(outbox))
    else:
        await note_commit(run_id, location, now)
    changes = [
        _commit_row(run_id, location, result, now),
        *(_change_of_write(write) for write in writes),
        *(("create", row_of(location, event)) for event in outbox),
    ]
    await _transact_commit(run_id, location, changes)
    return [
        {"event_id": event.event_id, "type": event.event["type"], "state": event.state.value}
        for event in outbox
    ]


async def _transact_commit(run_id: str, location: OutboxLocation, changes: Sequence[tables.Change]) -> None:
    """Make the changes of a commit together with its fence, unless they were made before.

    Raises:
        OvertakenError: A later run of the operation has committed here.
        StorageRefusedError: Storage refuses the changes.
    """
    fence: tables.Versioned | None = None
    while True:
        refusal = StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
        try:
            if await tables.transact(location.table, [*changes, *_fence_rows(run_id, location, fence)]):
                return
        except StorageRefusedError as error:
            refusal = error
        if await _is_committed(run_id, location):
            return
        seen = await _read_fence(run_id, location)
        # The fence did not move, so a row of the handler's own was in the way and would be again.
        if seen == fence:
            raise refusal
        if seen is not None and int(seen.row["run"]) > run_of(run_id):
            raise OvertakenError(int(seen.row["run"]), run_of(run_id))
        fence = seen


async def remove_commit(run_id: str, location: OutboxLocation) -> None:
    """Delete the commit row, and the fence unless a later run set it; a handler's own rows stay."""
    await tables.delete(location.table, location.partition_key, _commit_key(run_id))
    # By its version: a later run that commits at this moment keeps the fence that it has set.
    fence = await _read_fence(run_id, location)
    if fence is not None and int(fence.row["run"]) <= run_of(run_id):
        row_key = _fence_keys(run_id, location)["RowKey"]
        await tables.delete_version(location.table, location.partition_key, row_key, fence.etag)


async def _read_fence(run_id: str, location: OutboxLocation) -> tables.Versioned | None:
    if location == own_location(run_id):
        return None
    return await tables.read_version(location.table, *_fence_keys(run_id, location).values())


def _fence_rows(
    run_id: str, location: OutboxLocation, before: tables.Versioned | None
) -> list[tables.Change]:
    """Return the change that makes a run the latest, if the fence is as it was read; none without a fence."""
    if location == own_location(run_id):
        return []
    # As text: a run's number is too large for a plain integer property.
    row = {**_fence_keys(run_id, location), "run": str(run_of(run_id))}
    return [tables.written_over(before, row)]


def _fence_keys(run_id: str, location: OutboxLocation) -> dict[str, str]:
    operation_id = run_id.partition(".")[0]
    return {"PartitionKey": location.partition_key, "RowKey": f"fence-{operation_id}"}


async def _is_committed(run_id: str, location: OutboxLocation) -> bool:
    return await tables.read(location.table, location.partition_key, _commit_key(run_id)) is not None


def _commit_key(run_id: str) -> str:
    return f"commit-{run_id}"


def _commit_row(
    run_id: str, location: OutboxLocation, result: Mapping[str, Any], now: datetime
) -> tables.Change:
    row = {
        "PartitionKey": location.partition_key,
        "RowKey": _commit_key(run_id),
        "committed_at": to_rfc3339(now),
        **contents.packed("result", json.dumps(result)),
    }
    return ("create", row)


def _change_of_write(write: Mapping[str, Any]) -> tables.Change:
    row = {**write["values"], "PartitionKey": write["partition_key"], "RowKey": write["row_key"]}
    match write["mode"]:
        case "insert":
            return ("create", row)
        case "delete":
            return ("delete", row)
        case "merge":
            return ("upsert", row, {"mode": tables.MERGE})
        case _:
            return ("upsert", row, {"mode": tables.REPLACE})
