"""Open dead letters in numbers, counted on request: the newest, at most so many."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from durable_retry.base.json_forms import DIGITS, from_newest_first, from_rfc3339
from durable_retry.dead_letters.index import AFTER_ALL, NEWEST_FIRST, OLDEST_FIRST, TABLE, id_at
from durable_retry.features.dead_letter_lists.rules.numbers import (
    WITHOUT_DEPENDENCY,
    DeadLetterSummary,
    OpenDeadLetters,
    open_dead_letters,
)
from durable_retry.rules.dead_letters.record import Status
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import present_name
from durable_retry.storage import contents, tables

AT_ONCE: Final = 999
"""One request to storage, with the row that shows that there are more: so many are counted each time."""

MOST_COUNTED: Final = 10_000
"""Eleven requests, made in the background. A person acts on more of them as on so many."""

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
        complete: Whether all were counted; False where there are more than `MOST_COUNTED`, and while those
            behind the newest `AT_ONCE` are being counted.
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

        def numbers_of(kind: str) -> dict[str, OpenDeadLetters]:
            return {
                name or WITHOUT_DEPENDENCY: open_dead_letters(tally.count, tally.first_at, now)
                for name, tally in sorted(self.of_kind(kind).items())
            }

        return DeadLetterSummary(
            **dict(open_dead_letters(self.open, self.oldest_at, now)),
            complete=self.complete,
            by_reason=numbers_of("reason"),
            by_dependency=numbers_of("dependency"),
        )


@dataclass(slots=True)
class _LastCount:
    counts: OpenCounts | None = None  # of more than `AT_ONCE`
    counted_at: float = 0.0
    counting: "asyncio.Task[None] | None" = None


_last_count: Final = LoopOwned(_LastCount)


async def open_counts() -> OpenCounts:
    """Return the numbers of open dead letters: a few are counted now, more are shown as last counted."""
    last = _last_count.get()
    seconds = clock.monotonic_seconds() - last.counted_at
    counts = last.counts if seconds < FORGOTTEN_SECONDS else None
    if counts is not None and seconds < KEPT_SECONDS:
        return counts
    if counts is None:
        counts = await _count(AT_ONCE)
        if counts.complete:
            return counts
    if last.counting is None or last.counting.done():
        last.counting = asyncio.create_task(_count_all(last))
    return counts


async def _count_all(last: _LastCount) -> None:
    counts = await _count(MOST_COUNTED)
    is_large = not counts.complete or counts.open > AT_ONCE
    last.counts, last.counted_at = counts if is_large else None, clock.monotonic_seconds()


async def read_summary(now: datetime) -> DeadLetterSummary:
    """Return open dead letters in numbers."""
    return (await open_counts()).summary(now)


async def count_group(group: str) -> Tally | None:
    """Return the open dead letters of a group, however many others there are; None without any."""
    page = await _open_rows(MOST_COUNTED, {"group": [group]})
    return _tallies(page.rows).get("")


async def _count(most: int) -> OpenCounts:
    page = await _open_rows(most)
    tallies = _tallies(page.rows)
    oldest_at = tallies[""].first_at if tallies else None
    if page.cursor is not None:
        oldest_at = await _oldest_at() or oldest_at
    return OpenCounts(tallies, oldest_at, complete=page.cursor is None)


async def _open_rows(most: int, where: Mapping[str, Iterable[str]] | None = None) -> tables.Page:
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
    named = {"reason": row["reason"], "dependency": present_name(row["dependency"]), "group": row["group"]}
    kinds = ("", *(f"{name}={value}" for name, value in named.items()))
    position = row["RowKey"].removeprefix(NEWEST_FIRST)
    limit_key = json.loads(row["limit_key"]) if "limit_key" in row else None
    return from_newest_first(position[:DIGITS]), id_at(position), kinds, limit_key


async def _oldest_at() -> datetime | None:
    page = await tables.rows_between(
        TABLE, Status.OPEN, after=OLDEST_FIRST, before=OLDEST_FIRST + AFTER_ALL, limit=1
    )
    return next(iter(contents.readable(TABLE, page.rows, lambda row: from_rfc3339(row["created_at"]))), None)
