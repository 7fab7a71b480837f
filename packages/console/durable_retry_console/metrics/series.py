"""Metrics of dependencies over time: the answer of the API, and folding minutes into hours."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from durable_retry import clock
from durable_retry.engine.base.errors import StorageRefusedError
from durable_retry.runtime.concurrency import run_each
from durable_retry.settings.upkeep import retention_settings
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.metrics.figures import (
    DependencyMetrics,
    MetricsDocument,
    floored,
    points_of,
    step_for,
    summed,
)
from durable_retry_console.metrics.minutes import KEPT_MINUTES
from durable_retry_console.metrics.store import fold_hour, read_cells, read_folded_until, remove_before

FOLDED_AFTER: Final = timedelta(minutes=KEPT_MINUTES + 5)
"""After the end of an hour no process writes minutes of it any more, whatever its clock says."""

STEP_SECONDS: Final = 25.0
"""How long one run folds, and how long it removes."""

_HOUR: Final = timedelta(hours=1)


async def metrics_between(
    dependencies: Sequence[str], begin: datetime, end: datetime, now: datetime
) -> MetricsDocument:
    """Return what happened to some dependencies until an instant, in steps that add up all of them."""
    folded_until = await read_folded_until(now)
    step = step_for(begin, end, folded_until)
    first = floored(begin, step)
    found = await read_cells(dependencies, first, end, folded_until)
    cells = [cell for cell in found if first <= cell[1] < end]
    # An answer for one dependency alone shows its limits in each step.
    added_up = [
        (at, figures if len(dependencies) == 1 else figures.without_limits()) for _, at, figures in cells
    ]
    by_name = {name: summed(figures for named, _, figures in cells if named == name) for name in dependencies}
    return MetricsDocument(
        begins_at=begin,
        ends_at=end,
        step_seconds=int(step.total_seconds()),
        total=summed(figures for _, figures in added_up).shown(),
        dependencies=tuple(
            DependencyMetrics(dependency=name, **dict(figures.shown())) for name, figures in by_name.items()
        ),
        points=points_of(added_up, begin, end, step),
    )


async def keep_metrics(_hub: TaskHub, now: datetime) -> None:
    """Fold minutes into hours, and remove what is past its time: a step of upkeep."""
    await run_each((partial(fold_metrics, now, STEP_SECONDS), partial(_remove_past, now, STEP_SECONDS)))


async def _remove_past(now: datetime, seconds: float) -> None:
    kept_for = retention_settings().metrics_for
    if kept_for is not None:
        until = clock.monotonic_seconds() + seconds
        while await remove_old_metrics(now - kept_for) >= ROWS_PER_STEP and clock.monotonic_seconds() < until:
            pass


async def fold_metrics(now: datetime, seconds: float) -> int:
    """Fold the minutes of hours that no process writes to any more, for so long; return how many hours."""
    until, folded = clock.monotonic_seconds() + seconds, 0
    hour = await read_folded_until(now)
    with suppress(StorageRefusedError):  # an overlapping run folds the same hour
        while hour + _HOUR + FOLDED_AFTER <= now and clock.monotonic_seconds() < until:
            await fold_hour(hour)
            hour, folded = hour + _HOUR, folded + 1
    return folded


ROWS_PER_STEP: Final = 1_000


async def remove_old_metrics(before: datetime) -> int:
    """Delete the rows of days that ended before an instant, at most `ROWS_PER_STEP`."""
    return await remove_before(before, ROWS_PER_STEP)
