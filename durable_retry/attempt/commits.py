"""The commit of an operation, one transaction: its result, a handler's table writes, and rows of features.

    row `commit-<run id>`      insert: a repeated commit of the same run finds it and changes nothing
    a handler's own rows       and their fence, see `features.handlers.writes`
    rows of features           inserted, such as those of events, see `plugins.Plugin.commit`

Before that, a marker says which run commits, see `markers.take_commit`.

A transaction cannot span partitions, so all rows are in the partition of the handler's writes; without writes
in the table `Commits`, where each run has a partition of its own. A commit to which no feature adds rows is
in a list of `CommitIndex`, by which retention finds it:

    PK `committed`  RK <newest first><run id>

It has several partitions, by the run: see `storage.tables`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from durable_retry.base.answers import read_or
from durable_retry.base.errors import StorageRefusedError
from durable_retry.base.json_forms import JsonShape, newest_first, to_rfc3339
from durable_retry.plugins import hook, plugins
from durable_retry.rules.operations.completion import Success
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
    writing = hook("handlers") if success.writes else ""
    if success.events and not added:
        raise ValueError("nothing was committed: this app has no feature that sends events")
    if success.writes and not writing:
        raise ValueError("nothing was committed: this app has no feature that writes rows")
    if not added:
        await _note_commit(run_id, location, now)
    changes = [
        _commit_row(run_id, location, success.result, now),
        *(("create", row) for row in added),
    ]
    with tables.refusals():
        if writing:
            await imported(f"{writing}.writes:commit_writes")(run_id, location, changes, success.writes)
        elif (refusal := await try_commit(run_id, location, changes)) is not None:
            raise refusal


async def try_commit(
    run_id: str, location: CommitLocation, changes: Sequence[tables.Change]
) -> StorageRefusedError | None:
    """Make the changes of a commit, unless they were made before; return why they cannot be made now."""
    refusal = StorageRefusedError("EntityAlreadyExists: a row that the handler inserts exists")
    try:
        if await tables.transact(location.table, changes):
            return None
    except StorageRefusedError as error:
        refusal = error
    return None if await is_committed(run_id, location) else refusal


async def _note_commit(run_id: str, location: CommitLocation, now: datetime) -> None:
    keys = {"PartitionKey": partition_of(COMMITTED, run_id), "RowKey": f"{newest_first(now)}-{run_id}"}
    await tables.merge(INDEX_TABLE, keys | location.to_json())


async def remove_commit(run_id: str, location: CommitLocation) -> None:
    """Delete the commit row, and the fence unless a later run set it; a handler's own rows stay."""
    await tables.delete(location.table, location.partition_key, _commit_key(run_id))
    if location != own_location(run_id) and (writing := hook("handlers")):
        await imported(f"{writing}.writes:remove_fence")(run_id, location)


async def is_committed(run_id: str, location: CommitLocation) -> bool:
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
