"""Walks over the partitions of a table, and the stored positions from which the next run of upkeep goes on.

Table `Upkeep`: PK `place`   RK <name of the walk>
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from durable_retry.runtime import clock
from durable_retry.storage import tables
from durable_retry.storage.tables import Row

TABLE: Final = "Upkeep"

_PLACE: Final = "place"


async def partitions_after(
    table: str, after: str, *, limit: int, only: Sequence[str] | None = None, before: str | None = None
) -> tuple[list[tuple[str, list[Row]]], str]:
    """Return the partitions between two exclusive bounds, whole, in key order.

    With them the cursor of the next call: "" when these were the last.
    """
    rows = await tables.rows_after(table, after, limit=limit, before=before, only=only)
    partitions = [(key, list(group)) for key, group in groupby(rows, lambda row: str(row["PartitionKey"]))]
    if len(rows) < limit:
        return partitions, ""
    # The last partition may have unread rows; the next page repeats it, unless it fills this page alone.
    whole = partitions[:-1] or partitions
    return whole, whole[-1][0]


@dataclass(frozen=True, slots=True)
class Round:
    """The position of a walk that goes on with each run of upkeep."""

    after: str = ""  # the cursor of the next step; "" between two rounds
    begun_at: str = ""  # when the round began, RFC 3339; "" where the walk does not use it


async def read_round(name: str) -> Round:
    """Return where a walk goes on."""
    row = await tables.read(TABLE, _PLACE, name)
    # One that cannot be read begins anew.
    return Round() if row is None else Round(str(row.get("after", "")), str(row.get("begun_at", "")))


async def write_round(name: str, place: Round) -> None:
    """Store where a walk goes on."""
    keys = {"PartitionKey": _PLACE, "RowKey": name}
    await tables.merge(TABLE, keys | {"after": place.after, "begun_at": place.begun_at})


async def pages_from_place[P](
    name: str, read: Callable[[str | None], Awaitable[tuple[P, str | None]]], seconds: float = 0.0
) -> AsyncGenerator[P]:
    """Yield pages from where the last run stopped, until the end of the round or for so long; at least one.

    `read` takes a cursor and returns a page with the next cursor; None is before the first and after the
    last. The place behind a page is stored before the page is used: a page that takes all of a run's time
    must not take that of the next run as well.
    """
    until, place = clock.monotonic_seconds() + seconds, (await read_round(name)).after
    while True:
        before, (page, following) = place, await read(place or None)
        place = following or ""
        if place != before:
            await write_round(name, Round(place))
        yield page
        if not place or clock.monotonic_seconds() >= until:
            return
