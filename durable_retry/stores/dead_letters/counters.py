"""Counters of open dead letters, updated in the transaction that writes or deletes the list rows.

Each process writes one of `_WRITERS` shards, so that processes seldom conflict. The sum over the shards is
exact. A single shard may be negative: another process may have made the increment.
"""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from azure.core import MatchConditions
from azure.data.tables import UpdateMode

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status
from durable_retry.stores.dead_letters.keys import AFTER_ALL, TABLE, IndexEntry, waiting_prefix
from durable_retry.stores.storage import tables

_WRITERS: Final = 16
_WRITER: Final = f"{uuid.uuid4().int % _WRITERS:02d}"
_OPEN: Final = Status.OPEN.value
_DETAIL_CHARS: Final = 300

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


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


async def counter_changes(record: DeadLetterRecord, step: int) -> list[tables.Change]:
    """Return the counter changes for listing (step 1) or unlisting (step -1) an open dead letter."""
    totals, group = await asyncio.gather(
        tables.read_version(TABLE, _OPEN, _totals_key()),
        tables.read_version(TABLE, _OPEN, _group_key(record.group)),
    )
    return [
        _written(_totals_after(totals, IndexEntry.of(record), step), totals),
        _written(_group_after(group, record, step), group),
    ]


async def read_summary() -> Summary:
    """Count open dead letters and find the oldest of each kind, at a cost by the number of kinds."""
    page = await tables.rows_between(TABLE, _OPEN, after="t|", before="t|" + AFTER_ALL)
    counts: Counter[str] = Counter()
    for row in page.rows:
        counts.update(json.loads(tables.unpacked("counts", row)))
    names = [name for name, count in counts.items() if count > 0]
    oldest = await asyncio.gather(*(_oldest(name) for name in names))
    found = {
        name: OpenCount(count=counts[name], oldest_at=instant)
        for name, instant in zip(names, oldest, strict=True)
    }
    return Summary(
        total=found.get("all", OpenCount(count=0, oldest_at=None)),
        by_reason=_of_kind(found, "reason="),
        by_dependency=_of_kind(found, "dependency="),
    )


async def read_groups() -> list[Group]:
    """Return groups with open dead letters, the latest first, at a cost that depends on their number."""
    page = await tables.rows_between(TABLE, _OPEN, after="g|", before="g|" + AFTER_ALL)
    rows_by_group: dict[str, list[tables.Row]] = {}
    for row in page.rows:
        rows_by_group.setdefault(row["group"], []).append(row)
    groups = [_group(name, rows) for name, rows in rows_by_group.items()]
    found = (group for group in groups if group.count > 0)
    return sorted(found, key=lambda group: (group.last_seen_at, group.group), reverse=True)


def _totals_after(stored: tables.Versioned | None, entry: IndexEntry, step: int) -> tables.Row:
    counts = Counter({} if stored is None else json.loads(tables.unpacked("counts", stored.row)))
    for name in ("all", f"reason={entry.facets.reason}", f"dependency={entry.facets.dependency}"):
        counts[name] += step
    left = {name: count for name, count in counts.items() if count != 0}
    return {"PartitionKey": _OPEN, "RowKey": _totals_key(), **tables.packed("counts", json.dumps(left))}


def _group_after(stored: tables.Versioned | None, record: DeadLetterRecord, step: int) -> tables.Row:
    row: tables.Row = {} if stored is None else stored.row
    created_at = to_rfc3339(record.created_at)
    keys = {"PartitionKey": _OPEN, "RowKey": _group_key(record.group), "group": record.group}
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


def _written(row: tables.Row, stored: tables.Versioned | None) -> tables.Change:
    """Replace the version that was read, or insert when there was none."""
    if stored is None:
        return ("create", row)
    condition = {"etag": stored.etag, "match_condition": MatchConditions.IfNotModified}
    return ("update", row, {"mode": UpdateMode.REPLACE, **condition})


async def _oldest(name: str) -> datetime | None:
    prefix = waiting_prefix(name)
    page = await tables.rows_between(TABLE, _OPEN, after=prefix, before=prefix + AFTER_ALL, limit=1)
    return from_rfc3339(page.rows[0]["created_at"]) if page.rows else None


def _of_kind(found: Mapping[str, OpenCount], kind: str) -> dict[str, OpenCount]:
    named = {name.removeprefix(kind): waiting for name, waiting in found.items() if name.startswith(kind)}
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
