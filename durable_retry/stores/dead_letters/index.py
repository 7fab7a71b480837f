"""The index rows and counters of dead letters: each list is one range of row keys in some partitions.

    open, replayed, archived         the partitions of each status, by the id: see `stores.tables`

    n|<list>|<newest first><id>      one row per list that a dead letter stands in, see `Facets.lists`
    o|<list>|<oldest first><id>      of open ones: the oldest first, of all, by reason and by dependency
    d|<archived at><id>              of archived ones: the next to delete first
    t|<writer>, g|<group>|<writer>   counters of open ones

All rows of one dead letter under one status are in one partition, and written in one transaction together
with that partition's counters of open ones. So the rows exist all or not at all, and the counters match them.

Each process writes one of `_WRITERS` rows of the counters, so that processes seldom conflict. The sum over
them is exact. A single one may be negative: another process may have made the increment.
"""

import asyncio
import json
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from durable_retry.engine.base.json_forms import DIGITS, from_rfc3339, newest_first, oldest_first, to_rfc3339
from durable_retry.engine.dead_letters.record import FACETS, DeadLetterRecord, Facets, Status
from durable_retry.stores import tables
from durable_retry.stores.tables import partition_of, partitions, partitions_with, quoted

TABLE: Final = "DeadLetterIndex"

AFTER_ALL: Final = "~"
"""Sorts after every character that a key can contain."""

NAMES: Final = ("key", "operation_id", "correlation_id", "detail")
NAME_CHARS: Final = 300
"""Characters of each that an index row has."""

_OLDEST_FIRST_LISTS: Final = ("all", "reason=", "dependency=")
"""Lists of open dead letters that are also kept the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The fields of a dead letter that its index rows carry.

    Attributes:
        id: Its id.
        created_at: Never changes.
        facets: Fields that filters use; never change.
        names: Fields of `NAMES` that a search looks into; never change. None in rows of older versions.
    """

    id: str
    created_at: datetime
    facets: Facets
    names: Mapping[str, str] | None = None

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return the entry of a dead letter."""
        names = {name: (getattr(record, name) or "")[:NAME_CHARS] for name in NAMES}
        return cls(id=record.id, created_at=record.created_at, facets=Facets.of(record), names=names)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read what `properties` wrote."""
        return cls(
            id=row["dead_letter_id"],
            created_at=from_rfc3339(row["created_at"]),
            facets=Facets(**{name: row[name] for name in FACETS}),
            names=json.loads(row["names"]) if "names" in row else None,
        )

    @property
    def position(self) -> str:
        """Position in every list that begins with the newest; also the cursor that continues behind it."""
        return f"{newest_first(self.created_at)}{self.id}"

    def properties(self) -> dict[str, str]:
        """Return the properties of its rows without the keys."""
        facets = self.facets
        return {
            "dead_letter_id": self.id,
            "created_at": to_rfc3339(self.created_at),
            "reason": facets.reason,
            "category": facets.category,
            "dependency": facets.dependency,
            "group": facets.group,
            # As JSON, whose ASCII takes any character that a message can have.
            **({} if self.names is None else {"names": json.dumps(dict(self.names))}),
        }

    def keys_under(self, status: Status) -> Iterator[str]:
        """Return the row keys under a status."""
        for name in self.facets.lists:
            yield f"{list_prefix(name)}{self.position}"
            if status is Status.OPEN and name.startswith(_OLDEST_FIRST_LISTS):
                yield f"{oldest_prefix(name)}{oldest_first(self.created_at)}{self.id}"


def id_at(position: str) -> str:
    """Return the id of the dead letter at a position, see `IndexEntry.position`."""
    return position[DIGITS:]


def list_prefix(name: str) -> str:
    """Return the key prefix of a list."""
    return f"n|{quoted(name)}|"


def oldest_prefix(name: str) -> str:
    """Return the key prefix of a list that begins with the oldest."""
    return f"o|{quoted(name)}|"


def due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    """Return the key of an archived dead letter in the order of deletion."""
    return f"d|{oldest_first(archived_at)}{dead_letter_id}"


