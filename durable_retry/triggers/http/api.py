"""HTTP: every route of the API, and the document that describes them."""

from functools import cache
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.settings.configuration import api_path, app_settings
from durable_retry.triggers.http import (
    alerts,
    bulk_actions,
    circuits,
    dashboard,
    dead_letters,
    dependencies,
    metrics,
    operations,
    outbox,
    overview,
    replays,
    search,
    submissions,
    workflows,
)
from durable_retry.triggers.http.answers import json_answer
from durable_retry.triggers.http.openapi import openapi_document
from durable_retry.triggers.http.routes import OK, Route, RouteAnswer, Routes

VERSION: Final = "0.1.0"

routes = Routes("the app")

ALL: Final = (
    submissions.routes,
    operations.routes,
    workflows.batch_routes,
    workflows.saga_routes,
    dependencies.routes,
    circuits.routes,
    metrics.routes,
    dead_letters.routes,
    replays.routes,
    search.routes,
    outbox.routes,
    overview.routes,
    bulk_actions.routes,
    alerts.routes,
    dashboard.routes,
    routes,
)


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
