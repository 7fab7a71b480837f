"""The commit of an operation, one transaction: its result, a handler's table writes, and rows of features.

    row `commit-<run id>`      insert: a repeated commit of the same run finds it and changes nothing
    row `fence-<operation id>` beside a handler's rows: the highest run that has committed them
    a handler's own rows       with the handler's modes
    rows of features           inserted, such as those of events, see `plugins.Plugin.commit`

Before that, a marker says which run commits, see `markers.take_commit`. A later run may overtake it right
after; the fence is for this case. It is inserted, since an operation has one run as a rule. When it exists,
it is read, and replaced only in the version that was read: of two runs of one key the lower one never commits
after the higher. A commit without a handler's rows has a partition of its own for each run, and no fence.

An `update` of a handler is made only in the version of the row that was read here, and only if that is as the
handler expects. Otherwise nothing is committed (`ConflictError`).

A transaction cannot span partitions, so all rows are in the partition of the handler's writes; without writes
in the table `Commits`. A commit to which no feature adds rows is in a list of `CommitIndex`, by which
retention finds it:

    PK `committed`  RK <newest first><run id>

It has several partitions, by the run: see `storage.tables`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from durable_retry.base.answers import read_or
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.base.json_forms import JsonShape, is_same_json, newest_first, to_rfc3339
from durable_retry.plugins import plugins
from durable_retry.rules.operations.completion import SENT_ONCE, Success
from durable_retry.rules.operations.keys import OvertakenError, run_of
from durable_retry.rules.retry.history import Conflict
from durable_retry.runtime.deferred import imported
from durable_retry.storage import contents, tables
from durable_retry.storage.lists import partition_of

TABLE: Final = "Commits"
INDEX_TABLE: Final = "CommitIndex"

COMMITTED: Final = "committed"


@dataclass(frozen=True, slots=True)
class CommitLocation(JsonShape):
    """A partition of a table; its JSON form is also a part of rows."""

    table: str
    partition_key: str


def own_location(run_id: str) -> CommitLocation:
    """Return the location of a commit without a handler's writes."""
    return CommitLocation(TABLE, run_id)


def location_in(row: tables.Row, run_id: str) -> CommitLocation:
    """Return the location that a row names; where it cannot be read, the one that most runs have."""
    return read_or(lambda: CommitLocation.from_json(row), lambda _: own_location(run_id))


def _is_conditional(write: Mapping[str, Any]) -> bool:
    """Whether a write, in its JSON form, is made only where its row is as it expects."""
    return bool(write["mode"] == "update")


