"""HTTP: the health of the app, and an overview of everything in one answer."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import azure.functions as func
from azure.core.exceptions import AzureError
from pydantic import BaseModel, Field

from durable_retry.engine.base.names import DeadLetterReason
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import Status
from durable_retry.engine.outbox import EventState
from durable_retry.services.overview import operation_summary, recent_metrics, shared
from durable_retry.settings.configuration import dependencies
from durable_retry.settings.maintenance import maintenance_settings
from durable_retry.settings.setting import SettingsError
from durable_retry.stores import tables, task_hub
from durable_retry.stores.dead_letters import records as dead_letter_records
from durable_retry.stores.dead_letters.index import read_groups
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.outbox import list_pending
from durable_retry.stores.outbox_index import list_ended
from durable_retry.stores.task_hub import TaskHubUnavailableError
from durable_retry.triggers.http import alerts, circuits, dead_letters, operations
from durable_retry.triggers.http.answers import etag_of, json_answer
from durable_retry.triggers.http.dead_letters import DeadLetterGroup, DeadLetterSummary
from durable_retry.triggers.http.documents import OperationSummary, UtcInstant
from durable_retry.triggers.http.metrics import MetricFigures
from durable_retry.triggers.http.operations import WINDOW
from durable_retry.triggers.http.outbox import OutboxEvent
from durable_retry.triggers.http.routes import AWAY, OK, Query, RouteAnswer, Routes, shown

routes = Routes("the app")

_PATIENCE_SECONDS: Final = 5.0
"""A part that takes longer than this to answer counts as failing."""

_SHOWN: Final = 8
"""Dead letters, groups and failed events in the overview."""

_MOST_EVENTS: Final = 50
_MOST_FAILED: Final = 50
_MOVING: Final = operations.MOVING | circuits.MOVING | dead_letters.MOVING


class HealthPart(BaseModel):
    """Whether one part works."""

    healthy: bool
    detail: str | None = None


class HealthDocument(BaseModel):
    """Whether the app can accept operations."""

    status: Literal["healthy", "unhealthy"]
    parts: dict[str, HealthPart]


class CircuitGlance(circuits.CircuitFigures):
    """A circuit without its window and audit."""

    opens_at_ratio: Annotated[float, Field(description="The ratio of failures that opens it.")]


class DeadLetterGlance(BaseModel):
    """A dead letter without what it was to do."""

    id: str
    operation_id: str | None
    key: str
    dependency: str | None
    reason: DeadLetterReason
    detail: str
    created_at: UtcInstant
    status: Status


class OpenDeadLettersGlance(DeadLetterSummary):
    """Open dead letters in numbers, with the latest causes and the latest dead letters."""

    groups: list[DeadLetterGroup]
    latest: list[DeadLetterGlance]


class OutboxGlance(BaseModel):
    """Events that are not sent, as far as they were looked at: 50 of each state."""

    pending: int
    pending_complete: Annotated[bool, Field(description="False when there are more.")]
    oldest: Annotated[OutboxEvent | None, Field(description="Of the pending ones that were looked at.")]
    failed: int
    failed_complete: Annotated[bool, Field(description="False when there are more.")]
    latest_failed: list[OutboxEvent]
    alarm_lag_seconds: Annotated[
        float, Field(description="The age of a pending event above which an alert is raised; 0 means never.")
    ]


class MetricsGlance(MetricFigures):
    """Throughput and latency of all dependencies together, in whole minutes."""

    begins_at: Annotated[UtcInstant, Field(alias="from")]
    ends_at: Annotated[UtcInstant, Field(alias="to")]


class RaisedAlert(BaseModel):
    """An incident that goes on."""

    condition: str
    dependency: str | None
    text: str
    state: Literal["firing", "silenced"]
    raised_at: UtcInstant


class OverviewDocument(BaseModel):
    """How the app is; a part that did not answer is null, and `unavailable` has its failure."""

    operations: OperationSummary | None
    circuits: list[CircuitGlance] | None
    dead_letters: OpenDeadLettersGlance | None
    outbox: OutboxGlance | None
    metrics: MetricsGlance | None
    alerts: list[RaisedAlert] | None
    health: HealthDocument | None
    unavailable: Annotated[dict[str, str], Field(description="Kind of failure by part.")]


@routes.get(
    "health",
    answers=(
        RouteAnswer(OK, "It can.", HealthDocument),
        RouteAnswer(AWAY, "It cannot; the parts that fail say so.", HealthDocument),
    ),
    anonymous=True,
)
async def get_health(hub: str) -> func.HttpResponse:
    """Check whether the app can accept operations."""
    document = await _health(hub)
    healthy = document["status"] == "healthy"
    return json_answer(document, HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)


async def _health(hub: str) -> dict[str, Any]:
    checks = {
        "task_hub": task_hub.check(hub),
        "storage": tables.read(dead_letter_records.TABLE, "health", "health"),
    }
    results = await asyncio.gather(*(_checked(check) for check in checks.values()))
    parts = dict(zip(checks, results, strict=True))
    healthy = all(part["healthy"] for part in parts.values())
    return {"status": "healthy" if healthy else "unhealthy", "parts": parts}


async def _checked(check: Awaitable[object]) -> dict[str, Any]:
    """Wait for a check; give the kind of failure and never an address, since the route needs no key."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await check
    except (TaskHubUnavailableError, AzureError, SettingsError, TimeoutError) as error:
        return {"healthy": False, "detail": type(error).__name__}
    return {"healthy": True}


