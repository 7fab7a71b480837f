"""What happened to a dependency over time: figures of a minute, merged into longer steps.

Figures of several processes and minutes add up: durations are counted in buckets (`buckets`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated, Any, Final, Self

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant
from durable_retry.engine.base.json_forms import JsonRow, JsonShape
from durable_retry.engine.base.names import Priority
from durable_retry.engine.operations.debounce import DebounceOutcome
from durable_retry_console.metrics.buckets import Percentiles, Waited, Waits, bucket_of
from durable_retry_console.metrics.priorities import (
    BY_PRIORITY,
    PriorityFigures,
    PriorityMetrics,
    shown_priorities,
)


class LimitKind(StrEnum):
    """What a dependency limits, as the stored form names it."""

    CONCURRENCY = "concurrency"
    RATE = "rate"


@dataclass(slots=True)
class Readings(JsonRow):
    """Values that were read: how many, and their sum."""

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Their mean; at least one was read."""
        return round(self.total / self.count, 3)


@dataclass(slots=True)
class Figures(JsonShape):
    """What happened to one dependency within some time. Counted where it ends.

    Attributes:
        started: Operations accepted.
        attempts: Attempts that ended and count, first ones and retries.
        retries: Attempts among them with a number above 1.
        not_sent: Attempts that never left this side and are made again under their number.
        failures: Failed attempts by category.
        attempt_times: Durations of attempts, by bucket.
        attempt_seconds: Their sum.
        ended: Operations that ended, by status.
        operation_times: From acceptance to the end, by bucket.
        waits: By kind.
        late_times: From when a wait was due to its end, by bucket.
        openings: Outages that began; probes that fail in one are none.
        limits: The limits of the moment, by kind, read whenever an attempt asked whether it may start.
        priorities: What was `high` or `low`; the rest is `normal`.
        debounce_replaced: Operations that a later one of their debounce key replaced.
        debounce_ran: Operations with a debounce key that ended otherwise.
    """

    started: int = 0
    attempts: int = 0
    retries: int = 0
    not_sent: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    attempt_times: Counter[int] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    operation_times: Counter[int] = field(default_factory=Counter)
    waits: dict[str, Waits] = field(default_factory=dict)
    late_times: Counter[int] = field(default_factory=Counter)
    openings: int = 0
    attempt_seconds: float = 0.0
    limits: dict[LimitKind, Readings] = field(default_factory=dict)
    priorities: dict[Priority, PriorityFigures] = field(default_factory=dict)
    debounce_replaced: int = 0
    debounce_ran: int = 0

    def count_start(self, priority: Priority | None = None) -> None:
        """Count an operation that was accepted."""
        self.started += 1
        if priority is not None:
            self._of(priority).started += 1

    def _of(self, priority: Priority) -> PriorityFigures:
        return self.priorities.setdefault(priority, PriorityFigures())

    def count_attempt(self, number: int, category: str | None, duration_ms: float, *, counted: bool) -> None:
        """Count an attempt that ended.

        Args:
            category: The category of its failure; None for a success.
            counted: False when it never left this side.
        """
        if not counted:
            self.not_sent += 1
            return
        self.attempts += 1
        self.retries += number > 1
        if category is not None:
            self.failures[category] += 1
        self.attempt_times[bucket_of(duration_ms)] += 1
        self.attempt_seconds = round(self.attempt_seconds + duration_ms / 1_000, 6)

    def count_end(self, status: str, seconds: float, priority: Priority | None = None) -> None:
        """Count an operation that ended, and how long it took from its acceptance."""
        bucket = bucket_of(seconds * 1_000)
        self.ended[status] += 1
        self.operation_times[bucket] += 1
        if priority is not None:
            self._of(priority).operation_times[bucket] += 1

    def count_debounce(self, outcome: DebounceOutcome) -> None:
        """Count an operation with a debounce key that ended."""
        self.debounce_replaced += outcome is DebounceOutcome.REPLACED
        self.debounce_ran += outcome is DebounceOutcome.RAN

    def count_wait(self, kind: str, seconds: float, priority: Priority | None = None) -> None:
        """Count a wait that is over."""
        self.waits.setdefault(kind, Waits()).add(1, seconds)
        if priority is not None and kind in BY_PRIORITY:
            self._of(priority).waits.add(1, seconds)

    def count_late(self, seconds: float) -> None:
        """Count the end of a wait so long after it was due."""
        self.late_times[bucket_of(seconds * 1_000)] += 1

    def read_limit(self, kind: LimitKind, value: float, count: int = 1) -> None:
        """Count readings of a limit, with the sum of their values."""
        readings = self.limits.setdefault(kind, Readings())
        readings.count += count
        readings.total = round(readings.total + value, 6)

    def without_limits(self) -> Self:
        """Return the figures as they are added up over dependencies: their limits have no sum."""
        return replace(self, limits={})

    def add(self, other: "Figures") -> None:
        """Add the figures of another process, of another minute or of another dependency."""
        for name in (*_NUMBERS, "openings", "attempt_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("failures", "ended", "attempt_times", "operation_times", "late_times"):
            getattr(self, name).update(getattr(other, name))
        for kind, waits in other.waits.items():
            self.waits.setdefault(kind, Waits()).add(waits.count, waits.seconds)
        for priority, figures in other.priorities.items():
            self._of(priority).add(figures)
        for limit, readings in other.limits.items():
            self.read_limit(limit, readings.total, readings.count)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, without what is zero."""
        return {name: value for name, value in JsonShape.to_json(self).items() if value}

    def shown(self) -> "MetricFigures":
        """Return the form of the API."""
        first = self.attempts - self.retries
        return MetricFigures.taken_from(
            self,
            failures=sum(self.failures.values()),
            failures_by_category=dict(self.failures),
            amplification=round(self.attempts / first, 3) if first > 0 else None,
            attempt_ms=Percentiles.of(self.attempt_times),
            ended=sum(self.ended.values()),
            ended_by_status=dict(self.ended),
            operation_ms=Percentiles.of(self.operation_times),
            waits={kind: Waited.of(one) for kind, one in self.waits.items()},
            late_ms=Percentiles.of(self.late_times),
            attempt_seconds=round(self.attempt_seconds, 3),
            current_concurrency=self._mean_limit(LimitKind.CONCURRENCY),
            current_rate_per_second=self._mean_limit(LimitKind.RATE),
            by_priority=shown_priorities(self.priorities, self._all_by_priority()),
            debounce_replaced=self.debounce_replaced,
            debounce_ran=self.debounce_ran,
        )

    def _all_by_priority(self) -> PriorityFigures:
        waits = Waits()
        for kind in BY_PRIORITY & self.waits.keys():
            waits.add(self.waits[kind].count, self.waits[kind].seconds)
        return PriorityFigures(self.started, waits, self.operation_times)

    def _mean_limit(self, kind: LimitKind) -> float | None:
        readings = self.limits.get(kind)
        return None if readings is None else readings.mean


class MetricFigures(Answer):
    """What happened within some time, counted where it ended."""

    started: Annotated[int, Field(description="Operations accepted.")]
    attempts: Annotated[int, Field(description="Attempts that ended, retries included.")]
    failures: int
    failures_by_category: dict[str, int]
    retries: Annotated[int, Field(description="Attempts after the first one of their operation.")]
    amplification: Annotated[
        float | None, Field(description="Attempts for each first attempt; null without a first attempt.")
    ]
    not_sent: Annotated[
        int, Field(description="Attempts that never left the app; they are made again and count as none.")
    ]
    attempt_ms: Percentiles
    ended: Annotated[int, Field(description="Operations that ended.")]
    ended_by_status: dict[str, int]
    operation_ms: Annotated[Percentiles, Field(description="From acceptance to the end, waits included.")]
    waits: Annotated[
        dict[str, Waited],
        Field(description="By kind: retry, circuit, retry_budget, limit, order, own_failure."),
    ]
    late_ms: Annotated[Percentiles, Field(description="From when a wait was due to its end.")]
    openings: Annotated[int, Field(description="Outages that began: a circuit opened, by itself or by hand.")]
    attempt_seconds: Annotated[
        float,
        Field(
            description="Sum of the attempts' durations. Divided by the seconds of the step, it is how many "
            "were under way on average."
        ),
    ]
    current_concurrency: Annotated[
        float | None,
        Field(
            description="How many attempts were allowed at once, on average of the attempts that asked. null "
            "without such a limit, where no attempt asked, and for several dependencies."
        ),
    ]
    current_rate_per_second: Annotated[
        float | None,
        Field(
            description="How many starts per second were allowed, likewise: `rate_per_second`, or what the "
            "pace made of it."
        ),
    ]
    by_priority: Annotated[
        dict[Priority, PriorityMetrics], Field(description="Empty where every operation was `normal`.")
    ]
    debounce_replaced: Annotated[
        int, Field(description="Operations that ended since a later one of their debounce key replaced them.")
    ]
    debounce_ran: Annotated[int, Field(description="Operations with a debounce key that ran, and ended.")]


class DependencyMetrics(MetricFigures):
    """What happened to one dependency."""

    dependency: str


class MetricPoint(MetricFigures):
    """What happened in one step."""

    at: Annotated[Instant, Field(description="Beginning of the step.")]


class MetricsDocument(Answer):
    """What happened to one dependency or to all of them."""

    begins_at: Annotated[Instant, Field(alias="from")]
    ends_at: Annotated[Instant, Field(alias="to")]
    step_seconds: int
    total: MetricFigures
    dependencies: tuple[DependencyMetrics, ...]
    points: tuple[MetricPoint, ...]


_NUMBERS: Final = ("started", "attempts", "retries", "not_sent", "debounce_replaced", "debounce_ran")


def summed(figures: Iterable[Figures]) -> Figures:
    """Return the sum of figures."""
    total = Figures()
    for figure in figures:
        total.add(figure)
    return total


MINUTE: Final = timedelta(minutes=1)
CELL: Final = timedelta(minutes=5)
"""What is left of minutes once they are folded."""
STEPS: Final = (MINUTE, CELL, timedelta(minutes=10), timedelta(minutes=30), timedelta(hours=1))
MOST_POINTS: Final = 180
SHORTEST_RANGE: Final = timedelta(minutes=1)
LONGEST_RANGE: Final = timedelta(days=7, hours=1)
"""Seven days, and what a request may be under way or a clock may be wrong."""


def step_for(begin: datetime, end: datetime, minutes_since: datetime) -> timedelta:
    """Return the length of a step: the shortest that keeps a range at no more than `MOST_POINTS`.

    Args:
        minutes_since: Before this instant minutes are folded, and no step is shorter than `CELL`.
    """
    steps = STEPS if begin >= minutes_since else STEPS[1:]
    return next((step for step in steps if ceil((end - begin) / step) < MOST_POINTS), STEPS[-1])


def floored(instant: datetime, step: timedelta) -> datetime:
    """Return the beginning of the step that an instant is in; steps count from midnight, UTC."""
    seconds = int(step.total_seconds())
    return datetime.fromtimestamp(int(instant.timestamp()) // seconds * seconds, UTC)


def points_of(
    cells: Iterable[tuple[datetime, Figures]], begin: datetime, end: datetime, step: timedelta
) -> tuple[MetricPoint, ...]:
    """Return the steps of a range, also those in which nothing happened."""
    first = floored(begin, step)
    points = [Figures() for _ in range(max(1, ceil((end - first) / step)))]
    for at, figures in cells:
        place = (at - first) // step
        if 0 <= place < len(points):
            points[place].add(figures)
    return tuple(
        MetricPoint(at=first + place * step, **dict(figures.shown())) for place, figures in enumerate(points)
    )
