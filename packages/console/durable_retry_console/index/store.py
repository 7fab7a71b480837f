"""The index of operations: what lists and searches read, the newest first, at a cost that stays the same.

A task hub cannot give that: Azure Storage has no index of status, time or name, and reads every instance.

    PK `all-<newest first>`     RK <writer>-<n>   operations, many to a row
    PK `failed-<newest first>`  the same: those that failed, were held up, or ended otherwise than well
    PK `writer`                 RK <writer>    a process that holds entries not written yet, and since when

    Table `OperationNames`: PK `named-<shard>`  RK <hash>-<newest first>-<id>   one per operation and name

A partition of the first two kinds holds what was created in `BUCKET_SECONDS`. Its rows are in no order, so it
is read whole; partitions are in the order of time.

Many entries share a row (`index.notes`), so an operation that has none of `NAMED` costs far less
than a row. An entry says where to look; what is true of the operation is in its status document.
"""

import json
import uuid
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from hashlib import sha256
from itertools import batched
from operator import methodcaller
from typing import Annotated, Final

from durable_retry.base.json_forms import (
    Form,
    JsonRow,
    from_microseconds,
    from_rfc3339,
    microseconds,
    newest_first,
    to_rfc3339,
)
from durable_retry.base.names import FINISHED, OperationState, Priority
from durable_retry.base.text import may_mention
from durable_retry.storage import contents, tables
from durable_retry.storage.rounds import partitions_after

TABLE: Final = "OperationIndex"
NAMES_TABLE: Final = "OperationNames"

NAMED: Final = ("correlation_id", "order_key", "limit_key", "debounce_key")
"""Names that operations share, which find these however many others there are."""

BUCKET_SECONDS: Final = 10

_ENTRIES_PER_ROW: Final = 500
_BYTES_PER_PROPERTY: Final = 60_000

_LAST_BUCKET: Final = 10**11 - 1
_WRITERS: Final = "writer"
_NAMED: Final = "named-"
# A process makes a request for each in a second, and storage takes 2,000 rows a second in each: more than the
# names of all operations that an account can start.
_SHARDS: Final = 4


class OperationList(StrEnum):
    """The operations that a list has."""

    ALL = "all"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEntry(JsonRow):
    """One operation in the index."""

    operation_id: str
    # Aware UTC instant of the status document.
    created_at: Annotated[datetime, Form(microseconds, from_microseconds)]
    key: str
    dependency: str
    handler: str | None  # None for a request
    source: str
    correlation_id: str | None  # None when it has none
    status: OperationState | None = None  # when it was noted; None of one that was just accepted
    error: str = ""  # the last one then, cut; "" for none
    noted_us: int = 0  # microseconds since 1970; see `rank`
    order_key: str | None = None
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None
    debounce_key: str | None = None
    # False where the task hub did not say whether it took it over; None where it did.
    was_answered: bool | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """The highest of several entries of an operation counts, whatever their clocks say.

        Attempts can fail after a cancellation, and what a success wants to write can be refused.
        """
        if self.status not in FINISHED:
            return 0, self.noted_us
        return 1 if self.status is OperationState.SUCCEEDED else 2, self.noted_us

    @property
    def position(self) -> tuple[datetime, str]:
        """What lists are ordered by."""
        return self.created_at, self.operation_id


def rows_of_entries(
    name: str, held: Iterable[tuple[OperationList, OperationEntry]]
) -> Iterator[tuple[str, tuple[tables.Row, ...]]]:
    """Yield the rows of entries in their lists, as few as their partitions allow, and the table of them.

    What is yielded together fits a transaction. Row keys begin with the name, which is unique to this call.
    """
    grouped: dict[tuple[OperationList, int], list[OperationEntry]] = defaultdict(list)
    named_rows: dict[str, dict[str, tables.Row]] = defaultdict(dict)
    for kind, entry in held:
        grouped[kind, _bucket_of(entry.created_at)].append(entry)
        if kind is OperationList.ALL:
            for row in _named_rows(entry):
                named_rows[row["PartitionKey"]][row["RowKey"]] = row
    for where, entries in grouped.items():
        for number, some in enumerate(batched(entries, _ENTRIES_PER_ROW, strict=False)):
            keys = {"PartitionKey": _partition_of_bucket(*where), "RowKey": f"{name}-{number}"}
            yield TABLE, (keys | _packed_entries(some),)
    for rows in named_rows.values():
        for of_names in batched(rows.values(), tables.MOST_CHANGES, strict=False):
            yield NAMES_TABLE, of_names


