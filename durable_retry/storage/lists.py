"""Lists that many processes write at once: in several partitions, since storage limits writes to each.

A list `open` has the partitions `open`, `open-1`, `open-2` and `open-3`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

from durable_retry.storage import tables

SHARDS: Final = 4
"""Partitions of a list."""


def partitions(name: str) -> list[str]:
    return [str(name), *(f"{name}-{shard}" for shard in range(1, SHARDS))]


def partition_of(name: str, item_id: str) -> str:
    return partitions(name)[crc32(item_id.encode()) % SHARDS]


@dataclass(frozen=True, slots=True)
class MergedPage(tables.Page):
    """One page of several partitions; `unread` are those that have rows behind it."""

    unread: tuple[str, ...]


async def merged_rows(
    table: str, partition_keys: Sequence[str], *, limit: int | None = None, is_cut: bool = True, **which: Any
) -> MergedPage:
    """Return rows of several partitions in row-key order, at one request for each; see `rows_between`.

    `limit` bounds the rows of each partition, and of the whole page where `is_cut`.
    """
    pages = await asyncio.gather(
        *(tables.rows_between(table, key, limit=limit, **which) for key in partition_keys)
    )
    # A partition with unread rows may have the next row: the order is complete up to its last row only.
    complete = min((page.cursor for page in pages if page.cursor is not None), default=None)
    in_order = (row for page in pages for row in page.rows if complete is None or row["RowKey"] <= complete)
    rows = sorted(in_order, key=itemgetter("RowKey"))[: limit if is_cut else None]
    last = str(rows[-1]["RowKey"]) if rows else ""
    unread = tuple(
        key
        for key, page in zip(partition_keys, pages, strict=True)
        if page.cursor is not None or (page.rows and page.rows[-1]["RowKey"] > last)
    )
    return MergedPage(rows, last if unread else None, unread)
