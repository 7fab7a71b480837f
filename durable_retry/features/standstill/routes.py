"""HTTP: what stands still."""

import azure.functions as func

from durable_retry.features.standstill.trouble import StuckInstances, find_stuck
from durable_retry.http.answers import json_answer
from durable_retry.http.routes import Routes, shown
from durable_retry.hub.binding import TaskHub

routes = Routes("the app")


@routes.get("diagnoses/stuck", answers=shown(StuckInstances))
async def list_stuck(hub: TaskHub) -> func.HttpResponse:
    """List the orchestrations that stand still and that no nudge moves, the first that was due first."""
    return json_answer(await find_stuck(hub))
