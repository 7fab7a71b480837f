"""HTTP: is the app able to take operations over."""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Final

import azure.durable_functions as df
import azure.functions as func
from azure.core.exceptions import AzureError

from stores import dead_letters, tables, task_hub
from stores.settings import SettingsError
from stores.task_hub import TaskHubUnavailableError
from triggers.problems import json_answer

blueprint = df.Blueprint()

_PATIENCE_SECONDS: Final = 5.0
"""A part that takes longer than this to say anything does not work."""


@blueprint.route(route="health", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def get_health(req: func.HttpRequest, hub: str) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """Say which parts work: 200 when all do, else 503."""
    checks = {"task_hub": task_hub.check(hub), "storage": tables.read(dead_letters.TABLE, "health", "health")}
    answers = await asyncio.gather(*(_looked_at(check) for check in checks.values()))
    parts = dict(zip(checks, answers, strict=True))
    healthy = all(part["healthy"] for part in parts.values())
    document = {"status": "healthy" if healthy else "unhealthy", "parts": parts}
    return json_answer(document, HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)


async def _looked_at(check: Awaitable[object]) -> dict[str, Any]:
    """Wait for a check; say what kind of trouble there is, never where, since anybody may ask."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await check
    except (TaskHubUnavailableError, AzureError, SettingsError, TimeoutError) as error:
        return {"healthy": False, "detail": type(error).__name__}
    return {"healthy": True}
