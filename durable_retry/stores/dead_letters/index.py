"""The index rows and counters of dead letters: each list is one range of row keys in some partitions.

    open, replayed, archived         the partitions of each status, by the id: see `stores.storage.tables`

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
import re
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from durable_retry.concurrency import LoopOwned
from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.dead_letters.numbers import (
    WITHOUT_DEPENDENCY,
    DeadLetterGroup,
    DeadLetterSample,
    DeadLetterSummary,
    OpenDeadLetters,
    open_dead_letters,
)
from durable_retry.engine.dead_letters.record import KeptDeadLetter, Status, unreadable_record
from durable_retry.errors import StorageRefusedError
from durable_retry.stores.dead_letters.entries import IndexEntry, due_key, list_prefix, oldest_prefix
from durable_retry.stores.storage import contents, lists, tables
from durable_retry.stores.storage.lists import partition_of, partitions

TABLE: Final = "DeadLetterIndex"

AFTER_ALL: Final = "~"
"""Sorts after every character that a key can contain."""

_ALL: Final = "all"
_GROUP: Final = re.compile(r"g-[0-9a-f]{16}")
_WRITERS: Final = 16
_WRITER: Final = f"{uuid.uuid4().int % _WRITERS:02d}"

_locks: Final = LoopOwned(asyncio.Lock)

_COUNTERS_KEPT: Final = 256

type _Counters = OrderedDict[tuple[str, str], tables.Versioned]

_counters: Final = LoopOwned[_Counters](OrderedDict)
"""Counter rows as this process wrote them last. A process mostly has its own: to read them again before each
dead letter was half of its requests. Where another has changed one, storage refuses the old version."""


def counter_lock() -> asyncio.Lock:
    """Return the lock of this process's counter rows."""
    return _locks.get()


async def counter_changes(record: KeptDeadLetter, step: int, partition: str) -> list[tables.Change]:
    """Return the counter changes for listing (step 1) or unlisting (step -1) an open dead letter."""
    totals, group = await asyncio.gather(
        _taken_counter(partition, _totals_key()), _taken_counter(partition, _group_key(record.group))
    )
    keys = {"PartitionKey": partition}
    return [
        tables.written_over(totals, keys | _totals_after(totals, IndexEntry.of(record), step)),
        tables.written_over(group, keys | _group_after(group, record, step)),
    ]


async def _taken_counter(partition: str, key: str) -> tables.Versioned | None:
    """Return a counter row to change it; it is known again after `_keep_counters`."""
    known = _counters.get().pop((partition, key), None)
    return known or await tables.read_version(TABLE, partition, key)


def _keep_counters(written: Iterable[tuple[tables.Change, str]]) -> None:
    known = _counters.get()
    for change, etag in written:
        if etag:
            known[change[1]["PartitionKey"], change[1]["RowKey"]] = tables.Versioned(change[1], etag)
    while len(known) > _COUNTERS_KEPT:
        known.popitem(last=False)


async def read_summary(now: datetime) -> DeadLetterSummary:
    """Count open dead letters and find the oldest of each kind, at a cost by the number of kinds.

    The oldest is asked for in each partition that has some of the kind, and once for all kinds to which
    everything in a partition belongs: mostly one reason and one dependency fail.
    """
    page = await lists.merged_rows(TABLE, partitions(Status.OPEN), after="t|", before="t|" + AFTER_ALL)
    in_partition: dict[str, Counter[str]] = {}
    for partition, counts in contents.readable(TABLE, page.rows, _counts_in):
        in_partition.setdefault(partition, Counter()).update(counts)
    places = {
        (partition, name): (partition, _ALL if count == of_partition[_ALL] else name)
        for partition, of_partition in in_partition.items()
        for name, count in of_partition.items()
        if count > 0 and name != _ALL
    }
    asked = sorted(set(places.values()))
    instants = dict(
        zip(asked, await asyncio.gather(*(_oldest_in_partition(*place) for place in asked)), strict=True)
    )
    totals: Counter[str] = sum(in_partition.values(), Counter())
    oldest: dict[str, list[datetime]] = {}
    for (_, name), place in places.items():
        for instant in instants[place]:
            oldest.setdefault(name, []).append(instant)
            oldest.setdefault(_ALL, []).append(instant)
    found = {
        name: open_dead_letters(count, min(oldest.get(name, ()), default=None), now)
        for name, count in totals.items()
    }
    return DeadLetterSummary(
        **dict(found.get(_ALL, open_dead_letters(0, None, now))),
        by_reason=_counts_of_kind(found, "reason="),
        by_dependency=_counts_of_kind(found, "dependency="),
    )


