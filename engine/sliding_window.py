"""Counts of calls over the last seconds, in buckets, so that old ones fall out without a timer.

A window of W seconds has ten buckets of W/10. The bucket that is being filled counts as one of the ten, so a
reading covers between 0.9 W and W. Two windows of the same width add up bucket by bucket, which is how a
worker's report joins the shared counts at the times when the calls really ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

BUCKETS = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(instant: datetime) -> int:
    """Whole milliseconds since 1970, rounded down. The short form of an instant in stored state."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def from_ms(milliseconds: int) -> datetime:
    """The aware UTC instant of `to_ms`."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def optional_to_ms(instant: datetime | None) -> int | None:
    """As `to_ms`; None stays None."""
    return None if instant is None else to_ms(instant)


def optional_from_ms(milliseconds: int | None) -> datetime | None:
    """As `from_ms`; None stays None."""
    return None if milliseconds is None else from_ms(milliseconds)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many calls ended, how many of them failed, how many were slow. A call can be both."""

    calls: int = 0
    failures: int = 0
    slow: int = 0

    def __add__(self, other: Self) -> "Counts":
        return Counts(self.calls + other.calls, self.failures + other.failures, self.slow + other.slow)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Counts by bucket.

    Attributes:
        bucket_ms: width of one bucket in milliseconds, at least 1.
        buckets: (bucket number since 1970, counts), oldest first, empty ones left out.
    """

    bucket_ms: int
    buckets: tuple[tuple[int, Counts], ...] = ()

    @classmethod
    def over(cls, window_seconds: float) -> "SlidingWindow":
        """An empty window that covers this many seconds."""
        return cls(bucket_ms=max(1, round(window_seconds * 1000 / BUCKETS)))

    def add(self, at: datetime, counts: Counts) -> "SlidingWindow":
        """Count calls that ended at this instant."""
        if counts == Counts():
            return self
        return self._joined([(self._number(at), counts)])

    def merge(self, other: "SlidingWindow", at: datetime) -> "SlidingWindow":
        """Add another window's counts.

        With another width (the settings changed while a report was under way) the buckets do not line up;
        then everything counts at `at`.
        """
        if other.bucket_ms == self.bucket_ms:
            return self._joined(other.buckets)
        return self.add(at, other.everything())

    def trimmed(self, at: datetime) -> "SlidingWindow":
        """Without the buckets that are too old to count at this instant."""
        oldest = self._number(at) - BUCKETS + 1
        return SlidingWindow(self.bucket_ms, tuple(b for b in self.buckets if b[0] >= oldest))

    def totals(self, at: datetime) -> Counts:
        """What the window holds at this instant; buckets of the future do not count yet."""
        newest = self._number(at)
        return _sum(counts for number, counts in self.trimmed(at).buckets if number <= newest)

    def rows(self, at: datetime) -> list[tuple[datetime, Counts]]:
        """The ten buckets up to this instant, oldest first: where each begins, and its counts."""
        newest, held = self._number(at), dict(self.buckets)
        numbers = range(newest - BUCKETS + 1, newest + 1)
        return [(from_ms(number * self.bucket_ms), held.get(number, Counts())) for number in numbers]

    @property
    def newest_at(self) -> datetime | None:
        """Where the newest bucket that holds calls begins; None while none does."""
        return from_ms(self.buckets[-1][0] * self.bucket_ms) if self.buckets else None

    def covered_seconds(self, at: datetime) -> float:
        """Length of the time that `totals` speaks of: nine full buckets and the part of the tenth."""
        return ((BUCKETS - 1) * self.bucket_ms + to_ms(at) % self.bucket_ms) / 1000

    def everything(self) -> Counts:
        """What it holds, whatever the time."""
        return _sum(counts for _, counts in self.buckets)

    def to_json(self) -> dict[str, Any]:
        """Bucket width, and one row `[number, calls, failures, slow]` per bucket."""
        rows = [[number, counts.calls, counts.failures, counts.slow] for number, counts in self.buckets]
        return {"bucket_ms": self.bucket_ms, "rows": rows}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "SlidingWindow":
        """Read `to_json`."""
        rows = tuple((row[0], Counts(row[1], row[2], row[3])) for row in document["rows"])
        return cls(bucket_ms=document["bucket_ms"], buckets=rows)

    def _number(self, at: datetime) -> int:
        return to_ms(at) // self.bucket_ms

    def _joined(self, more: Iterable[tuple[int, Counts]]) -> "SlidingWindow":
        by_number = dict(self.buckets)
        for number, counts in more:
            by_number[number] = by_number.get(number, Counts()) + counts
        return SlidingWindow(self.bucket_ms, tuple(sorted(by_number.items())))


def _sum(all_counts: Iterable[Counts]) -> Counts:
    total = Counts()
    for counts in all_counts:
        total += counts
    return total
