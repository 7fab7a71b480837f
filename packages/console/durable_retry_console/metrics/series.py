"""Metrics of dependencies over time: the answer of the API, and removing what is past its time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final

from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.settings.configuration import present_name
from durable_retry.settings.group import span_of_days
from durable_retry_console.metrics.counts import Counts, add, summed
from durable_retry_console.metrics.document import (
    DependencyMetrics,
    MetricFigures,
    MetricPoint,
    MetricsDocument,
)
from durable_retry_console.metrics.minutes import CELL_MINUTES, read_cells, remove_before
from durable_retry_console.metrics.settings import metrics_settings

MINUTE: Final = timedelta(minutes=1)
_STEPS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, CELL_MINUTES, 10, 30, 60))
MOST_POINTS: Final = 180
SHORTEST_RANGE: Final = timedelta(minutes=1)
LONGEST_RANGE: Final = timedelta(days=7, hours=1)
"""Seven days, and what a request may be under way or a clock may be wrong."""

_ROWS_PER_STEP: Final = 1_000
_STEP_SECONDS: Final = 25.0
"""How long one run removes."""


def step_for(begin: datetime, end: datetime) -> timedelta:
    """Return the length of a step: the shortest that keeps a range at no more than `MOST_POINTS`."""
    return next((step for step in _STEPS if ceil((end - begin) / step) < MOST_POINTS), _STEPS[-1])


def floored(instant: datetime, step: timedelta) -> datetime:
    """Return the beginning of the step that an instant is in; steps count from midnight, UTC."""
    seconds = int(step.total_seconds())
    return datetime.fromtimestamp(int(instant.timestamp()) // seconds * seconds, UTC)


async def metrics_between(dependencies: Sequence[str], begin: datetime, end: datetime) -> MetricsDocument:
    """Return what happened to some dependencies until an instant, in steps that add up all of them.

    What was counted for one by an earlier name is of its present name.
    """
    step = step_for(begin, end)
    first = floored(begin, step)
    by_name: dict[str, Counts] = {name: {} for name in dependencies}
    # Also the steps in which nothing happened.
    points: list[Counts] = [{} for _ in range(max(1, ceil((end - first) / step)))]
    for at, found in await read_cells(1 if step == MINUTE else CELL_MINUTES, first, end):
        for counted_as, counts in found.items():
            if (name := present_name(counted_as)) in by_name:
                add(by_name[name], counts)
                add(points[(at - first) // step], counts)
    is_one = len(by_name) == 1
    return MetricsDocument(
        begins_at=begin,
        ends_at=end,
        step_seconds=int(step.total_seconds()),
        total=MetricFigures.of(summed(by_name.values()), with_limits=is_one),
        dependencies=tuple(DependencyMetrics.of(counts, dependency=name) for name, counts in by_name.items()),
        points=tuple(
            MetricPoint.of(counts, with_limits=is_one, at=first + place * step)
            for place, counts in enumerate(points)
        ),
    )


async def keep_metrics(_hub: TaskHub, now: datetime) -> None:
    """Remove what is past its time: a step of upkeep."""
    kept_for = span_of_days(metrics_settings().metrics_retention_days)
    if kept_for is not None:
        until = clock.monotonic_seconds() + _STEP_SECONDS
        while await remove_before(now - kept_for, _ROWS_PER_STEP) >= _ROWS_PER_STEP:
            if clock.monotonic_seconds() >= until:
                break
