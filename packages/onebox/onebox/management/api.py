"""Routes the calls of the management API and turns refusals into status codes.

Followed is the Durable extension (HttpApiHandler): its routes, parameters, status codes, headers and shapes.
"""

import asyncio
from collections.abc import Collection
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.durable_urls import WEBHOOK_PATH, DurableUrls
from onebox.http.messages import raw_path
from onebox.hub import TaskHub
from onebox.hub.model import (
    HubError,
    InstanceExists,
    InstanceFinished,
    InstanceNotFound,
    InvalidRequest,
    Start,
    Status,
    StoreUnwritable,
    WrongStatus,
)
from onebox.management.entities import Entities
from onebox.management.instances import Instances
from onebox.management.payloads import BadRequestError, check_status, json_body, output_of, problem, seconds


class ManagementApi:
    """The whole API over one hub."""

    def __init__(self, hub: TaskHub, urls: DurableUrls, orchestrators: Collection[str]) -> None:
        self._hub = hub
        self._urls = urls
        self._orchestrators = orchestrators
        self._instances = Instances(hub, urls)
        self._entities = Entities(hub)

    async def answer(self, request: Request) -> Response:
        """Answer a request below the webhook's path; 404 for what the extension does not have."""
        parts = [unquote(part) for part in raw_path(request)[len(WEBHOOK_PATH) :].split("/") if part]
        try:
            return await self._dispatch(request, parts)
        except (BadRequestError, InvalidRequest) as error:
            return problem(400, str(error))
        except HubError as error:
            return problem(_status_of(error, is_restart=parts[-1].lower() == "restart"), str(error))

    async def _dispatch(self, request: Request, parts: list[str]) -> Response:
        match [part.lower() for part in parts[:1]], parts[1:]:
            case ["instances"], rest:
                return await self._instances.answer(request, rest)
            case ["entities"], rest:
                return await self._entities.answer(request, rest)
            case ["orchestrators"], [name, *rest] if request.method == "POST" and len(rest) <= 1:
                return await self._start(request, name, rest[0] if rest else "")
        return Response(status_code=404)

    async def _start(self, request: Request, name: str, instance_id: str) -> Response:
        if name not in self._orchestrators:
            raise BadRequestError(
                f"The function '{name}' doesn't exist, is disabled, or is not an orchestrator"
            )
        version = request.query_params.get("version")
        order = Start(instance_id, name, version=version, input=await json_body(request))
        started = await self._hub.start(order)
        wait_seconds = seconds(request, "timeout")
        if wait_seconds is None or seconds(request, "pollingInterval") is None:
            return check_status(request, self._urls, started)
        return await self._finished_or_check_status(request, started, wait_seconds)

    async def _finished_or_check_status(
        self, request: Request, instance_id: str, wait_seconds: float
    ) -> Response:
        try:
            async with asyncio.timeout(max(wait_seconds, 0)):
                state = await self._hub.wait_finished(instance_id)
        except TimeoutError:
            return check_status(request, self._urls, instance_id)
        if state.status is Status.COMPLETED:
            return JSONResponse(output_of(state))
        return self._instances.status(request, instance_id)


def _status_of(error: HubError, *, is_restart: bool) -> int:
    """Return the status code for a refusal; the extension has its own for restarts."""
    match error:
        case InstanceNotFound():
            return 400 if is_restart else 404
        case InstanceFinished():
            return 410
        case InstanceExists():
            return 409
        case StoreUnwritable():
            return 503
        case WrongStatus():
            return 409 if is_restart else 412
    return 500
