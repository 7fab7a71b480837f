"""The lists of dead letters, and what is counted in them.

Each status has a partition, and a dead letter rows in that of its own.

    open, replayed, archived     the partitions of lists
    n|<newest first><id>         every one of them, with what filters and searches look at
    o|<oldest first><id>         open ones, the oldest first
    d|<archived at><id>          archived ones, the next to delete first

What stands under one status is written in one transaction. The rows repeat what `DeadLetters` says, which
decides: see docs/decisions/dead-letter-tables.md. Open ones are counted when somebody asks: the newest,
at most so many.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from durable_retry.base.json_forms import (
    DIGITS,
    from_newest_first,
    from_rfc3339,
    newest_first,
    oldest_first,
    to_rfc3339,
)
from durable_retry.rules.dead_letters.document import (
    WITHOUT_DEPENDENCY,
    DeadLetterSummary,
    OpenDeadLetters,
    open_dead_letters,
)
from durable_retry.rules.dead_letters.filters import NAME_CHARS
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.storage import contents, tables

TABLE: Final = "DeadLetterIndex"

NEWEST_FIRST: Final = "n|"
OLDEST_FIRST: Final = "o|"
DUE: Final = "d|"
AFTER_ALL: Final = "~"
"""Sorts after every character that a key can contain."""


async def list_record(record: KeptDeadLetter) -> None:
    """List a dead letter under its status. Idempotent."""
    names = {name: value[:NAME_CHARS] for name, value in record.names.items()}
    told = {
        "created_at": to_rfc3339(record.created_at),
        **record.facets,
        # As JSON, whose ASCII takes any character that a message can have.
        "names": json.dumps(names),
    }
    if record.limit_key is not None:
        told["limit_key"] = json.dumps(record.limit_key)
    keys = list(_list_keys(record.status, record.id, record.created_at))
    if record.archived_at is not None:
        # Not removed when the dead letter is restored; the removal compares the archiving time.
        keys.append(_due_key(record.archived_at, record.id))
        told["archived_at"] = to_rfc3339(record.archived_at)
    rows = [{"PartitionKey": record.status.value, "RowKey": key, **told} for key in keys]
    await tables.transact(TABLE, [("upsert", row) for row in rows])


async def move_to_status(record: KeptDeadLetter) -> None:
    """List a dead letter under its status and remove it from the lists of the others."""
    await list_record(record)
    others = [status for status in Status if status is not record.status]
    await _unlist(others, record.id, record.created_at)


async def unlist_archived(dead_letter_id: str, created_at: datetime, archived_at: datetime) -> None:
    """Remove a deleted dead letter from the lists of archived ones."""
    await _unlist([Status.ARCHIVED], dead_letter_id, created_at)
    await drop_due(dead_letter_id, archived_at)


async def drop_due(dead_letter_id: str, archived_at: datetime) -> None:
    """Remove a dead letter from the queue of those to delete."""
    await tables.delete(TABLE, Status.ARCHIVED, _due_key(archived_at, dead_letter_id))


async def due(archived_before: datetime, limit: int) -> list[tuple[str, datetime, datetime]]:
    """Return id, creation and archiving time of dead letters archived before an instant, the oldest first."""
    page = await tables.rows_between(
        TABLE, Status.ARCHIVED, after=DUE, before=_due_key(archived_before), limit=limit
    )
    return contents.readable(
        TABLE,
        page.rows,
        lambda row: (
            id_at(row["RowKey"].removeprefix(DUE)),
            from_rfc3339(row["created_at"]),
            from_rfc3339(row["archived_at"]),
        ),
    )


def id_at(position: str) -> str:
    """Return the id of the dead letter at a position of a list, which is the row key behind its prefix."""
    return position[DIGITS:]


async def _unlist(statuses: Iterable[Status], dead_letter_id: str, created_at: datetime) -> None:
    rows = [
        {"PartitionKey": status.value, "RowKey": key}
        for status in statuses
        for key in _list_keys(status, dead_letter_id, created_at)
    ]
    await tables.delete_rows(TABLE, rows)


def _list_keys(status: Status, dead_letter_id: str, created_at: datetime) -> Iterator[str]:
    yield f"{NEWEST_FIRST}{newest_first(created_at)}{dead_letter_id}"
    if status is Status.OPEN:
        yield f"{OLDEST_FIRST}{oldest_first(created_at)}{dead_letter_id}"


def _due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    return f"{DUE}{oldest_first(archived_at)}{dead_letter_id}"


AT_ONCE: Final = 999
"""With the row that shows that there are more, one request: they are counted anew for whoever asks."""

MOST_COUNTED: Final = 10_000
"""Eleven requests, which nobody waits for. A person does the same about more of them."""

KEPT_SECONDS: Final = 30.0
"""For how long the count of more than `AT_ONCE` is kept before it is made again."""

FORGOTTEN_SECONDS: Final = 120.0
"""An older one is not shown while the next is made."""


@dataclass(slots=True)
class Tally:
    """Open dead letters of one kind: how many, when the first was made and the latest, and which that is."""

    count: int
    first_at: datetime
    latest_at: datetime
    latest_id: str
    limit_keys: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class OpenCounts:
    """Open dead letters by kind; the kind of all is "".

    Attributes:
        complete: Whether all were counted: not where there are more than `MOST_COUNTED`, nor while the others
            than the newest are being counted.
    """

    tallies: Mapping[str, Tally]
    oldest_at: datetime | None
    complete: bool

    @property
    def open(self) -> int:
        """How many were counted."""
        return self.tallies[""].count if self.tallies else 0

    def of_kind(self, kind: str) -> dict[str, Tally]:
        """Return the tallies of `reason`, `dependency` or `group`, by name."""
        prefix = f"{kind}="
        return {
            name.removeprefix(prefix): tally
            for name, tally in self.tallies.items()
            if name.startswith(prefix)
        }

    def summary(self, now: datetime) -> DeadLetterSummary:
        """Return them as people and alerts see them."""

        def shown(kind: str) -> dict[str, OpenDeadLetters]:
            return {
                name or WITHOUT_DEPENDENCY: open_dead_letters(tally.count, tally.first_at, now)
                for name, tally in sorted(self.of_kind(kind).items())
            }

        return DeadLetterSummary(
            **dict(open_dead_letters(self.open, self.oldest_at, now)),
            complete=self.complete,
            by_reason=shown("reason"),
            by_dependency=shown("dependency"),
        )


@dataclass(slots=True)
class _Kept:
    counts: OpenCounts | None = None  # of more than `AT_ONCE`
    counted_at: float = 0.0
    counting: "asyncio.Task[None] | None" = None


_kept: Final = LoopOwned(_Kept)


async def open_counts() -> OpenCounts:
    """Return the numbers of open dead letters; those of a few at once, of more as they were last counted."""
    kept = _kept.get()
    seconds = clock.monotonic_seconds() - kept.counted_at
    counts = kept.counts if seconds < FORGOTTEN_SECONDS else None
    if counts is not None and seconds < KEPT_SECONDS:
        return counts
    if counts is None:
        counts = await _count(AT_ONCE)
        if counts.complete:
            return counts
    if kept.counting is None or kept.counting.done():
        kept.counting = asyncio.create_task(_count_all(kept))
    return counts


async def _count_all(kept: _Kept) -> None:
    counts = await _count(MOST_COUNTED)
    is_large = not counts.complete or counts.open > AT_ONCE
    kept.counts, kept.counted_at = counts if is_large else None, clock.monotonic_seconds()


async def read_summary(now: datetime) -> DeadLetterSummary:
    """Return open dead letters in numbers."""
    return (await open_counts()).summary(now)


async def count_group(group: str) -> Tally | None:
    """Return the open dead letters of a group, of however many others; None without any."""
    page = await _open_rows(MOST_COUNTED, {"group": group})
    return _tallies(page.rows).get("")


async def _count(most: int) -> OpenCounts:
    page = await _open_rows(most)
    tallies = _tallies(page.rows)
    oldest_at = tallies[""].first_at if tallies else None
    if page.cursor is not None:
        oldest_at = await _oldest_at() or oldest_at
    return OpenCounts(tallies, oldest_at, complete=page.cursor is None)


async def _open_rows(most: int, where: Mapping[str, str] | None = None) -> tables.Page:
    return await tables.rows_between(
        TABLE,
        Status.OPEN,
        after=NEWEST_FIRST,
        before=NEWEST_FIRST + AFTER_ALL,
        limit=most,
        only=("RowKey", "reason", "dependency", "group", "limit_key"),
        where=where,
    )


def _tallies(rows: list[tables.Row]) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for created_at, dead_letter_id, kinds, limit_key in contents.readable(TABLE, rows, _counted_row):
        for kind in kinds:
            # The newest come first, so the first of a kind is its latest.
            tally = tallies.setdefault(kind, Tally(0, created_at, created_at, dead_letter_id))
            tally.count += 1
            tally.first_at = created_at
            if limit_key is not None:
                tally.limit_keys[limit_key] += 1
    return tallies


def _counted_row(row: tables.Row) -> tuple[datetime, str, tuple[str, ...], str | None]:
    kinds = ("", *(f"{name}={row[name]}" for name in ("reason", "dependency", "group")))
    position = row["RowKey"].removeprefix(NEWEST_FIRST)
    limit_key = json.loads(row["limit_key"]) if "limit_key" in row else None
    return from_newest_first(position[:DIGITS]), id_at(position), kinds, limit_key


async def _oldest_at() -> datetime | None:
    page = await tables.rows_between(
        TABLE, Status.OPEN, after=OLDEST_FIRST, before=OLDEST_FIRST + AFTER_ALL, limit=1
    )
    return next(iter(contents.readable(TABLE, page.rows, lambda row: from_rfc3339(row["created_at"]))), None)
