"""HTTP: metrics of dependencies over time."""

from datetime import timedelta
from typing import Annotated, Final

import azure.functions as func
from pydantic import BaseModel, Field

from durable_retry import clock
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.metrics import LONGEST_RANGE, SHORTEST_RANGE
from durable_retry.services.metrics import metrics_between
from durable_retry.settings.configuration import dependencies
from durable_retry.telemetry.spans import QUEUE
from durable_retry.triggers.http.answers import json_answer
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.parameters import instant, text
from durable_retry.triggers.http.routes import AWAY, Query, Routes, shown

routes = Routes("metrics")

_DEFAULT_RANGE: Final = timedelta(hours=1)


class Percentiles(BaseModel):
    """Durations in milliseconds; null where nothing ended."""

    p50: float | None
    p95: float | None


class Waited(BaseModel):
    """Waits of one kind that are over."""

    count: int
    seconds: float


class MetricFigures(BaseModel):
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
    waits: Annotated[dict[str, Waited], Field(description="By kind: retry, circuit, retry_budget, limit.")]
    openings: Annotated[int, Field(description="How often circuits opened, by themselves or by hand.")]


class DependencyMetrics(MetricFigures):
    """What happened to one dependency."""

    dependency: str


class MetricPoint(MetricFigures):
    """What happened in one step."""

    at: Annotated[UtcInstant, Field(description="Beginning of the step.")]


class MetricsDocument(BaseModel):
    """What happened to one dependency or to all of them."""

    begins_at: Annotated[UtcInstant, Field(alias="from")]
    ends_at: Annotated[UtcInstant, Field(alias="to")]
    step_seconds: int
    total: MetricFigures
    dependencies: list[DependencyMetrics]
    points: list[MetricPoint]


def _known() -> list[str]:
    return [*sorted(dependencies().dependencies), QUEUE]


DEPENDENCY: Final = text(
    "dependency", "A name in `dependencies.toml`, or `queue` for events to queues; every one when missing."
)
FROM: Final = instant("from", "Start of the range; an hour before its end when missing.")
TO: Final = instant("to", "End of the range, exclusive; now when missing.")


@routes.get("metrics", answers=shown(MetricsDocument), errors=(AWAY,), parameters=(DEPENDENCY, FROM, TO))
async def get_metrics(query: Query) -> func.HttpResponse:
    """Show attempts, failures, retries, durations and waits over time.

    A range is a minute to seven days long and is answered in at most 180 steps.
    """
    now = clock.now()
    end = query[TO] or now
    begin = query[FROM] or end - _DEFAULT_RANGE
    problems = []
    if not SHORTEST_RANGE <= end - begin <= LONGEST_RANGE:
        problems.append(Problem("/from", "must be a minute to seven days before `to`"))
    known = _known()
    wanted = query[DEPENDENCY]
    if wanted is not None and wanted not in known:
        problems.append(Problem("/dependency", f"must be one of {', '.join(known)}"))
    if problems:
        raise InvalidInputError(problems)
    return json_answer(await metrics_between([wanted] if wanted else known, begin, end, now))
