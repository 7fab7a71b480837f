"""Durations counted in buckets of fixed bounds, and waits: they add up without losing anything."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import log2
from typing import Final, Self

from durable_retry.engine.base.answers import Answer
from durable_retry.engine.base.json_forms import JsonRow

PER_OCTAVE: Final = 4
"""Buckets for each doubling: a percentile is at most 19 % off, half of it as a rule."""
LAST_BUCKET: Final = 120
"""Begins at 2 ** 29.75 ms, ten days."""


def bucket_of(milliseconds: float) -> int:
    """Return the number of a duration's bucket: 0 up to a millisecond, then four for each doubling."""
    return 0 if milliseconds < 1 else min(LAST_BUCKET, 1 + int(log2(milliseconds) * PER_OCTAVE))


def percentile_ms(times: Mapping[int, int], share: float) -> float | None:
    """Return the duration that this share of the counted ones does not exceed.

    Args:
        times: Counts by the number of the bucket.
        share: Above 0, at most 1: 0.95 for p95.

    Returns:
        Milliseconds, interpolated within a bucket; None when nothing was counted.
    """
    if not times:
        return None
    buckets = sorted(times)
    reached = list(accumulate(times[bucket] for bucket in buckets))
    rank = share * reached[-1]
    place = bisect_left(reached, rank)
    bucket, within = buckets[place], times[buckets[place]]
    part = 1 - (reached[place] - rank) / within
    low_ms = 2.0 ** ((bucket - 1) / PER_OCTAVE)
    return round(part if bucket == 0 else low_ms * 2.0 ** (part / PER_OCTAVE), 2)


class Percentiles(Answer):
    """Durations in milliseconds; null where nothing ended."""

    p50: float | None
    p95: float | None

    @classmethod
    def of(cls, times: Mapping[int, int]) -> Self:
        """Return those of durations that are counted by bucket."""
        return cls(p50=percentile_ms(times, 0.5), p95=percentile_ms(times, 0.95))


@dataclass(slots=True)
class Waits(JsonRow):
    """Waits that are over: how many, and their sum in seconds."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        """Add further waits, with the sum of their seconds."""
        self.count += count
        # Microseconds are enough, and the stored form is short.
        self.seconds = round(self.seconds + seconds, 6)


class Waited(Answer):
    """Waits of one kind that are over."""

    count: int
    seconds: float

    @classmethod
    def of(cls, waits: Waits) -> Self:
        """Return what people see of waits."""
        return cls(count=waits.count, seconds=round(waits.seconds, 3))
