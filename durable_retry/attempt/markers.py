"""What must not be done twice: the markers of attempts and of commits.

A run writes a marker before it does what must not be done twice.

    partition   their owner, `OperationInput.owner`; of a commit the operation
    row key     number of the attempt, or `commit`
    run         number of the run that wrote it, to which another run compares its own, see `keys.Life`

A marker of an earlier life is replaced, on condition of the version that was read. One of a later life ends
the run that meets it.

Those of attempts are for requests that the dependency does not deduplicate, and must be sent once only.

    insert marker (if absent) --> call --> write the outcome; delete the marker when nothing was sent
          |                        |            |
       crash: the attempt       crash: the next execution finds a marker without outcome: it waits for as long
       is made again            as that may come, and is ambiguous then; never sent again

The marker holds the name of its execution. An insert can take effect although its answer is lost, or is 503
in every try; the marker that is then read back has the name of this execution. An execution that cannot read
it back sends nothing and says so in its answer, so that a later one may take the marker over.

An activity is executed at least once, so the same attempt can run twice, even concurrently. Only the
execution that inserts the marker may send.

The marker of a commit says under which run the operation commits: two starts of one life commit the same,
and a run that a replay has overtaken commits nothing.

Markers are deleted long after their attempt (`features.retention`): a delayed execution may resume
after its end and must still find the marker. The last one stays until the operation has ended.
"""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import uuid4

from azure.core.exceptions import AzureError

from durable_retry.base.json_forms import instant_in, to_rfc3339
from durable_retry.rules.operations.keys import Life, Met, OvertakenError
from durable_retry.storage import contents, tables

TABLE: Final = "AttemptMarkers"

_COMMIT: Final = "commit"


@dataclass(frozen=True, slots=True)
class Marker:
    """What an execution of an attempt or of a commit wrote."""

    run: int  # its run
    owner: str  # of a commit; else that of all in its partition
    execution: str = ""
    outcome: dict[str, Any] | None = None  # its outcome; None when it was never written
    ends_at: datetime | None = None  # until when it may write it; None when that is not known


def kept_or(own: Marker, life: Life, stored: Marker | None) -> Marker:
    """Return the marker to store: the stored one if it is of the same life, else that of this run."""
    if stored is None:
        return own
    match life.meet(stored.run, stored.owner):
        case Met.SAME:
            return stored
        case Met.EARLIER:
            return own
    raise OvertakenError(stored.run, life.run)


async def insert_marker(
    life: Life,
    attempt: int,
    *,
    now: datetime,
    ends_at: datetime | None = None,
    execution: str = "",
    unsent: Collection[str] = (),
    part: str = "",
) -> Marker | None:
    """Insert the marker of one attempt, or of a part of it; return an earlier one, None if it may be sent.

    Markers of `unsent` executions, which sent nothing, are taken over.

    Args:
        ends_at: Until when this execution may write its outcome; None when that is not known.
        execution: A name that no other has; "" makes one.
    """
    keys, execution = keys_of_marker(life.owner, attempt, part), execution or uuid4().hex
    row = {"marked_at": to_rfc3339(now), "run": str(life.run), "execution": execution}
    row |= {} if ends_at is None else {"ends_at": to_rfc3339(ends_at)}
    own = Marker(life.run, life.owner, execution, ends_at=ends_at)

    def rule(stored: Marker | None) -> Marker:
        return own if stored is not None and stored.execution in unsent else kept_or(own, life, stored)

    if not unsent:  # One request, where `change_row` takes two.
        with suppress(AzureError):
            if await tables.insert_if_absent(TABLE, keys | row):
                return None
    read = partial(read_marker, life.owner)
    marker = await tables.change_row(TABLE, keys, rule, read=read, write=lambda _: row)
    return None if marker.execution == execution else marker


def read_marker(owner: str, row: tables.Row) -> Marker:
    outcome = contents.unpacked("outcome", row)
    return Marker(
        run=int(row.get("run", 0)),
        owner=str(row.get("owner", owner)),
        execution=str(row.get("execution")),
        outcome=json.loads(outcome) if outcome else None,
        ends_at=instant_in(row, "ends_at"),
    )


async def take_commit(operation_id: str, life: Life, now: datetime) -> int:
    """Write the marker of a commit; return the run under whose number it is made: the first of its life."""
    keys = {"PartitionKey": operation_id, "RowKey": _COMMIT}
    row = {"marked_at": to_rfc3339(now), "run": str(life.run), "owner": life.owner}
    own = Marker(life.run, life.owner)
    if await tables.insert_if_absent(TABLE, keys | row):
        return life.run
    taken: Marker = await tables.change_row(
        TABLE,
        keys,
        partial(kept_or, own, life),
        read=lambda stored: Marker(int(stored["run"]), str(stored["owner"])),
        write=lambda _: row,
    )
    return taken.run


async def write_outcome(owner: str, attempt: int, outcome: dict[str, Any], part: str = "") -> None:
    """Write an attempt's outcome to its marker, so that a second execution returns the same."""
    row = keys_of_marker(owner, attempt, part) | contents.packed("outcome", json.dumps(outcome))
    await tables.merge(TABLE, row)


async def remove_marker(owner: str, attempt: int, part: str = "") -> None:
    """Delete a marker: nothing took effect, and the attempt is made again under the same number."""
    await tables.delete(TABLE, *keys_of_marker(owner, attempt, part).values())


def keys_of_marker(owner: str, attempt: int, part: str = "") -> dict[str, str]:
    return {"PartitionKey": owner, "RowKey": f"{attempt:010d}{part}"}