_ALL: Final = "all"
_WRITERS: Final = 16
_WRITER: Final = f"{uuid.uuid4().int % _WRITERS:02d}"
_DETAIL_CHARS: Final = 300

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

_COUNTERS_KEPT: Final = 256

type _Counters = OrderedDict[tuple[str, str], tables.Versioned]

_counters: WeakKeyDictionary[asyncio.AbstractEventLoop, _Counters] = WeakKeyDictionary()
"""Counter rows as this process wrote them last. A process mostly has its own: to read them again before each
dead letter was half of its requests. Where another has changed one, storage refuses the old version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCount:
    """Open dead letters of one kind.

    Attributes:
        count: Number of open ones.
        oldest_at: Creation time of the oldest; None when there is none.
    """

    count: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of open dead letters: all, by reason, and by dependency ("" for messages without one)."""

    total: OpenCount
    by_reason: Mapping[str, OpenCount]
    by_dependency: Mapping[str, OpenCount]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Open dead letters of one root cause.

    Attributes:
        group: Its name.
        count: Number of open ones.
        first_seen_at: Creation time of the first one ever counted, also when it is closed by now.
        last_seen_at: Creation time of the latest.
        sample: `id`, `dependency`, `category`, `reason` and `detail` of the latest.
    """

    group: str
    count: int
    first_seen_at: datetime
    last_seen_at: datetime
    sample: Mapping[str, Any]


def counter_lock() -> asyncio.Lock:
    """Return the lock of this process's counter rows."""
    return _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


async def counter_changes(record: DeadLetterRecord, step: int, partition: str) -> list[tables.Change]:
    """Return the counter changes for listing (step 1) or unlisting (step -1) an open dead letter."""
    totals, group = await asyncio.gather(
        _counter(partition, _totals_key()), _counter(partition, _group_key(record.group))
    )
    keys = {"PartitionKey": partition}
    return [
        tables.written_over(totals, keys | _totals_after(totals, IndexEntry.of(record), step)),
        tables.written_over(group, keys | _group_after(group, record, step)),
    ]


async def _counter(partition: str, key: str) -> tables.Versioned | None:
    """Return a counter row to change it; it is known again after `_keep_counters`."""
    known = _counters.setdefault(asyncio.get_running_loop(), OrderedDict()).pop((partition, key), None)
    return known or await tables.read_version(TABLE, partition, key)


def _keep_counters(written: Iterable[tuple[tables.Change, str]]) -> None:
    known = _counters[asyncio.get_running_loop()]
    for change, etag in written:
        if etag:
            known[change[1]["PartitionKey"], change[1]["RowKey"]] = tables.Versioned(change[1], etag)
    while len(known) > _COUNTERS_KEPT:
        known.popitem(last=False)


async def read_summary() -> Summary:
    """Count open dead letters and find the oldest of each kind, at a cost by the number of kinds.

    The oldest is asked for in each partition that has some of the kind, and once for all kinds to which
    everything in a partition belongs: mostly one reason and one dependency fail.
    """
    page = await tables.merged_rows(TABLE, partitions(Status.OPEN), after="t|", before="t|" + AFTER_ALL)
    in_partition: dict[str, Counter[str]] = {}
    for row in page.rows:
        counts = json.loads(tables.unpacked("counts", row))
        in_partition.setdefault(row["PartitionKey"], Counter()).update(counts)
    places = {
        (partition, name): (partition, _ALL if count == counts[_ALL] else name)
        for partition, counts in in_partition.items()
        for name, count in counts.items()
        if count > 0 and name != _ALL
    }
    asked = sorted(set(places.values()))
    instants = dict(zip(asked, await asyncio.gather(*(_oldest(*place) for place in asked)), strict=True))
    totals: Counter[str] = sum(in_partition.values(), Counter())
    oldest: dict[str, list[datetime]] = {}
    for (_, name), place in places.items():
        for instant in instants[place]:
            oldest.setdefault(name, []).append(instant)
            oldest.setdefault(_ALL, []).append(instant)
    found = {
        name: OpenCount(count=count, oldest_at=min(oldest.get(name, ()), default=None))
        for name, count in totals.items()
    }
    return Summary(
        total=found.get(_ALL, OpenCount(count=0, oldest_at=None)),
        by_reason=_of_kind(found, "reason="),
        by_dependency=_of_kind(found, "dependency="),
    )