async def find_group(name: str) -> DeadLetterGroup | None:
    """Return a group, also one whose dead letters are closed by now; None when none ever had it."""
    if not _GROUP.fullmatch(name):
        return None
    page = await lists.merged_rows(
        TABLE, partitions(Status.OPEN), after=f"g|{name}|", before=f"g|{name}|{AFTER_ALL}"
    )
    rows = [row for _, row in contents.readable(TABLE, page.rows, _checked_group)]
    return _group_of_rows(name, rows) if rows else None


async def read_groups() -> list[DeadLetterGroup]:
    """Return groups with open dead letters, the latest first, at a cost that depends on their number."""
    page = await lists.merged_rows(TABLE, partitions(Status.OPEN), after="g|", before="g|" + AFTER_ALL)
    rows_by_group: dict[str, list[tables.Row]] = {}
    for name, row in contents.readable(TABLE, page.rows, _checked_group):
        rows_by_group.setdefault(name, []).append(row)
    groups = [_group_of_rows(name, rows) for name, rows in rows_by_group.items()]
    found = (group for group in groups if group.count > 0)
    return sorted(found, key=lambda group: (group.last_seen_at, group.group), reverse=True)


def _counts_in(row: tables.Row) -> tuple[str, Counter[str]]:
    counts = json.loads(contents.unpacked("counts", row))
    return row["PartitionKey"], Counter({str(name): int(count) for name, count in counts.items()})


def _checked_group(row: tables.Row) -> tuple[str, tables.Row]:
    _group_of_rows(row["group"], [row])
    return str(row["group"]), row


def _totals_after(stored: tables.Versioned | None, entry: IndexEntry, step: int) -> tables.Row:
    counts: Counter[str] = Counter()
    if stored is not None:
        # A row that nobody can read must not keep dead letters from being kept: its writer counts anew.
        for _, known in contents.readable(TABLE, [stored.row], _counts_in):
            counts.update(known)
    for name in (_ALL, f"reason={entry.facets.reason}", f"dependency={entry.facets.dependency}"):
        counts[name] += step
    left = {name: count for name, count in counts.items() if count != 0}
    return {"RowKey": _totals_key(), **contents.packed("counts", json.dumps(left))}


def _group_after(stored: tables.Versioned | None, record: KeptDeadLetter, step: int) -> tables.Row:
    row: tables.Row = {}
    if stored is not None:
        row = next((found for _, found in contents.readable(TABLE, [stored.row], _checked_group)), row)
    created_at = to_rfc3339(record.created_at)
    keys = {"RowKey": _group_key(record.group), "group": record.group}
    count = int(row.get("count", 0)) + step
    first_seen_at = min((row.get("first_seen_at", created_at), created_at), key=from_rfc3339)
    last_seen_at = max((row.get("last_seen_at", created_at), created_at), key=from_rfc3339)
    is_latest = last_seen_at == created_at
    sample = json.dumps(DeadLetterSample.of(record).to_json()) if is_latest else row["sample"]
    return {
        **keys,
        "count": count,
        "first_seen_at": first_seen_at,
        "last_seen_at": last_seen_at,
        "sample": sample,
    }


async def _oldest_in_partition(partition: str, name: str) -> list[datetime]:
    """Return when the oldest of a kind in a partition was made; nothing when there is none any more."""
    prefix = oldest_prefix(name)
    page = await tables.rows_between(TABLE, partition, after=prefix, before=prefix + AFTER_ALL, limit=1)
    return contents.readable(TABLE, page.rows, lambda row: from_rfc3339(row["created_at"]))


def _counts_of_kind(found: Mapping[str, OpenDeadLetters], kind: str) -> dict[str, OpenDeadLetters]:
    named = {name.removeprefix(kind): waiting for name, waiting in found.items() if name.startswith(kind)}
    return {name or WITHOUT_DEPENDENCY: waiting for name, waiting in sorted(named.items())}


def _group_of_rows(name: str, rows: Iterable[tables.Row]) -> DeadLetterGroup:
    ordered = sorted(rows, key=lambda row: from_rfc3339(row["last_seen_at"]))
    return DeadLetterGroup(
        group=name,
        count=sum(int(row["count"]) for row in ordered),
        first_seen_at=min(from_rfc3339(row["first_seen_at"]) for row in ordered),
        last_seen_at=from_rfc3339(ordered[-1]["last_seen_at"]),
        sample=read_or(lambda: _stored_sample(ordered[-1]["sample"]), _unreadable_sample),
    )


