"""HTTP: is the app able to take operations over."""

from http import HTTPStatus
from typing import Any

import azure.durable_functions as df
import azure.functions as func

from stores.task_hub import TaskHubUnavailableError, check
from triggers.problems import json_answer

blueprint = df.Blueprint()


@blueprint.route(route="health", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_health(req: func.HttpRequest, hub: str) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """Say which parts work: 200 when all do, else 503."""
    parts: dict[str, Any] = {"task_hub": await _task_hub(hub)}
    healthy = all(part["healthy"] for part in parts.values())
    document = {"status": "healthy" if healthy else "unhealthy", "parts": parts}
    return json_answer(document, HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)


async def _task_hub(hub: str) -> dict[str, Any]:
    try:
        await check(hub)
    except TaskHubUnavailableError as error:
        return {"healthy": False, "detail": str(error)}
    return {"healthy": True}