async def read_groups() -> list[Group]:
    """Return groups with open dead letters, the latest first, at a cost that depends on their number."""
    page = await tables.merged_rows(TABLE, partitions(Status.OPEN), after="g|", before="g|" + AFTER_ALL)
    rows_by_group: dict[str, list[tables.Row]] = {}
    for row in page.rows:
        rows_by_group.setdefault(row["group"], []).append(row)
    groups = [_group(name, rows) for name, rows in rows_by_group.items()]
    found = (group for group in groups if group.count > 0)
    return sorted(found, key=lambda group: (group.last_seen_at, group.group), reverse=True)


def _totals_after(stored: tables.Versioned | None, entry: IndexEntry, step: int) -> tables.Row:
    counts = Counter({} if stored is None else json.loads(tables.unpacked("counts", stored.row)))
    for name in (_ALL, f"reason={entry.facets.reason}", f"dependency={entry.facets.dependency}"):
        counts[name] += step
    left = {name: count for name, count in counts.items() if count != 0}
    return {"RowKey": _totals_key(), **tables.packed("counts", json.dumps(left))}


def _group_after(stored: tables.Versioned | None, record: DeadLetterRecord, step: int) -> tables.Row:
    row: tables.Row = {} if stored is None else stored.row
    created_at = to_rfc3339(record.created_at)
    keys = {"RowKey": _group_key(record.group), "group": record.group}
    count = int(row.get("count", 0)) + step
    first_seen_at = min((row.get("first_seen_at", created_at), created_at), key=from_rfc3339)
    last_seen_at = max((row.get("last_seen_at", created_at), created_at), key=from_rfc3339)
    is_latest = last_seen_at == created_at
    sample = json.dumps(_sample(record)) if is_latest else row["sample"]
    return {
        **keys,
        "count": count,
        "first_seen_at": first_seen_at,
        "last_seen_at": last_seen_at,
        "sample": sample,
    }


def _sample(record: DeadLetterRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "dependency": record.dependency,
        "category": record.category.value,
        "reason": record.reason.value,
        "detail": record.detail[:_DETAIL_CHARS],
    }


async def _oldest(partition: str, name: str) -> list[datetime]:
    """Return when the oldest of a kind in a partition was made; nothing when there is none any more."""
    prefix = oldest_prefix(name)
    page = await tables.rows_between(TABLE, partition, after=prefix, before=prefix + AFTER_ALL, limit=1)
    return [from_rfc3339(row["created_at"]) for row in page.rows]


def _of_kind(found: Mapping[str, OpenCount], kind: str) -> dict[str, OpenCount]:
    named = {name.removeprefix(kind): count for name, count in found.items() if name.startswith(kind)}
    return dict(sorted(named.items()))


def _group(name: str, rows: Iterable[tables.Row]) -> Group:
    ordered = sorted(rows, key=lambda row: from_rfc3339(row["last_seen_at"]))
    return Group(
        group=name,
        count=sum(int(row["count"]) for row in ordered),
        first_seen_at=min(from_rfc3339(row["first_seen_at"]) for row in ordered),
        last_seen_at=from_rfc3339(ordered[-1]["last_seen_at"]),
        sample=json.loads(ordered[-1]["sample"]),
    )


def _totals_key() -> str:
    return f"t|{_WRITER}"


def _group_key(group: str) -> str:
    return f"g|{group}|{_WRITER}"


_TRIES: Final = 20


class IndexContendedError(Exception):
    """Other processes kept changing the same counters. The step is safe to repeat."""


async def list_open(record: DeadLetterRecord) -> None:
    """List a new dead letter."""
    await _list_open(record, partition_of(Status.OPEN, record.id))


async def move_to_status(record: DeadLetterRecord) -> None:
    """List a dead letter under its status and remove it from the lists of the others."""
    entry = IndexEntry.of(record)
    listed = await _listed_in(entry, record.status)
    partition = listed or partition_of(record.status, record.id)
    if record.status is Status.OPEN:
        await _list_open(record, partition)
    else:
        await _list_closed(record, partition)
    for status in Status:
        if status is not record.status:
            await _unlist(record, status)