def _stored_sample(text: str) -> DeadLetterSample:
    # Not strict, since strict pydantic takes names for enums from its own JSON reader alone.
    return DeadLetterSample.model_validate(json.loads(text), strict=False)


def _unreadable_sample(why: str) -> DeadLetterSample:
    """Return what stands for the sample of a group; the group's list has all of its dead letters."""
    return DeadLetterSample.of(unreadable_record("", why, status=Status.OPEN, reason=None, created_at=None))


def _totals_key() -> str:
    return f"t|{_WRITER}"


def _group_key(group: str) -> str:
    return f"g|{group}|{_WRITER}"


_TRIES: Final = 20


class IndexContendedError(Exception):
    """Other processes kept changing the same counters. The step is safe to repeat."""


async def list_open(record: KeptDeadLetter) -> None:
    """List a new dead letter."""
    await _list_open(record, partition_of(Status.OPEN, record.id))


async def move_to_status(record: KeptDeadLetter) -> None:
    """List a dead letter under its status and remove it from the lists of the others."""
    partition = partition_of(record.status, record.id)
    if record.status is Status.OPEN:
        await _list_open(record, partition)
    else:
        await _list_closed(record, partition)
    for status in Status:
        if status is not record.status:
            await _unlist_record(record, status)


async def unlist_archived(entry: IndexEntry, archived_at: datetime) -> None:
    """Remove a deleted dead letter from the lists of archived ones."""
    partition = await _listed_in(entry, Status.ARCHIVED)
    if partition is not None:
        await _delete_entry(entry, Status.ARCHIVED, partition)
    await drop_due(entry.id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Remove a dead letter from the queue of those to delete."""
    partition = partition_of(Status.ARCHIVED, dead_letter_id)
    await tables.delete(TABLE, partition, due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[IndexEntry, datetime]]:
    """Return dead letters archived before an instant with the archiving time of each, the oldest first."""
    page = await lists.merged_rows(
        TABLE, partitions(Status.ARCHIVED), after="d|", before=due_key(archived_before), limit=limit
    )
    return contents.readable(
        TABLE, page.rows, lambda row: (IndexEntry.from_row(row), from_rfc3339(row["archived_at"]))
    )


async def _list_open(record: KeptDeadLetter, partition: str) -> None:
    entry = IndexEntry.of(record)
    rows = entry.rows_at(partition, entry.keys_under(Status.OPEN))
    await _change_counted(record, partition, [("create", row) for row in rows], step=1)


async def _list_closed(record: KeptDeadLetter, partition: str) -> None:
    entry = IndexEntry.of(record)
    rows = entry.rows_at(partition, entry.keys_under(record.status))
    if record.archived_at is not None:
        # Not removed when the dead letter is restored; the removal compares the archiving time.
        due_rows = entry.rows_at(partition, [due_key(record.archived_at, record.id)])
        rows += [row | {"archived_at": to_rfc3339(record.archived_at)} for row in due_rows]
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def _unlist_record(record: KeptDeadLetter, status: Status) -> None:
    entry = IndexEntry.of(record)
    partition = await _listed_in(entry, status)
    if partition is None:
        return
    if status is Status.OPEN:
        keys = entry.keys_under(status)
        await _change_counted(
            record, partition, [("delete", _keys_of_row(partition, key)) for key in keys], step=-1
        )
    else:
        await _delete_entry(entry, status, partition)


async def _delete_entry(entry: IndexEntry, status: Status, partition: str) -> None:
    changes: list[tables.Change] = [
        ("delete", _keys_of_row(partition, key)) for key in entry.keys_under(status)
    ]
    try:
        await tables.transact(TABLE, changes)
    except StorageRefusedError:
        if await _is_listed(entry, partition):
            raise


async def _change_counted(
    record: KeptDeadLetter, partition: str, changes: Sequence[tables.Change], *, step: int
) -> None:
    """Change the rows of an open dead letter and the counters in one transaction. Idempotent.

    Storage refuses creations or deletions that were made before.
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
            except StorageRefusedError:
                pass  # Either done before, or another process changed the counters; checked below.
            if await _is_listed(entry, partition) is (step > 0):
                return
    raise IndexContendedError(record.id)


async def _listed_in(entry: IndexEntry, status: Status) -> str | None:
    partition = partition_of(status, entry.id)
    return partition if await _is_listed(entry, partition) else None


async def _is_listed(entry: IndexEntry, partition: str) -> bool:
    return await tables.read(TABLE, partition, f"{list_prefix('all')}{entry.position}") is not None


def _keys_of_row(partition: str, key: str) -> tables.Row:
    return {"PartitionKey": partition, "RowKey": key}
