"""What an operation writes to tables: markers of its attempts, and its commit.

Markers are for requests that the dependency does not deduplicate, and must be sent once only.

    insert marker (if absent) --> call --> write the outcome; delete the marker when nothing was sent
          |                        |            |
       crash: the attempt       crash: the next execution finds a marker
       is made again            without outcome: ambiguous, never sent again

The marker holds the name of its execution. An insert can take effect although its answer is lost, or is 503
in every try; what is then read back has the name of this execution. One that cannot read it back sends
nothing and says so in its answer, so that a later one, in whatever process, may take the marker over.

An activity is executed at least once, so the same attempt can run twice, even concurrently. Only the
execution that inserts the marker may send.

A handler's attempt has a marker too, which counts how often it began: one that ends its process each time
would otherwise be run for ever.

Markers are deleted long after their attempt (`services.upkeep.removal`): a delayed execution may resume
after its end and must still find the marker. That of the last attempt stays until the operation has ended.

A commit is result, a handler's table writes and outbox rows, in one entity-group transaction.

    row `commit-<outbox id>`   insert: a repeated commit of the same run finds it and changes nothing
    row `fence-<operation id>` beside a handler's rows: the highest run that has committed them
    a handler's own rows       with the handler's modes
    rows `outbox-<event id>`   one per follow-up message, state `pending`

The fence is inserted, since an operation has one run as a rule. When it exists, it is read, and replaced in
the version that was read: of two runs of one key the lower never commits behind the higher, however late it
comes. A commit without a handler's rows has a partition of its own for each run, and no fence.

A transaction cannot span partitions, so all rows are in the partition of the handler's writes; without writes
in the table `Outbox`. The location is written to `OutboxIndex` before the transaction, so that a sweeper
finds pending rows at a cost that depends on what is pending only.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from azure.core.exceptions import AzureError

from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.operations.naming import run_of
from durable_retry.errors import StorageRefusedError
from durable_retry.stores.outbox.events import new_event, row_of
from durable_retry.stores.outbox.index import (
    OutboxLocation,
    note_commit,
    note_pending,
    own_location,
    write_location,
)
from durable_retry.stores.storage import contents, rounds, tables

TABLE: Final = "AttemptMarkers"


@dataclass(frozen=True, slots=True)
class Marked:
    """An earlier execution of the same attempt."""

    outcome: dict[str, Any] | None  # its outcome; None when it was never written


@dataclass(frozen=True, slots=True)
class _Marker:
    execution: str
    outcome: str = ""


async def insert_marker(
    operation_id: str, attempt: int, now: datetime, execution: str = "", unsent: Collection[str] = ()
) -> Marked | None:
    """Insert the marker of one attempt; None when this execution may send it.

    Markers of `unsent` executions, which sent nothing, are taken over. `execution` is a name that no other
    has; "" makes one.

    Raises:
        azure.core.exceptions.AzureError: Storage failed; the marker may be there.
        StorageRefusedError: Storage does not take it now.
        ContendedError: Others kept changing it.
    """
    keys, execution = _keys_of_marker(operation_id, attempt), execution or uuid4().hex
    row = {"marked_at": to_rfc3339(now), "execution": execution}

    def rule(known: _Marker | None) -> _Marker:
        return _Marker(execution) if known is None or known.execution in unsent else known

    if not unsent:  # One request, where the change is two.
        with suppress(AzureError):
            if await tables.insert_if_absent(TABLE, keys | row):
                return None
    marker = await tables.change_row(TABLE, keys, rule, read=_read_marker, write=lambda _: row)
    if marker.execution == execution:
        return None
    return Marked(json.loads(marker.outcome) if marker.outcome else None)


def _read_marker(row: tables.Row) -> _Marker:
    return _Marker(str(row.get("execution")), contents.unpacked("outcome", row))


async def count_start(operation_id: str, attempt: int, now: datetime) -> int:
    """Note in the attempt's marker that a handler is about to run; return how often it began, from 1."""
    row = _keys_of_marker(operation_id, attempt) | {"marked_at": to_rfc3339(now)}
    while not await tables.insert_if_absent(TABLE, row | {"starts": 1}):
        found = await tables.read_version(TABLE, row["PartitionKey"], row["RowKey"])
        if found is None:
            continue
        starts = int(found.row.get("starts", 0)) + 1
        if await tables.merge_version(TABLE, row | {"starts": starts}, found.etag):
            return starts
    return 1


async def write_outcome(operation_id: str, attempt: int, outcome: dict[str, Any]) -> None:
    """Write an attempt's outcome to its marker, so that a second execution returns the same."""
    row = _keys_of_marker(operation_id, attempt) | contents.packed("outcome", json.dumps(outcome))
    await tables.merge(TABLE, row)


async def remove_marker(operation_id: str, attempt: int) -> None:
    """Delete a marker: the attempt was never sent and is made again under the same number."""
    keys = _keys_of_marker(operation_id, attempt)
    await tables.delete(TABLE, keys["PartitionKey"], keys["RowKey"])


