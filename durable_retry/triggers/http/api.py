"""HTTP: every route of the API, the document that describes them, and the health of the app."""

import asyncio
from collections.abc import Awaitable
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Literal

import azure.functions as func
from azure.core.exceptions import AzureError
from pydantic import BaseModel

from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.settings.app import SettingsError, api_path, app_settings
from durable_retry.stores import tables, task_hub
from durable_retry.stores.dead_letters import records as dead_letter_records
from durable_retry.stores.task_hub import TaskHubUnavailableError
from durable_retry.triggers.http import (
    circuits,
    dashboard,
    dead_letters,
    dependencies,
    operations,
    outbox,
    replays,
    submissions,
    workflows,
)
from durable_retry.triggers.http.answers import json_answer
from durable_retry.triggers.http.openapi import openapi_document
from durable_retry.triggers.http.routes import AWAY, OK, Route, RouteAnswer, Routes

VERSION: Final = "0.1.0"

_PATIENCE_SECONDS: Final = 5.0
"""A part that takes longer than this to answer counts as failing."""

routes = Routes("the app")

ALL: Final = (
    submissions.routes,
    operations.routes,
    workflows.batch_routes,
    workflows.saga_routes,
    dependencies.routes,
    circuits.routes,
    dead_letters.routes,
    replays.routes,
    outbox.routes,
    dashboard.routes,
    routes,
)


class HealthPart(BaseModel):
    """Whether one part works."""

    healthy: bool
    detail: str | None = None


class HealthDocument(BaseModel):
    """Whether the app can accept operations."""

    status: Literal["healthy", "unhealthy"]
    parts: dict[str, HealthPart]


def table() -> list[Route]:
    """Return every declared route that this app has."""
    return [route for each in ALL for route in each.table if has_route(route.function)]


def has_route(function: str) -> bool:
    """Whether this app has a route, by the name of its function: the queue's needs the queue's source."""
    return function != submissions.ENQUEUE or app_settings().registration.wants(QUEUE_SOURCE)


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, made once per process."""
    return openapi_document(table(), VERSION, api_path())


@routes.get("openapi.json", answers=(RouteAnswer(OK, "OpenAPI 3.1."),), anonymous=True)
async def get_openapi() -> func.HttpResponse:
    """This document."""
    return json_answer(described())


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
    checks = {
        "task_hub": task_hub.check(hub),
        "storage": tables.read(dead_letter_records.TABLE, "health", "health"),
    }
    results = await asyncio.gather(*(_checked(check) for check in checks.values()))
    parts = dict(zip(checks, results, strict=True))
    healthy = all(part["healthy"] for part in parts.values())
    document = {"status": "healthy" if healthy else "unhealthy", "parts": parts}
    return json_answer(document, HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)


async def _checked(check: Awaitable[object]) -> dict[str, Any]:
    """Wait for a check; give the kind of failure and never an address, since the route needs no key."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await check
    except (TaskHubUnavailableError, AzureError, SettingsError, TimeoutError) as error:
        return {"healthy": False, "detail": type(error).__name__}
    return {"healthy": True}
