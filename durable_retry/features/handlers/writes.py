"""A handler's table writes, in the transaction that commits its result (`attempt.commits`).

    row `fence-<operation id>`   the highest run that has committed a handler's rows
    a handler's own rows         with the handler's modes

A later run may overtake one right after its marker of the commit was written; the fence is for this case. It
is inserted, since an operation has one run as a rule. When it exists, it is read, and replaced only in the
version that was read: of two runs of one key the lower one never commits after the higher.

An `update` is made only in the version of the row that was read here, and only if that is as the handler
expects. Otherwise nothing is committed (`ConflictError`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from durable_retry.attempt.commits import CommitLocation, ConflictError, is_committed, try_commit
from durable_retry.base.errors import ContendedError
from durable_retry.base.json_forms import is_same_json
from durable_retry.rules.operations.completion import SENT_ONCE
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.retry.history import Conflict
from durable_retry.storage import tables


def _is_conditional(write: Mapping[str, Any]) -> bool:
    """Whether a write, in its JSON form, is made only where its row is as it expects."""
    return bool(write["mode"] == "update")


def sent_once(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member of a result with which a conflict of its commit does not run the handler again."""
    return {SENT_ONCE: True} if any(map(_is_conditional, result.get("writes", ()))) else {}


async def commit_writes(
    run_id: str,
    location: CommitLocation,
    changes: Sequence[tables.Change],
    writes: Sequence[Mapping[str, Any]],
) -> None:
    """Make the changes of a commit together with a handler's writes and the fence of these. Idempotent.

    Raises:
        StorageRefusedError: Storage refuses what the handler writes, and would refuse it again.
        ConflictError: A row is not as the handler expects it; nothing is committed.
        ContendedError: Other processes keep changing a row that it updates.
        OvertakenError: A later run has committed its own.
    """
    updates = list(filter(_is_conditional, writes))
    changes = [*changes, *(_change_of_write(write) for write in writes if not _is_conditional(write))]
    fence: tables.Versioned | None = None
    rows = await _read_updated(updates)
    for _ in range(tables.TRIES):
        conflict = next(filter(None, map(_conflict_of, updates, rows)), None)
        if conflict is not None:
            # Its own commit, whose answer was lost, may have changed the row.
            if await is_committed(run_id, location):
                return
            raise ConflictError(conflict)
        updating = [
            tables.updated(version, _row_of_write(write), tables.MERGE)
            for write, version in zip(updates, rows, strict=True)
            if version is not None
        ]
        # As text: a run's number is too large for a plain integer property.
        row = {**_fence_keys(run_id, location), "run": str(run_of(run_id))}
        fencing = tables.written_over(fence, row)
        refusal = await try_commit(run_id, location, [*changes, *updating, fencing])
        if refusal is None:
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


def run_of(run_id: str) -> int:
    """Return the run number in what `run_id_for` returned."""
    return int(run_id.rpartition(".")[2])


async def remove_fence(run_id: str, location: CommitLocation) -> None:
    """Delete the fence of a commit that was removed, unless a later run set it."""
    # By its version: a later run that commits at this moment keeps the fence that it has set.
    fence = await _read_fence(run_id, location)
    if fence is not None and int(fence.row["run"]) <= run_of(run_id):
        row_key = _fence_keys(run_id, location)["RowKey"]
        await tables.delete_version(location.table, location.partition_key, row_key, fence.etag)


async def _read_fence(run_id: str, location: CommitLocation) -> tables.Versioned | None:
    return await tables.read_version(location.table, *_fence_keys(run_id, location).values())


def _fence_keys(run_id: str, location: CommitLocation) -> dict[str, str]:
    operation_id = run_id.partition(".")[0]
    return {"PartitionKey": location.partition_key, "RowKey": f"fence-{operation_id}"}


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
