"""Walks over the operations' partitions of a table, and where a removal that walks in rounds goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from durable_retry.stores.storage import tables
from durable_retry.stores.storage.tables import Row

FIRST: Final = "op"
"""Sorts before every operation's partition and after the row of the removal's cursor."""

_CURSORS: Final = "!removal"


async def partitions_after(
    table: str, after: str, *, limit: int, only: Sequence[str], before: str | None = None
) -> tuple[list[tuple[str, list[Row]]], str]:
    """Return the partitions of operations between two exclusive bounds, whole, in key order.

    With them the cursor of the next call: `FIRST` when these were the last.
    """
    rows = await tables.rows_after(table, after, limit=limit, before=before, only=only)
    found = [(key, list(group)) for key, group in groupby(rows, lambda row: str(row["PartitionKey"]))]
    if len(rows) < limit:
        return found, FIRST
    # The last partition may have more rows than were read; the next page repeats it, unless it fills this.
    whole = found[:-1] or found
    return whole, whole[-1][0]


@dataclass(frozen=True, slots=True)
class Round:
    """The position of a removal that scans a whole table in rounds."""

    after: str = FIRST  # the cursor of the next step; `FIRST` between two rounds
    begun_at: str = ""  # when the round began, RFC 3339; "" before the first


async def read_round(table: str, name: str = "place") -> Round:
    """Return where a removal of this name goes on in a table."""
    row = await tables.read(table, _CURSORS, name)
    # One that cannot be read begins anew.
    return Round() if row is None else Round(str(row.get("after", FIRST)), str(row.get("begun_at", "")))


async def write_round(table: str, place: Round, name: str = "place") -> None:
    """Store where a removal goes on."""
    keys = {"PartitionKey": _CURSORS, "RowKey": name}
    await tables.merge(table, keys | {"after": place.after, "begun_at": place.begun_at})