@routes.get("overview", parameters=(WINDOW,), answers=shown(OverviewDocument))
async def get_overview(query: Query, hub: str) -> func.HttpResponse:
    """Show operations, circuits, dead letters, the outbox and health at a glance."""
    parts: dict[str, Awaitable[Any]] = {
        "operations": operation_summary(hub, query[WINDOW]),
        "metrics": _metrics(query[WINDOW]),
        **{name: shared((name, hub), partial(read, hub)) for name, read in _PARTS.items()},
    }
    answered = dict(zip(parts, await asyncio.gather(*map(_answered, parts.values())), strict=True))
    unavailable = {name: failure for name, (_, failure) in answered.items() if failure is not None}
    document = {name: part for name, (part, _) in answered.items()} | {"unavailable": unavailable}
    return json_answer(document, headers={"ETag": etag_of(document, _MOVING)})


async def _answered(part: Awaitable[Any]) -> tuple[Any, str | None]:
    """Return a part, or the kind of its failure: the others are shown without it."""
    try:
        return await part, None
    except (TaskHubUnavailableError, AzureError) as error:
        return None, type(error).__name__


async def _metrics(window_seconds: int) -> dict[str, Any]:
    found = await recent_metrics(window_seconds)
    return {"from": found["from"], "to": found["to"], **found["total"]}


_CIRCUIT_FIELDS: Final = tuple(circuits.CircuitFigures.model_fields)
_DEAD_LETTER_FIELDS: Final = tuple(DeadLetterGlance.model_fields)


async def _circuits(hub: str) -> list[dict[str, Any]]:
    known = dependencies().dependencies
    return [
        {name: each[name] for name in _CIRCUIT_FIELDS}
        | {"opens_at_ratio": known[each["dependency"]].circuit.failure_ratio}
        for each in await circuits.circuit_documents(hub)
    ]


async def _dead_letters(_hub: str) -> dict[str, Any]:
    summary, groups, latest = await asyncio.gather(
        dead_letters.summary_document(),
        read_groups(),
        list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=_SHOWN, cursor=None),
    )
    shown_letters = [dead_letters.document_of(record) for record in latest.records]
    return {
        **summary,
        "groups": [dead_letters.shown_group(group) for group in groups[:_SHOWN]],
        "latest": [{name: each[name] for name in _DEAD_LETTER_FIELDS} for each in shown_letters],
    }


async def _outbox(_hub: str) -> dict[str, Any]:
    (pending, more_pending), (failed, more_failed) = await asyncio.gather(
        list_pending(_MOST_EVENTS, None), list_ended(EventState.FAILED, _MOST_FAILED, None)
    )
    return {
        "pending": len(pending),
        "pending_complete": more_pending is None,
        "oldest": min(pending, key=lambda event: event["pending_since"], default=None),
        "failed": len(failed),
        "failed_complete": more_failed is None,
        "latest_failed": failed[:_SHOWN],
        "alarm_lag_seconds": maintenance_settings().thresholds.outbox_lag_seconds,
    }


async def _alerts(_hub: str) -> list[dict[str, Any]]:
    return [{name: each[name] for name in RaisedAlert.model_fields} for each in await alerts.raised_alerts()]


_PARTS: Final[dict[str, Callable[[str], Awaitable[Any]]]] = {
    "circuits": _circuits,
    "dead_letters": _dead_letters,
    "outbox": _outbox,
    "alerts": _alerts,
    "health": _health,
}
"""What does not depend on the window, by name."""