def row_of_gap(name: str, since: datetime) -> tables.Row:
    """Return the row that says that a process may lose what it noted since an instant."""
    return {"PartitionKey": _WRITERS, "RowKey": name, "since": to_rfc3339(since)}


def end_gap(name: str) -> None:
    """Do as `close_gap` on this thread."""
    tables.with_table(TABLE, methodcaller("delete_entity", _WRITERS, name))


async def gaps(since_before: datetime) -> dict[str, datetime]:
    """Return processes that may have lost entries, and since when, if that is before an instant."""
    page = await tables.rows_between(TABLE, _WRITERS)
    readable_gaps = contents.readable(
        TABLE, page.rows, lambda row: (str(row["RowKey"]), from_rfc3339(row["since"]))
    )
    return {name: since for name, since in readable_gaps if since < since_before}


async def close_gap(name: str) -> None:
    """Forget a process whose entries were added."""
    await tables.delete(TABLE, _WRITERS, name)


# The name of a partition, and its rows.
type _Partition = tuple[str, list[tables.Row]]


async def buckets(
    kinds: Iterable[OperationList],
    before: datetime | None,
    words: str | None = None,
    since: datetime | None = None,
) -> AsyncIterator[tuple[datetime, int, list[OperationEntry]]]:
    """Iterate over lists as over one, from an instant (None: the newest), the newest first.

    `since` is in the last bucket; None for all.

    Each step gives the beginning of a bucket's time, the rows that it has, and its entries, the newest first;
    of each operation the entry that was noted last. Rows without one of the words are left out, which costs
    less than to look at their entries.
    """
    heads: dict[AsyncIterator[_Partition], _Partition] = {}
    taken = [_partitions_before(kind, before, since) for kind in kinds]
    while True:
        for partitions in taken:
            if (head := await anext(partitions, None)) is not None:
                heads[partitions] = head
        if not heads:
            return
        begin = max(_begin_of(name) for name, _ in heads.values())
        taken = [partitions for partitions, (name, _) in heads.items() if _begin_of(name) == begin]
        rows = [row for partitions in taken for row in heads.pop(partitions)[1]]
        yield begin, len(rows), _latest_entries(rows, words)


async def _partitions_before(
    kind: OperationList, before: datetime | None, since: datetime | None = None
) -> AsyncIterator[_Partition]:
    after = f"{kind.value}-" if before is None else _partition_of_bucket(kind, _bucket_of(before) + 1)
    end = f"{kind.value}." if since is None else _partition_of_bucket(kind, _bucket_of(since) - 1)
    limit = _FEWEST_ROWS
    while after:
        partitions, following = await partitions_after(TABLE, after, limit=limit, before=end)
        is_cut = limit < _MOST_ROWS and [len(rows) for _, rows in partitions] == [limit]
        if not is_cut:
            for partition in partitions:
                yield partition
            after = following
        limit = min(4 * limit, _MOST_ROWS)


_FEWEST_ROWS: Final = 20
_MOST_ROWS: Final = 2_000


def _latest_entries(rows: Iterable[tables.Row], words: str | None = None) -> list[OperationEntry]:
    latest: dict[tuple[datetime, str], OperationEntry] = {}
    # What only a damaged row has is found by key and id, and in no list.
    for entries in contents.readable(TABLE, rows, partial(_unpacked_entries, words=words)):
        for entry in entries:
            earlier = latest.get(entry.position)
            if earlier is None or earlier.rank <= entry.rank:
                latest[entry.position] = entry
    return [latest[position] for position in sorted(latest, reverse=True)]


