"""Lists that many processes write at once: several partitions, since storage bounds what one takes a second.

A list `open` has the partitions `open`, `open-1`, `open-2` and `open-3`.
"""

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import Final
from zlib import crc32

from durable_retry.stores.storage.tables import Page, rows_between

SHARDS: Final = 4
"""Partitions of a list."""


def partitions(name: str) -> list[str]:
    """Return the partitions of a list."""
    return [str(name), *(f"{name}-{shard}" for shard in range(1, SHARDS))]


def partition_of(name: str, item_id: str) -> str:
    """Return the partition of a list that has an item."""
    return partitions(name)[crc32(item_id.encode()) % SHARDS]


async def merged_rows(
    table: str,
    partition_keys: Sequence[str],
    *,
    after: str = "",
    before: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page:
    """Return rows of several partitions in row-key order, at one request for each; see `rows_between`."""
    pages = await asyncio.gather(
        *(
            rows_between(table, key, after=after, before=before, limit=limit, cursor=cursor)
            for key in partition_keys
        )
    )
    rows = sorted((row for page in pages for row in page.rows), key=itemgetter("RowKey"))
    if limit is None or (len(rows) <= limit and all(page.cursor is None for page in pages)):
        return Page(rows, None)
    return Page(rows[:limit], str(rows[limit - 1]["RowKey"]))