def sent_once(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member of a result with which a conflict of its commit does not run the handler again."""
    return {SENT_ONCE: True} if any(map(_is_conditional, result.get("writes", ()))) else {}


class ConflictError(Exception):
    """A row is not as the handler expects it for its `update`."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


async def commit_success(run_id: str, success: Success, now: datetime) -> None:
    """Commit a success, its writes all in one table and partition. Idempotent.

    Raises:
        StorageRefusedError: Storage refuses what the handler writes, and would refuse it again.
        ConflictError: A row is not as the handler expects it; nothing is committed.
        ContendedError: Other processes keep changing a row that it updates.
        ValueError: It has events, and the app has no feature that sends them.
    """
    location = CommitLocation.from_json(success.writes[0]) if success.writes else own_location(run_id)
    added = list[tables.Row]()
    for plugin in plugins():
        if plugin.commit:
            added += await imported(plugin.commit)(run_id, location, success, now)
    if success.events and not added:
        raise ValueError("nothing was committed: this app has no feature that sends events")
    if not added:
        await _note_commit(run_id, location, now)
    changes = [
        _commit_row(run_id, location, success.result, now),
        *(_change_of_write(write) for write in success.writes if not _is_conditional(write)),
        *(("create", row) for row in added),
    ]
    with tables.refusals():
        await _transact_commit(run_id, location, changes, list(filter(_is_conditional, success.writes)))


async def _note_commit(run_id: str, location: CommitLocation, now: datetime) -> None:
    keys = {"PartitionKey": partition_of(COMMITTED, run_id), "RowKey": f"{newest_first(now)}-{run_id}"}
    await tables.merge(INDEX_TABLE, keys | location.to_json())


async def _transact_commit(
    run_id: str,
    location: CommitLocation,
    changes: Sequence[tables.Change],
    updates: Sequence[Mapping[str, Any]],
) -> None:
    """Make the changes of a commit together with its fence, unless they were made before."""
    fence: tables.Versioned | None = None
    rows = await _read_updated(updates)
    for _ in range(tables.TRIES):
        conflict = next(filter(None, map(_conflict_of, updates, rows)), None)
        if conflict is not None:
            # Its own commit, whose answer was lost, may have changed the row.
            if await _is_committed(run_id, location):
                return
            raise ConflictError(conflict)
        refusal = StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
        updating = [
            tables.updated(row, _row_of_write(write), tables.MERGE)
            for write, row in zip(updates, rows, strict=True)
            if row is not None
        ]
        fencing = _fence_rows(run_id, location, fence)
        try:
            if await tables.transact(location.table, [*changes, *updating, *fencing]):
                return
        except StorageRefusedError as error:
            refusal = error
        if await _is_committed(run_id, location):
            return
        now_fence, now_rows = await _read_fence(run_id, location), await _read_updated(updates)
        # Neither changed, so another row of the handler's own was in the way and would be again.
        if (now_fence, now_rows) == (fence, rows):
            raise refusal
        if now_fence is not None and int(now_fence.row["run"]) > run_of(run_id):
            raise OvertakenError(int(now_fence.row["run"]), run_of(run_id))
        fence, rows = now_fence, now_rows
    raise ContendedError(f"{location.table} {location.partition_key}")


async def _read_updated(updates: Iterable[Mapping[str, Any]]) -> list[tables.Versioned | None]:
    return [
        await tables.read_version(update["table"], update["partition_key"], update["row_key"])
        for update in updates
    ]


def _conflict_of(update: Mapping[str, Any], stored: tables.Versioned | None) -> Conflict | None:
    """Return why a row cannot be updated; None where it is as the handler expects."""
    detail: str | None
    if stored is None:
        detail = "there is no such row"
    elif update.get("etag") not in (None, stored.etag):
        detail = "it was changed since it was read"
    else:
        values = {name: stored.row.get(name) for name in update.get("only_if", ())}
        # A long number has its type beside it.
        values = {name: getattr(value, "value", value) for name, value in values.items()}
        differing = (
            f"{name} is {values[name]!r:.80}, not {expected!r:.80}"
            for name, expected in update.get("only_if", {}).items()
            if not is_same_json(values[name], expected)
        )
        detail = next(differing, None)
    if detail is None:
        return None
    keys = {name: update[name] for name in ("table", "partition_key", "row_key")}
    return Conflict(**keys, detail=detail)


async def remove_commit(run_id: str, location: CommitLocation) -> None:
    """Delete the commit row, and the fence unless a later run set it; a handler's own rows stay."""
    await tables.delete(location.table, location.partition_key, _commit_key(run_id))
    # By its version: a later run that commits at this moment keeps the fence that it has set.
    fence = await _read_fence(run_id, location)
    if fence is not None and int(fence.row["run"]) <= run_of(run_id):
        row_key = _fence_keys(run_id, location)["RowKey"]
        await tables.delete_version(location.table, location.partition_key, row_key, fence.etag)


async def _read_fence(run_id: str, location: CommitLocation) -> tables.Versioned | None:
    if location == own_location(run_id):
        return None
    return await tables.read_version(location.table, *_fence_keys(run_id, location).values())


def _fence_rows(
    run_id: str, location: CommitLocation, before: tables.Versioned | None
) -> list[tables.Change]:
    """Return the change that makes a run the latest, if the fence is as it was read; none without a fence."""
    if location == own_location(run_id):
        return []
    # As text: a run's number is too large for a plain integer property.
    row = {**_fence_keys(run_id, location), "run": str(run_of(run_id))}
    return [tables.written_over(before, row)]


def _fence_keys(run_id: str, location: CommitLocation) -> dict[str, str]:
    operation_id = run_id.partition(".")[0]
    return {"PartitionKey": location.partition_key, "RowKey": f"fence-{operation_id}"}


async def _is_committed(run_id: str, location: CommitLocation) -> bool:
    return await tables.read(location.table, location.partition_key, _commit_key(run_id)) is not None


def _commit_key(run_id: str) -> str:
    return f"commit-{run_id}"


def _commit_row(
    run_id: str, location: CommitLocation, result: Mapping[str, Any], now: datetime
) -> tables.Change:
    row = {
        "PartitionKey": location.partition_key,
        "RowKey": _commit_key(run_id),
        "committed_at": to_rfc3339(now),
        **contents.packed("result", json.dumps(result)),
    }
    return ("create", row)


def _typed(value: Any) -> Any:
    """Return a property with its type where the SDK would take it for a 32-bit number."""
    is_long = isinstance(value, int) and not -(2**31) <= value < 2**31
    return (value, "Edm.Int64") if is_long else value


def _row_of_write(write: Mapping[str, Any]) -> tables.Row:
    values = {name: _typed(value) for name, value in write["values"].items()}
    return {**values, "PartitionKey": write["partition_key"], "RowKey": write["row_key"]}


def _change_of_write(write: Mapping[str, Any]) -> tables.Change:
    row = _row_of_write(write)
    match write["mode"]:
        case "insert":
            return ("create", row)
        case "delete":
            return ("delete", row)
        case "merge":
            return ("upsert", row, {"mode": tables.MERGE})
        case _:
            return ("upsert", row, {"mode": tables.REPLACE})
