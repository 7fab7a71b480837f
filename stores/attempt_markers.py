"""Markers of attempts that must not be made twice: for requests that the dependency does not deduplicate.

    insert marker (if absent) --> call --> note the outcome, or free the marker when nothing left this side
          |                        |            |
       crash: made again,       crash: the next execution finds a marker
       nothing was sent         without outcome: ambiguous, never sent again

An activity is executed at least once, so the same attempt can run twice, even at the same time. Only the
execution that inserts the marker may send.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from engine.instants import to_rfc3339
from stores import tables

TABLE: Final = "AttemptMarkers"


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


def _keys(operation_id: str, attempt: int) -> dict[str, str]:
    return {"PartitionKey": operation_id, "RowKey": f"{attempt:010d}"}
