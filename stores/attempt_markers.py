"""Markers of attempts that must not be made twice: for requests that the dependency does not deduplicate.

    insert marker (if absent) --> call --> note the outcome, or free the marker when nothing left this side
          |                        |            |
       crash: made again,       crash: the next execution finds a marker
       nothing was sent         without outcome: ambiguous, never sent again

An activity is executed at least once, so the same attempt can run twice, even at the same time. Only the
execution that inserts the marker may send.

Markers go long after their operation ended (`stores.retention`), and not with it: an execution that was held
up may come back after the end, and must still find the marker.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from engine.instants import from_rfc3339, to_rfc3339
from stores import tables

TABLE: Final = "AttemptMarkers"

FIRST: Final = "op"
"""Sorts before every operation's markers, and after the row that remembers how far the removal came."""

_PLACE: Final = {"PartitionKey": "!removal", "RowKey": "place"}


@dataclass(frozen=True, slots=True)
class Marked:
    """An earlier execution of the same attempt.

    Attributes:
        outcome: What it gave; None when it never said so.
    """

    outcome: dict[str, Any] | None


async def mark_attempt(operation_id: str, attempt: int, now: datetime) -> Marked | None:
    """Claim one attempt; None when this execution may make it.

    Args:
        operation_id: Whose.
        attempt: From 1.
        now: Aware UTC instant, for whoever reads the table.
    """
    keys = _keys(operation_id, attempt)
    if await tables.insert_if_absent(TABLE, {**keys, "marked_at": to_rfc3339(now)}):
        return None
    row = await tables.read(TABLE, keys["PartitionKey"], keys["RowKey"])
    text = "" if row is None else tables.unpacked("outcome", row)
    return Marked(json.loads(text) if text else None)


async def note_outcome(operation_id: str, attempt: int, outcome: dict[str, Any]) -> None:
    """Write what an attempt gave beside its marker, so that a second execution gives the same."""
    row = _keys(operation_id, attempt) | tables.packed("outcome", json.dumps(outcome))
    await tables.merge(TABLE, row)


async def free_attempt(operation_id: str, attempt: int) -> None:
    """Take a marker away: the attempt never left this side, and is made again under the same number."""
    keys = _keys(operation_id, attempt)
    await tables.delete(TABLE, keys["PartitionKey"], keys["RowKey"])


@dataclass(frozen=True, slots=True)
class MarkedRun:
    """The markers of one run of an operation.

    Attributes:
        name: What the attempts were marked under.
        attempts: Their numbers.
        marked_at: When the last of them was marked, aware UTC.
    """

    name: str
    attempts: tuple[int, ...]
    marked_at: datetime

    @property
    def operation_id(self) -> str:
        """Whose run it is; a replay's has the dead letter's id behind a dot."""
        return self.name.partition(".")[0]


async def marked_runs(after: str, limit: int) -> tuple[list[MarkedRun], str]:
    """Return runs that have markers, in the order of their names.

    Args:
        after: Behind this name.
        limit: The most markers to look at.

    Returns:
        The runs, and where to go on: `FIRST` when these were the last.
    """
    only = ("PartitionKey", "RowKey", "marked_at")
    rows = await tables.rows_after(TABLE, after, limit=limit, only=only)
    runs = [_run(name, of_run) for name, of_run in groupby(rows, lambda row: str(row["PartitionKey"]))]
    if len(rows) < limit:
        return runs, FIRST
    # The last run may have more markers than were read; it comes again, unless it fills the page alone.
    whole = runs[:-1] or runs
    return whole, whole[-1].name


async def removal_place() -> str:
    """Return where the last removal stopped."""
    row = await tables.read(TABLE, *_PLACE.values())
    return FIRST if row is None else str(row["after"])


async def note_removal_place(after: str) -> None:
    """Remember where a removal stopped."""
    await tables.merge(TABLE, {**_PLACE, "after": after})


def _run(name: str, rows: Iterable[tables.Row]) -> MarkedRun:
    found = list(rows)
    # An outcome that is noted after its marker was removed makes a row without a time: it is old.
    told = [from_rfc3339(str(row["marked_at"])) for row in found if row.get("marked_at")]
    marked_at = max(told, default=datetime.min.replace(tzinfo=UTC))
    return MarkedRun(name, tuple(int(row["RowKey"]) for row in found), marked_at)


def _keys(operation_id: str, attempt: int) -> dict[str, str]:
    return {"PartitionKey": operation_id, "RowKey": f"{attempt:010d}"}
