"""Lists that several partitions share: storage bounds what one partition takes a second.

    open, open-1, open-2, open-3

Older versions wrote all rows to the first one, so a row may be there too.
"""

from typing import Final
from zlib import crc32

SHARDS: Final = 4


def partitions(name: str) -> list[str]:
    """Return the partitions of a list."""
    return [str(name), *(f"{name}-{shard}" for shard in range(1, SHARDS))]


def partition_of(name: str, item_id: str) -> str:
    """Return the partition of a list that an item is written to."""
    return partitions(name)[crc32(item_id.encode()) % SHARDS]


def partitions_with(name: str, item_id: str) -> list[str]:
    """Return the partitions that may have an item: also the one of older versions."""
    return list(dict.fromkeys((partition_of(name, item_id), str(name))))