async def unlist_archived(entry: IndexEntry, archived_at: datetime) -> None:
    """Remove a deleted dead letter from the lists of archived ones."""
    partition = await _listed_in(entry, Status.ARCHIVED)
    if partition is not None:
        await _delete(entry, Status.ARCHIVED, partition)
    await drop_due(entry.id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Remove a dead letter from the queue of those to delete."""
    for partition in partitions_with(Status.ARCHIVED, dead_letter_id):
        await tables.delete(TABLE, partition, due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[IndexEntry, datetime]]:
    """Return dead letters archived before an instant with the archiving time of each, the oldest first."""
    page = await tables.merged_rows(
        TABLE, partitions(Status.ARCHIVED), after="d|", before=due_key(archived_before), limit=limit
    )
    return [(IndexEntry.from_row(row), from_rfc3339(row["archived_at"])) for row in page.rows]


async def _list_open(record: DeadLetterRecord, partition: str) -> None:
    entry = IndexEntry.of(record)
    rows = [_row(partition, key, entry) for key in entry.keys_under(Status.OPEN)]
    await _counted(record, partition, [("create", row) for row in rows], step=1)


async def _list_closed(record: DeadLetterRecord, partition: str) -> None:
    entry = IndexEntry.of(record)
    rows = [_row(partition, key, entry) for key in entry.keys_under(record.status)]
    if record.archived_at is not None:
        # Not removed when the dead letter is restored; the removal compares the archiving time.
        due_row = _row(partition, due_key(record.archived_at, record.id), entry)
        rows.append({**due_row, "archived_at": to_rfc3339(record.archived_at)})
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def _unlist(record: DeadLetterRecord, status: Status) -> None:
    entry = IndexEntry.of(record)
    partition = await _listed_in(entry, status)
    if partition is None:
        return
    if status is Status.OPEN:
        keys = entry.keys_under(status)
        await _counted(record, partition, [("delete", _keys(partition, key)) for key in keys], step=-1)
    else:
        await _delete(entry, status, partition)


async def _delete(entry: IndexEntry, status: Status, partition: str) -> None:
    changes: list[tables.Change] = [("delete", _keys(partition, key)) for key in entry.keys_under(status)]
    try:
        await tables.transact(TABLE, changes)
    except tables.StorageRefusedError:
        if await _is_listed(entry, partition):
            raise


async def _counted(
    record: DeadLetterRecord, partition: str, changes: Sequence[tables.Change], *, step: int
) -> None:
    """Change the rows of an open dead letter and the counters in one transaction. Idempotent.

    Args:
        record: Whose rows.
        partition: Of the rows and the counters.
        changes: Creations or deletions; storage refuses them when they were made before.
        step: 1 or -1.
    """
    entry = IndexEntry.of(record)
    async with counter_lock():
        for _ in range(_TRIES):
            counts = await counter_changes(record, step, partition)
            try:
                etags = await tables.transact_for_etags(TABLE, [*changes, *counts])
                if etags is not None:
                    _keep_counters(zip(counts, etags[len(changes) :], strict=False))
                    return
            except tables.StorageRefusedError:
                pass  # Either done before, or another process changed the counters; checked below.
            if await _is_listed(entry, partition) is (step > 0):
                return
    raise IndexContendedError(record.id)


async def _listed_in(entry: IndexEntry, status: Status) -> str | None:
    """Return the partition that lists a dead letter under a status; None when none does."""
    for partition in partitions_with(status, entry.id):
        if await _is_listed(entry, partition):
            return partition
    return None


async def _is_listed(entry: IndexEntry, partition: str) -> bool:
    return await tables.read(TABLE, partition, f"{list_prefix('all')}{entry.position}") is not None


def _row(partition: str, key: str, entry: IndexEntry) -> tables.Row:
    return {**_keys(partition, key), **entry.properties()}


def _keys(partition: str, key: str) -> tables.Row:
    return {"PartitionKey": partition, "RowKey": key}
