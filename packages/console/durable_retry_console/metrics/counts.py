"""What happened to a dependency within some time, as numbers that add up over processes and minutes.

A number has a name, and where there is one of each kind a label behind it: `attempts`, `failures|transient`,
`attempt_ms|17` (durations, by bucket). Those of operations that are `high` or `low` stand a second time with
their priority before them: `high:started`. What never happened has no number.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from math import log2
from typing import Any, Final

from pydantic import FiniteFloat, TypeAdapter

from durable_retry.rules import facts
from durable_retry.rules.circuit.breaker import FREE
from durable_retry.rules.operations.status import lasted_seconds
from durable_retry.rules.retry.history import WaitKind
from durable_retry.telemetry.spans import dependency_label

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


_STORED: Final = TypeAdapter[dict[str, Counts]](dict[str, dict[str, int | FiniteFloat]])


def from_text(text: str) -> dict[str, Counts]:
    """Read the stored form; ValueError where it is not numbers."""
    return _STORED.validate_json(text, strict=True)


type Counted = tuple[str, Counts]
"""A dependency, and what a fact says of it; no numbers where it counts nothing."""


def _of_submission(fact: facts.Submitted) -> Counted:
    counts: Counts = {"started": 1} if fact.outcome is facts.SubmissionOutcome.STARTED else {}
    return fact.operation.dependency, _with_priority(counts, fact.operation.priority)


def _of_attempt(fact: facts.AttemptEnded | facts.DeliveryEnded) -> Counted:
    outcome, category = fact.outcome, fact.outcome.category
    dependency = dependency_label(fact.operation.dependency)
    # A success is counted whatever its attempt says of itself.
    if outcome.never_left and category is not None:
        return dependency, {"not_sent": 1}
    counts: Counts = {
        "attempts": 1,
        f"attempt_ms|{bucket_of(outcome.duration_ms)}": 1,
        "attempt_seconds": outcome.duration_ms / 1_000,
    }
    if outcome.number > 1:
        counts["retries"] = 1
    if category is not None:
        counts[f"failures|{category}"] = 1
    return dependency, counts


def _of_wait(fact: facts.WaitEnded) -> Counted:
    waited: Counts = {"waits": 1, "wait_seconds": fact.seconds}
    counts = {f"{name}|{fact.kind}": number for name, number in waited.items()}
    if fact.kind in BY_PRIORITY and fact.operation.priority is not None:
        counts |= {f"{fact.operation.priority}:{name}": number for name, number in waited.items()}
    if fact.late_seconds is not None:
        counts[f"late_ms|{bucket_of(fact.late_seconds * 1_000)}"] = 1
    return fact.operation.dependency, counts


def _of_end(fact: facts.OperationEnded) -> Counted:
    document, bucket = fact.document, bucket_of(lasted_seconds(fact.document) * 1_000)
    counts = _with_priority({f"operation_ms|{bucket}": 1}, document.get("priority"))
    return document["dependency"], counts | {f"ended|{document['status']}": 1}


def _of_opening(fact: facts.CircuitChanged) -> Counted:
    # A probe that fails opens it again: the outage was counted.
    is_new = fact.before in FREE and fact.after not in FREE
    name = "openings" if fact.limit_key is None else "key_openings"
    return fact.dependency, {name: 1} if is_new else {}


def _of_limits(fact: facts.LimitsRead) -> Counted:
    limits = {"concurrency": fact.concurrency, "rate": fact.per_second}
    read = {f"limit|{kind}": limit for kind, limit in limits.items() if limit > 0}
    return fact.dependency, read | {name.replace("limit", "limit_readings"): 1 for name in read}


def _with_priority(counts: Counts, priority: str | None) -> Counts:
    return counts if priority is None else counts | {f"{priority}:{name}": n for name, n in counts.items()}


COUNTED: Final[Mapping[type[facts.Fact], Callable[[Any], Counted]]] = {
    facts.Submitted: _of_submission,
    facts.AttemptEnded: _of_attempt,
    facts.DeliveryEnded: _of_attempt,
    facts.WaitEnded: _of_wait,
    facts.OperationEnded: _of_end,
    facts.CircuitChanged: _of_opening,
    facts.LimitsRead: _of_limits,
}
"""The facts that are counted, and what counts of each."""
