"""HTTP: an overview of everything in one answer, and the operations in numbers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from azure.core.exceptions import AzureError
from pydantic import Field

from durable_retry.base.answers import Answer, Instant
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.circuit import routes as circuits
from durable_retry.features.dead_letter_lists import routes as dead_letters
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary
from durable_retry.http.parameters import whole_number
from durable_retry.http.routes import Query, Routes
from durable_retry.hub.binding import TaskHub
from durable_retry.runtime import clock
from durable_retry.runtime.sharing import shared
from durable_retry.upkeep.health import Health, read_health
from durable_retry_console.alerts.board import raised_alerts
from durable_retry_console.causes.groups import largest_groups
from durable_retry_console.causes.shapes import LargestGroups
from durable_retry_console.metrics.document import MetricFigures
from durable_retry_console.optional import of_feature, of_features
from durable_retry_console.overview.dependencies import DependencyGlance, by_trouble, read_circuits
from durable_retry_console.overview.summary import (
    OLDER_SECONDS,
    OperationSummary,
    operation_summary,
    recent_metrics,
)

if TYPE_CHECKING:
    from durable_retry_console.overview.outbox import OutboxGlance
else:
    OutboxGlance = of_feature("outbox", "durable_retry_console.overview.outbox:OutboxGlance") or Answer

routes = Routes("the app")
operation_routes = Routes("operations")

# More than fit the first screen; the others are a number.
_CAUSES_SHOWN: Final = 6

WINDOW: Final = whole_number("window_seconds", 60, 604_800, 900, "How far back.")

SUMMARY_MOVING: Final = frozenset({"counted_at", "from", "to"})
"""Fields of a summary that change with the time of asking alone."""

_OLD: Final = timedelta(seconds=5)

_MOVING: Final = SUMMARY_MOVING | circuits.MOVING | dead_letters.MOVING


class OpenDeadLettersGlance(DeadLetterSummary, LargestGroups):
    """Open dead letters in numbers, with the largest causes."""


class MetricsGlance(MetricFigures):
    """Throughput and latency of all dependencies together, in whole minutes."""

    begins_at: Instant = Field(alias="from")
    ends_at: Instant = Field(alias="to")


class RaisedAlert(Answer):
    """An incident that goes on."""

    condition: str
    dependency: str | None
    text: str
    raised_at: Instant


class OverviewDocument(Answer):
    """How the app is; a part that did not answer is null, and `unavailable` has its failure."""

    operations: OperationSummary | None
    circuits: tuple[DependencyGlance, ...] | None
    dead_letters: OpenDeadLettersGlance | None
    outbox: OutboxGlance | None = Field(
        default=None, description="Events that are not sent; null also in an app without an outbox."
    )
    metrics: MetricsGlance | None
    alerts: tuple[RaisedAlert, ...] | None
    health: Health | None
    unavailable: dict[str, str] = Field(description="Kind of failure by part.")
    as_of: dict[str, Instant] = Field(
        description="When parts were read that are older than five seconds: what takes long is kept."
    )


@routes.get("overview", parameters=(WINDOW,), errors=(), moving=_MOVING)
async def get_overview(query: Query, hub: TaskHub) -> OverviewDocument:
    """Show operations, circuits, dead letters, the outbox and health at a glance."""
    readers = _PARTS | of_features(_OF_FEATURES)
    parts: dict[str, Awaitable[tuple[Any, datetime]]] = {
        "operations": _operations_part(hub, query[WINDOW]),
        "metrics": _metrics_part(query[WINDOW]),
        **{
            name: shared((name, hub), partial(_dated, read, hub), older_seconds=OLDER_SECONDS)
            for name, read in readers.items()
        },
    }
    answered = dict(zip(parts, await asyncio.gather(*map(_part_or_failure, parts.values())), strict=True))
    found = {name: part for name, (part, _, _) in answered.items()}
    unavailable = {name: failure for name, (_, _, failure) in answered.items() if failure is not None}
    old = {name: at for name, (_, at, _) in answered.items() if at is not None and clock.now() - at > _OLD}
    if found["circuits"] is not None:
        found["circuits"] = by_trouble(found["circuits"], found["operations"], found["dead_letters"])
    return OverviewDocument(**found, unavailable=unavailable, as_of=old)


async def _dated[T](read: Callable[[TaskHub], Awaitable[T]], hub: TaskHub) -> tuple[T, datetime]:
    return await read(hub), clock.now()


async def _part_or_failure(part: Awaitable[tuple[Any, datetime]]) -> tuple[Any, datetime | None, str | None]:
    # The others are shown without it.
    try:
        return *(await part), None
    except (TaskHubUnavailableError, AzureError) as error:
        return None, None, type(error).__name__


async def _operations_part(hub: TaskHub, window_seconds: int) -> tuple[OperationSummary, datetime]:
    summary = await operation_summary(hub, window_seconds)
    return summary, summary.counted_at


async def _metrics_part(window_seconds: int) -> tuple[MetricsGlance, datetime]:
    found = await recent_metrics(window_seconds)
    glance = MetricsGlance.taken_from(found.total, begins_at=found.begins_at, ends_at=found.ends_at)
    return glance, found.ends_at


async def _dead_letters_part(_hub: TaskHub) -> OpenDeadLettersGlance:
    summary, largest = await asyncio.gather(read_summary(clock.now()), largest_groups(_CAUSES_SHOWN))
    return OpenDeadLettersGlance(**dict(summary), **dict(largest))


async def _alerts_part(_hub: TaskHub) -> tuple[RaisedAlert, ...]:
    return tuple(map(RaisedAlert.taken_from, await raised_alerts()))


# What does not depend on the window, by name.
_PARTS: Final[dict[str, Callable[[TaskHub], Awaitable[Any]]]] = {
    "circuits": read_circuits,
    "dead_letters": _dead_letters_part,
    "alerts": _alerts_part,
    "health": read_health,
}
_OF_FEATURES: Final = {"outbox": "durable_retry_console.overview.outbox:outbox_glance"}


@operation_routes.get("operations/summary", parameters=(WINDOW,), moving=SUMMARY_MOVING)
async def summarize_operations(query: Query, hub: TaskHub) -> OperationSummary:
    """Count operations by state, lately and now."""
    return await operation_summary(hub, query[WINDOW])
