"""Every route of the API: those of the core, and those of the console unless the app leaves it out."""

import json
from functools import cache
from typing import Any, Final

import azure.functions as func

from durable_retry.console.app import ROUTES as CONSOLE
from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.http import unmatched
from durable_retry.http.openapi import openapi_document
from durable_retry.http.route_order import constrained_path
from durable_retry.http.routes import OK, Route, RouteAnswer, Routes
from durable_retry.settings.configuration import api_path, registration
from durable_retry.triggers.http import (
    causes,
    circuits,
    dead_letters,
    dependencies,
    diagnosis,
    health,
    operations,
    order_lanes,
    outbox,
    submissions,
    workflows,
)

VERSION: Final = "0.1.0"

routes = Routes("the app")

CORE: Final = (
    submissions.routes,
    operations.routes,
    workflows.batch_routes,
    workflows.saga_routes,
    dependencies.routes,
    circuits.routes,
    order_lanes.routes,
    dead_letters.routes,
    causes.routes,
    outbox.routes,
    health.routes,
    diagnosis.routes,
    routes,
)


def every_routes() -> tuple[Routes, ...]:
    """Return the routes that this app has, by module."""
    return (*CORE, *CONSOLE) if registration().console else CORE


def table() -> list[Route]:
    """Return every declared route that this app has."""
    return [route for each in every_routes() for route in each.table if has_route(route.function)]


def paths() -> dict[str, str]:
    """Return each route's path as the host gets it, and that of all others, by the function's name."""
    declared = table()
    found = {route.function: constrained_path(route, declared) for route in declared}
    # Below a prefix of its own everything is the API's; without one, other paths may be another function's.
    rest = "{*path}" if registration().route_prefix else unmatched.unmatched_path(declared)
    return found | {unmatched.NAME: rest}


def has_route(function: str) -> bool:
    """Whether this app has a route, by the name of its function: the queue's needs the queue's source."""
    return function != submissions.ENQUEUE or registration().wants(QUEUE_SOURCE)


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, made once per process."""
    return openapi_document(table(), VERSION, api_path())


@routes.blueprint.function_name(unmatched.NAME)
@routes.blueprint.route("{*path}", methods=unmatched.METHODS, auth_level=func.AuthLevel.ANONYMOUS)
async def unmatched_request(req: func.HttpRequest) -> func.HttpResponse:
    """Answer what no route takes."""
    return unmatched.answer_unmatched(req.route_params.get("path", ""), table())


@routes.get("openapi.json", answers=(RouteAnswer(OK, "OpenAPI 3.1."),), errors=(), anonymous=True)
async def get_openapi() -> func.HttpResponse:
    """This document."""
    return func.HttpResponse(json.dumps(described()), mimetype="application/json")
