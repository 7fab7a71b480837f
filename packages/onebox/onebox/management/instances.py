"""The calls under /instances: look at orchestrations, end them, and talk to them."""

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.durable_urls import DurableUrls
from onebox.hub import TaskHub
from onebox.hub.model import Status, to_us
from onebox.hub.store.reading import InstanceFilter, InstanceState
from onebox.management.payloads import (
    CONTINUATION_HEADER,
    BadRequestError,
    check_status,
    flag,
    history_payload,
    instance_payload,
    instant_from,
    json_body,
    number,
    page,
    problem,
    status_name,
    statuses_from,
)

_DEFAULT_PAGE = 100
_RETRY_AFTER_RUNNING_SECONDS = 5


class Instances:
    """Answers for orchestration instances."""

    def __init__(self, hub: TaskHub, urls: DurableUrls) -> None:
        self._hub = hub
        self._urls = urls

    async def answer(self, request: Request, rest: list[str]) -> Response:
        """Answer `/instances[/{id}[/{action}[/{event}]]]`."""
        match request.method, rest:
            case "GET", []:
                return self._list(request)
            case "DELETE", []:
                return await self._purge_many(request)
            case _, [instance_id, *call]:
                return await self._answer_for(request, instance_id, call)
        return Response(status_code=404)

    async def _answer_for(self, request: Request, instance_id: str, call: list[str]) -> Response:
        match request.method, call:
            case "GET", []:
                return self.status(request, instance_id)
            case "DELETE", []:
                return await self._purge(instance_id)
            case "POST", [action, event] if action.lower() == "raiseevent":
                return await self._raise_event(request, instance_id, event)
            case "POST", [action]:
                return await self._act(request, instance_id, action.lower())
        return Response(status_code=404)

    def _list(self, request: Request) -> Response:
        limit = number(request, "top") or _DEFAULT_PAGE
        found = self._hub.query(_filter(request), limit, request.headers.get(CONTINUATION_HEADER) or None)
        show_input = flag(request, "showInput", default=True)
        return page([instance_payload(each, show_input=show_input) for each in found.items], found.token)

    def status(self, request: Request, instance_id: str) -> Response:
        """Answer with one instance: 202 while it goes on, 200 when it has ended, 404 when there is none."""
        state = self._hub.get(instance_id)
        if state is None:
            return Response(status_code=404)
        history = self._history(request, state) if flag(request, "showHistory", default=False) else None
        show_input = flag(request, "showInput", default=True)
        payload = instance_payload(state, show_input=show_input, history=history)
        if not state.status.is_terminal:
            headers = {"Location": str(request.url), "Retry-After": str(_RETRY_AFTER_RUNNING_SECONDS)}
            return JSONResponse(payload, status_code=202, headers=headers)
        failed = state.status is Status.FAILED and flag(
            request, "returnInternalServerErrorOnFailure", default=False
        )
        return JSONResponse(payload, status_code=500 if failed else 200)

    def _history(self, request: Request, state: InstanceState) -> list[dict[str, object]]:
        return history_payload(
            self._hub.history(state.id),
            show_input=flag(request, "showInput", default=True),
            show_output=flag(request, "showHistoryOutput", default=False),
        )

    async def _purge(self, instance_id: str) -> Response:
        """Erase one instance, or an entity by its id, which begins with @ and has no final status."""
        if not instance_id.startswith("@"):
            state = self._hub.get(instance_id)
            if state is None:
                return Response(status_code=404)
            if not state.status.is_terminal:
                text = f"{instance_id} is {status_name(state.status)}; only one that has ended can be purged"
                return problem(412, text)
        return JSONResponse({"instancesDeleted": await self._hub.purge([instance_id], recursive=False)})

    async def _purge_many(self, request: Request) -> Response:
        wanted = _filter(request)
        if wanted.created_from_us is None:
            return problem(400, "Please provide value for 'createdTimeFrom' parameter.")
        deleted, _ = await self._hub.purge_where(wanted, recursive=False, within=None)
        return JSONResponse({"instancesDeleted": deleted}) if deleted else Response(status_code=404)

    async def _raise_event(self, request: Request, instance_id: str, event: str) -> Response:
        refusal = self._refusal(instance_id)
        if refusal is not None:
            return refusal
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise BadRequestError("Only application/json request content is supported")
        await self._hub.raise_event(instance_id, event, await json_body(request))
        return Response(status_code=202)

    async def _act(self, request: Request, instance_id: str, action: str) -> Response:
        if action == "restart":
            with_new_id = flag(request, "restartWithNewInstanceId", default=True)
            new_id = await self._hub.restart(instance_id, with_new_id=with_new_id)
            return check_status(request, self._urls, new_id)
        reason = request.query_params.get("reason")
        if action == "rewind":
            state = self._hub.get(instance_id)
            if state is not None and state.status.is_terminal and state.status is not Status.FAILED:
                return Response(status_code=410)
            await self._hub.rewind(instance_id, reason)
            return Response(status_code=202)
        call = self._reasoned(action, instance_id, reason)
        if call is None:
            return Response(status_code=404)
        refusal = self._refusal(instance_id)
        if refusal is not None:
            return refusal
        await call()
        return Response(status_code=202)

    def _reasoned(
        self, action: str, instance_id: str, reason: str | None
    ) -> Callable[[], Awaitable[None]] | None:
        output = None if reason is None else json.dumps(reason)
        return {
            "terminate": lambda: self._hub.terminate(instance_id, output, recursive=True),
            "suspend": lambda: self._hub.suspend(instance_id, reason),
            "resume": lambda: self._hub.resume(instance_id, reason),
        }.get(action)

    def _refusal(self, instance_id: str) -> Response | None:
        """404 for an instance that is not there, 410 for one that has ended, None for one that listens."""
        state = self._hub.get(instance_id)
        if state is None:
            return Response(status_code=404)
        return Response(status_code=410) if state.status.is_terminal else None


def _filter(request: Request) -> InstanceFilter:
    created_from = instant_from(request.query_params.get("createdTimeFrom"))
    created_to = instant_from(request.query_params.get("createdTimeTo"))
    return InstanceFilter(
        statuses=statuses_from(request.query_params.getlist("runtimeStatus")),
        created_from_us=None if created_from is None else to_us(created_from),
        created_to_us=None if created_to is None else to_us(created_to),
        id_prefix=request.query_params.get("instanceIdPrefix") or None,
    )
