"""How many dead letters are open: counted where they are listed, in the same transaction.

Every process counts in rows of its own (one of `_WRITERS`), so that processes seldom meet; the sum over the
writers is exact, though a single writer's count can be negative: who counts down is not who counted up.
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

from engine.dead_letter import DeadLetterRecord, Status
from engine.instants import from_rfc3339, to_rfc3339
from stores import tables
from stores.dead_letter_keys import AFTER_ALL, TABLE, Entry, waiting_prefix

_WRITERS: Final = 16
_WRITER: Final = f"{uuid.uuid4().int % _WRITERS:02d}"
_OPEN: Final = Status.OPEN.value
_DETAIL_CHARS: Final = 300

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Open dead letters of one kind.

    Attributes:
        count: How many.
        oldest_at: When the oldest was written; None when there is none.
    """

    count: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All open dead letters, and by reason and dependency ("" for messages that name none)."""

    total: Waiting
    by_reason: Mapping[str, Waiting]
    by_dependency: Mapping[str, Waiting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Open dead letters of one root cause.

    Attributes:
        group: Its name.
        count: How many are open.
        first_seen_at: When the first one was written that was counted here, open or not any more.
        last_seen_at: When the latest was.
        sample: `id`, `dependency`, `category`, `reason` and `detail` of the latest.
    """

    group: str
    count: int
    first_seen_at: datetime
    last_seen_at: datetime
    sample: Mapping[str, Any]


def tally_lock() -> asyncio.Lock:
    """Return the lock that whoever counts in this process holds: they share rows."""
    return _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


async def tally_changes(record: DeadLetterRecord, step: int) -> list[tables.Change]:
    """Return the changes of counts that go with listing (1) or unlisting (-1) an open dead letter."""
    totals, group = await asyncio.gather(
        tables.read_version(TABLE, _OPEN, _totals_key()),
        tables.read_version(TABLE, _OPEN, _group_key(record.group)),
    )
    return [
        _written(_totals_after(totals, Entry.of(record), step), totals),
        _written(_group_after(group, record, step), group),
    ]


async def read_summary() -> Summary:
    """Count open dead letters and find the oldest of each kind; the cost depends on the number of kinds."""
    page = await tables.rows_between(TABLE, _OPEN, after="t|", before="t|" + AFTER_ALL)
    counts: Counter[str] = Counter()
    for row in page.rows:
        counts.update(json.loads(tables.unpacked("counts", row)))
    names = [name for name, count in counts.items() if count > 0]
    oldest = await asyncio.gather(*(_oldest(name) for name in names))
    found = {
        name: Waiting(count=counts[name], oldest_at=instant)
        for name, instant in zip(names, oldest, strict=True)
    }
    return Summary(
        total=found.get("all", Waiting(count=0, oldest_at=None)),
        by_reason=_of_kind(found, "reason="),
        by_dependency=_of_kind(found, "dependency="),
    )


async def read_groups() -> list[Group]:
    """Return the groups that have open dead letters, the one seen last first; the cost is that of groups."""
    page = await tables.rows_between(TABLE, _OPEN, after="g|", before="g|" + AFTER_ALL)
    rows_by_group: dict[str, list[tables.Row]] = {}
    for row in page.rows:
        rows_by_group.setdefault(row["group"], []).append(row)
    groups = [_group(name, rows) for name, rows in rows_by_group.items()]
    found = (group for group in groups if group.count > 0)
    return sorted(found, key=lambda group: (group.last_seen_at, group.group), reverse=True)


def _totals_after(kept: tables.Versioned | None, entry: Entry, step: int) -> tables.Row:
    counts = Counter({} if kept is None else json.loads(tables.unpacked("counts", kept.row)))
    for name in ("all", f"reason={entry.facets.reason}", f"dependency={entry.facets.dependency}"):
        counts[name] += step
    left = {name: count for name, count in counts.items() if count != 0}
    return {"PartitionKey": _OPEN, "RowKey": _totals_key(), **tables.packed("counts", json.dumps(left))}


def _group_after(kept: tables.Versioned | None, record: DeadLetterRecord, step: int) -> tables.Row:
    row: tables.Row = {} if kept is None else kept.row
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


def _written(row: tables.Row, kept: tables.Versioned | None) -> tables.Change:
    """Write a row in place of the version that was read, or where none was."""
    if kept is None:
        return ("create", row)
    condition = {"etag": kept.etag, "match_condition": MatchConditions.IfNotModified}
    return ("update", row, {"mode": UpdateMode.REPLACE, **condition})


async def _oldest(name: str) -> datetime | None:
    prefix = waiting_prefix(name)
    page = await tables.rows_between(TABLE, _OPEN, after=prefix, before=prefix + AFTER_ALL, limit=1)
    return from_rfc3339(page.rows[0]["created_at"]) if page.rows else None


def _of_kind(found: Mapping[str, Waiting], kind: str) -> dict[str, Waiting]:
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