async def remove_markers(run: str, attempts: Iterable[int]) -> None:
    """Delete markers of one run."""
    await tables.delete_rows(TABLE, (_keys_of_marker(run, attempt) for attempt in attempts))


@dataclass(frozen=True, slots=True)
class MarkedRun:
    """The markers of one run of an operation."""

    name: str  # the markers' partition
    marked: Mapping[int, datetime]  # when each attempt was marked, by its number, in their order; aware UTC

    @property
    def operation_id(self) -> str:
        """Id of the operation; a replay's run name has the dead letter's id behind a dot."""
        return self.name.partition(".")[0]

    def before(self, instant: datetime) -> list[int]:
        """Return the attempts that were marked before an instant."""
        return [attempt for attempt, marked_at in self.marked.items() if marked_at < instant]


async def marked_runs(after: str, limit: int, before: str | None = None) -> tuple[list[MarkedRun], str]:
    """Return runs that have markers, by their names between exclusive bounds, and the next call's cursor.

    `rounds.FIRST` means that these were the last.
    """
    only = ("PartitionKey", "RowKey", "marked_at")
    found, following = await rounds.partitions_after(TABLE, after, limit=limit, only=only, before=before)
    return [_marked_run(name, rows) for name, rows in found], following


def _marked_run(name: str, rows: Iterable[tables.Row]) -> MarkedRun:
    # An outcome written after its marker was deleted leaves a row without a time: treat it as old.
    return MarkedRun(
        name,
        {
            int(row["RowKey"]): from_rfc3339(str(row["marked_at"]))
            if row.get("marked_at")
            else datetime.min.replace(tzinfo=UTC)
            for row in rows
        },
    )


def _keys_of_marker(operation_id: str, attempt: int) -> dict[str, str]:
    return {"PartitionKey": operation_id, "RowKey": f"{attempt:010d}"}


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
    """Commit a success, its writes all in one table and partition; return its events by id, type and state.

    Idempotent.

    Raises:
        StorageRefusedError: Storage refuses the writes permanently, or a later run of the key made its own.
    """
    location = OutboxLocation.from_json(writes[0]) if writes else own_location(outbox_id)
    outbox = [
        new_event(outbox_id, number, event, correlation_id, now, trace=trace)
        for number, event in enumerate(events, start=1)
    ]
    if outbox:
        await write_location(outbox_id, location)
        await note_pending(outbox_id, location, now, events=len(outbox))
    else:
        await note_commit(outbox_id, location, now)
    changes = [
        _commit_row(outbox_id, location, result, now),
        *(_change_of_write(write) for write in writes),
        *(("create", row_of(location, event)) for event in outbox),
    ]
    await _transact_commit(outbox_id, location, changes)
    return [
        {"event_id": event.event_id, "type": event.event["type"], "state": event.state.value}
        for event in outbox
    ]


async def _transact_commit(
    outbox_id: str, location: OutboxLocation, changes: Sequence[tables.Change]
) -> None:
    """Make the changes of a commit together with its fence, unless they were made before.

    Raises:
        StorageRefusedError: A later run of the operation has committed here, or storage refuses the changes.
    """
    fence: tables.Versioned | None = None
    while True:
        refusal = StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
        try:
            if await tables.transact(location.table, [*changes, *_fence_rows(outbox_id, location, fence)]):
                return
        except StorageRefusedError as error:
            refusal = error
        if await _is_committed(outbox_id, location):
            return
        seen = await _read_fence(outbox_id, location)
        if seen == fence:
            raise refusal
        if seen is not None and int(seen.row["run"]) > run_of(outbox_id):
            lost = f"run {seen.row['run']} of this key has committed; run {run_of(outbox_id)} lost its claim"
            raise StorageRefusedError(lost)
        fence = seen


async def remove_commit(outbox_id: str, location: OutboxLocation) -> None:
    """Delete the commit row, and the fence unless a later run set it; a handler's own rows stay."""
    await tables.delete(location.table, location.partition_key, _commit_key(outbox_id))
    fence = await _read_fence(outbox_id, location)
    if fence is not None and int(fence.row["run"]) <= run_of(outbox_id):
        row_key = _fence_keys(outbox_id, location)["RowKey"]
        await tables.delete_version(location.table, location.partition_key, row_key, fence.etag)


async def _read_fence(outbox_id: str, location: OutboxLocation) -> tables.Versioned | None:
    if location == own_location(outbox_id):
        return None
    return await tables.read_version(location.table, *_fence_keys(outbox_id, location).values())


def _fence_rows(
    outbox_id: str, location: OutboxLocation, before: tables.Versioned | None
) -> list[tables.Change]:
    """Return the change that makes a run the latest, if the fence is as it was read; none without a fence."""
    if location == own_location(outbox_id):
        return []
    # As text: a run's number is too large for a plain integer property.
    row = {**_fence_keys(outbox_id, location), "run": str(run_of(outbox_id))}
    return [tables.written_over(before, row)]


def _fence_keys(outbox_id: str, location: OutboxLocation) -> dict[str, str]:
    operation_id = outbox_id.partition(".")[0]
    return {"PartitionKey": location.partition_key, "RowKey": f"fence-{operation_id}"}


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
