"""The markers of a handler's attempt (`attempt.markers`).

One counts how often the attempt began: a handler whose process dies each time would otherwise run for ever. A
handler that finds the marker of another start of its life goes on in the run of that start, and so finds its
steps. Before the handler sends, outside of a step, its first request that must be sent once only, it inserts
another marker, `SENT`, which has the meaning of a request's marker.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from durable_retry.attempt import markers
from durable_retry.attempt.markers import Marker, kept_or, keys_of_marker, read_marker
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.rules.operations.keys import Life, Met
from durable_retry.storage import tables

SENT: Final = ".sent"
"""Behind the number of an attempt: the marker of what its handler sends once only."""


async def find_marked(life: Life, attempt: int, part: str, unsent: Collection[str]) -> Marker | None:
    """Return the marker that an earlier execution inserted in this life; None where none did.

    Raises:
        OvertakenError: A later life has begun.
    """
    row = await tables.read(markers.TABLE, *keys_of_marker(life.owner, attempt, part).values())
    if row is None:
        return None
    mine, marker = Marker(life.run, life.owner), read_marker(life.owner, row)
    is_over = marker.execution in unsent or kept_or(mine, life, marker) is mine
    return None if is_over else marker


@dataclass(frozen=True, slots=True)
class Starts:
    """How often an attempt of a handler began, and in which run it goes on."""

    count: int  # from 1, the present one included
    run: int


async def count_start(life: Life, attempt: int, now: datetime) -> Starts:
    """Note in the attempt's marker that a handler is about to run."""
    row = keys_of_marker(life.owner, attempt) | {"marked_at": to_rfc3339(now)}
    mine = Marker(life.run, life.owner)
    # Inserted before it is read: most attempts begin once, and then this is their only request.
    while not await tables.insert_if_absent(markers.TABLE, row | {"run": str(life.run), "starts": 1}):
        version = await tables.read_version(markers.TABLE, row["PartitionKey"], row["RowKey"])
        if version is None:
            # Removed between the two requests, so it can be inserted after all.
            continue
        marker = read_marker(life.owner, version.row)
        run, before = kept_or(mine, life, marker).run, int(version.row.get("starts", 0))
        starts = Starts(1 if life.meet(marker.run) is Met.EARLIER else before + 1, run)
        changed = row | {"run": str(run), "starts": starts.count}
        if await tables.merge_version(markers.TABLE, changed, version.etag):
            return starts
    return Starts(1, life.run)
