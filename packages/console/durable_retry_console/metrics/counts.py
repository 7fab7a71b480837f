"""What happened to a dependency within some time, as numbers that add up over processes and minutes.

A number has a name, and where there is one of each kind a label behind it: `attempts`, `failures|transient`,
`attempt_ms|17` (durations, by bucket). Those of operations that are `high` or `low` stand a second time with
their priority before them: `high:started`. What never happened has no number.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import isfinite, log2
from typing import Final

from durable_retry.base.names import Priority
from durable_retry.rules.retry.history import WaitKind

type Counts = dict[str, float]

BY_PRIORITY: Final = frozenset({WaitKind.LIMIT, WaitKind.RETRY_BUDGET, WaitKind.CIRCUIT})
"""Waits in which the priority counts."""

PER_OCTAVE: Final = 4
"""Buckets for each doubling: a percentile is at most 19 % off, half of it as a rule."""
LAST_BUCKET: Final = 120
"""Begins at 2 ** 29.75 ms, ten days."""


def bucket_of(milliseconds: float) -> int:
    """Return the number of a duration's bucket: 0 up to a millisecond, then four for each doubling."""
    return 0 if milliseconds < 1 else min(LAST_BUCKET, 1 + int(log2(milliseconds) * PER_OCTAVE))


def percentile_ms(times: Mapping[int, float], share: float) -> float | None:
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
    bucket, most = next((one, count) for one, count in zip(buckets, reached, strict=True) if count >= rank)
    part = 1 - (most - rank) / times[bucket]
    low_ms = 2.0 ** ((bucket - 1) / PER_OCTAVE)
    return round(part if bucket == 0 else low_ms * 2.0 ** (part / PER_OCTAVE), 2)


def add(total: Counts, more: Mapping[str, float]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


def summed(several: Iterable[Mapping[str, float]]) -> Counts:
    total: Counts = {}
    for counts in several:
        add(total, counts)
    return total


def labelled(counts: Mapping[str, float], name: str) -> Counts:
    """Return the numbers of a name by their labels."""
    start = f"{name}|"
    return {key.removeprefix(start): number for key, number in counts.items() if key.startswith(start)}


def to_text(by_dependency: Mapping[str, Counts]) -> str:
    """Return the stored form of numbers by dependency; sums of seconds to the microsecond."""
    return json.dumps(
        {
            dependency: {name: round(number, 6) for name, number in counts.items()}
            for dependency, counts in by_dependency.items()
        }
    )


def from_text(text: str) -> dict[str, Counts]:
    """Read the stored form; ValueError where it is not numbers."""
    return {
        dependency: {name: _number(number) for name, number in counts.items()}
        for dependency, counts in json.loads(text).items()
    }


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return value


def of_start(priority: Priority | None) -> Counts:
    return _with_priority({"started": 1}, priority)


def of_attempt(number: int, category: str | None, duration_ms: float, *, counted: bool) -> Counts:
    """Return what counts when an attempt ends.

    Args:
        category: The category of its failure; None for a success.
        counted: False when it never left this side.
    """
    if not counted:
        return {"not_sent": 1}
    counts: Counts = {
        "attempts": 1,
        f"attempt_ms|{bucket_of(duration_ms)}": 1,
        "attempt_seconds": duration_ms / 1_000,
    }
    if number > 1:
        counts["retries"] = 1
    if category is not None:
        counts[f"failures|{category}"] = 1
    return counts


def of_end(status: str, seconds: float, priority: Priority | None) -> Counts:
    """Return what counts when an operation ends, `seconds` after its acceptance."""
    counts = _with_priority({f"operation_ms|{bucket_of(seconds * 1_000)}": 1}, priority)
    counts[f"ended|{status}"] = 1
    return counts


def of_wait(kind: str, seconds: float, late_seconds: float | None, priority: Priority | None) -> Counts:
    """Return what counts when a wait is over; it was not late where something ended it before it was due."""
    waited: Counts = {"waits": 1, "wait_seconds": seconds}
    counts = {f"{name}|{kind}": number for name, number in waited.items()}
    if kind in BY_PRIORITY and priority is not None:
        counts |= {f"{priority}:{name}": number for name, number in waited.items()}
    if late_seconds is not None:
        counts[f"late_ms|{bucket_of(late_seconds * 1_000)}"] = 1
    return counts


def of_limits(concurrency: float, per_second: float) -> Counts:
    """Return what counts when an attempt has read the limits of the moment; 0 is no limit."""
    limits = {"concurrency": concurrency, "rate": per_second}
    read = {f"limit|{kind}": limit for kind, limit in limits.items() if limit > 0}
    return read | {name.replace("limit", "limit_readings"): 1 for name in read}


def _with_priority(counts: Counts, priority: Priority | None) -> Counts:
    return counts if priority is None else counts | {f"{priority}:{name}": n for name, n in counts.items()}
