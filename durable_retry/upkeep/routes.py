"""HTTP: the health of the app."""

from http import HTTPStatus

import azure.functions as func

from durable_retry.http.answers import json_answer
from durable_retry.http.routes import AWAY, OK, RouteAnswer, Routes
from durable_retry.hub.binding import TaskHub
from durable_retry.upkeep.health import Health, read_health

routes = Routes("the app")


@routes.get(
    "health",
    answers=(
        RouteAnswer(OK, "It can; `degraded` says that what it accepts does not begin.", Health),
        RouteAnswer(AWAY, "It cannot; the parts that fail say so.", Health),
    ),
    errors=(),
    anonymous=True,
)
async def get_health(hub: TaskHub) -> func.HttpResponse:
    """Check whether the app can accept operations."""
    health = await read_health(hub)
    return json_answer(health, HTTPStatus.OK if health.accepts else HTTPStatus.SERVICE_UNAVAILABLE)