async def ids_of_name(name: str, *, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
    """Return the ids of operations that have one of `NAMED` of this text, and the cursor of the next ones.

    The newest are first. The cost depends on the page alone.
    """
    digest = _digest_of_name(name)
    page = await tables.rows_between(
        NAMES_TABLE,
        _shard_of_digest(digest),
        after=f"{digest}-",
        before=f"{digest}.",
        limit=limit,
        cursor=cursor,
    )
    return [row["RowKey"].split("-", 2)[-1] for row in page.rows], page.cursor


async def remove_older(
    kind: OperationList,
    before: datetime,
    part: tuple[int, int],
    is_needed: Callable[[OperationEntry], Awaitable[bool]],
    purge: Callable[[Sequence[OperationEntry]], Awaitable[None]],
) -> AsyncIterator[int]:
    """Remove the partitions that end before an instant, one at each step; yield how many entries it had.

    An entry of an operation that had not ended stays where `is_needed`. `part` takes only the partitions
    whose number leaves the first when divided by the second. From the list of all, operations are purged.
    """
    async for name, rows in _partitions_before(kind, before - timedelta(seconds=BUCKET_SECONDS)):
        if int(name.rpartition("-")[2]) % part[1] != part[0]:
            continue
        entries = _latest_entries(rows)
        open_ = [entry for entry in entries if entry.status is not None and entry.status not in FINISHED]
        kept = [entry for entry in open_ if await is_needed(entry)]
        if kept and len(kept) == len(entries) and len(rows) == 1:
            continue
        if kind is OperationList.ALL:
            await purge(entries)
        if kept:
            keys = {"PartitionKey": name, "RowKey": f"kept-{uuid.uuid4().hex}"}
            await tables.merge(TABLE, keys | _packed_entries(kept))
        if kind is OperationList.ALL:
            await tables.delete_rows(NAMES_TABLE, [row for each in entries for row in _named_rows(each)])
        await tables.delete_rows(TABLE, rows)
        yield len(entries)


def _packed_entries(entries: Iterable[OperationEntry]) -> tables.Row:
    text = json.dumps([entry.to_json() for entry in entries], separators=(",", ":"))
    data = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
    parts = range(0, len(data), _BYTES_PER_PROPERTY)
    return {f"entries_{number}": data[at : at + _BYTES_PER_PROPERTY] for number, at in enumerate(parts)}


def _unpacked_entries(row: tables.Row, words: str | None) -> list[OperationEntry]:
    parts: list[bytes] = []
    while (part := row.get(f"entries_{len(parts)}")) is not None:
        parts.append(part)
    try:
        text = zlib.decompress(b"".join(parts)).decode("utf-8", "surrogatepass")
    except zlib.error as error:
        raise ValueError(error) from error
    if words is not None and not may_mention(words, text):
        return []
    return [OperationEntry.from_json(entry) for entry in json.loads(text)]


def _named_rows(entry: OperationEntry) -> Iterator[tables.Row]:
    for name in {getattr(entry, name) for name in NAMED} - {None, ""}:
        digest = _digest_of_name(name)
        row_key = f"{digest}-{newest_first(entry.created_at)}-{entry.operation_id}"
        yield {"PartitionKey": _shard_of_digest(digest), "RowKey": row_key}


def _digest_of_name(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _shard_of_digest(digest: str) -> str:
    return f"{_NAMED}{int(digest[0], 16) % _SHARDS}"


def _bucket_of(instant: datetime) -> int:
    return microseconds(instant) // (BUCKET_SECONDS * 1_000_000)


def _partition_of_bucket(kind: OperationList, bucket: int) -> str:
    return f"{kind.value}-{_LAST_BUCKET - bucket:011d}"


def _begin_of(partition: str) -> datetime:
    bucket = _LAST_BUCKET - int(partition.rpartition("-")[2])
    return from_microseconds(bucket * BUCKET_SECONDS * 1_000_000)
