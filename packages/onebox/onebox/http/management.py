"""The HTTP API of the Durable extension: `/runtime/webhooks/durabletask/...` over the task hub.

Owns the paths `/orchestrators`, `/instances` and `/entities`, their parameters, JSON shapes and status
codes. It keeps no state: every call goes to `onebox.hub.TaskHub`.

Main path of a call: `ManagementApi.answer` splits the path and dispatches to `Instances` or `Entities`;
these read parameters and write JSON with `management_payloads`. Errors of the hub become status codes in
one place, `ManagementApi`:

| error | status |
|---|---|
| `BadRequestError`, `InvalidRequestError` | 400 |
| `InstanceNotFoundError` | 404 |
| `InstanceFinishedError` | 410 |
| `InstanceExistsError` | 409 |
| `WrongStatusError` | 412 |
| `StoreUnwritableError` | 503 |

As in the extension, a restart of an instance that is not there is 400, and 500 a suspension of a suspended
one and a resumption of one that is not suspended.

A running instance is 202 with `Location` and `Retry-After`, a finished one 200.
Source: "HTTP API reference for Durable Functions", Microsoft Learn, and the extension's HttpApiHandler.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from onebox.http.management_payloads import (
    CONTINUATION_HEADER,
    BadRequestError,
    JsonAnswer,
    check_status,
    entity_payload,
    flag,
    history_payload,
    instance_payload,
    instant_from,
    json_body,
    json_value,
    number,
    output_of,
    page,
    problem,
    seconds,
    status_name,
    statuses_from,
)
from onebox.http.messages import raw_path, url_of
from onebox.hub import TaskHub
from onebox.hub.listing import EntityFilter, InstanceFilter, InstanceState
from onebox.hub.model import (
    HubError,
    InstanceExistsError,
    InstanceFinishedError,
    InstanceNotFoundError,
    InvalidRequestError,
    Start,
    Status,
    StoreUnwritableError,
    WrongStatusError,
    tags_to,
    to_us,
)
from onebox.worker.durable import WEBHOOK_PATH, DurableUrls

_DEFAULT_PAGE = 100
_RETRY_AFTER_RUNNING_SECONDS = 5
_EMPTY_KEY = "$"  # how the path spells a key that is empty


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
            headers = {"Location": url_of(request), "Retry-After": str(_RETRY_AFTER_RUNNING_SECONDS)}
            return JsonAnswer(payload, status_code=202, headers=headers)
        failed = state.status is Status.FAILED and flag(
            request, "returnInternalServerErrorOnFailure", default=False
        )
        return JsonAnswer(payload, status_code=500 if failed else 200)

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
        return JsonAnswer({"instancesDeleted": await self._hub.purge([instance_id])})

    async def _purge_many(self, request: Request) -> Response:
        wanted = _filter(request)
        if wanted.created_from_us is None:
            return problem(400, "Please provide value for 'createdTimeFrom' parameter.")
        deleted, _ = await self._hub.purge_where(wanted, within=None)
        return JsonAnswer({"instancesDeleted": deleted}) if deleted else Response(status_code=404)

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
            return await self._restart(request, instance_id)
        reason = request.query_params.get("reason")
        if action == "rewind":
            await self._hub.rewind(instance_id, reason)
            return Response(status_code=202)
        call = self._reasoned(action, instance_id, reason)
        if call is None:
            return Response(status_code=404)
        try:
            await call()
        except WrongStatusError as misplaced:
            return problem(500, str(misplaced))  # the extension's client raises there
        return Response(status_code=202)

    async def _restart(self, request: Request, instance_id: str) -> Response:
        """Start an instance with the name and the input of another, or in its place if that may give way."""
        state = self._hub.get(instance_id)
        if state is None:
            raise BadRequestError("InstanceId does not match a valid orchestration instance.")
        new_id = "" if flag(request, "restartWithNewInstanceId", default=True) else instance_id
        again = Start(new_id, state.name, state.version, state.input, tags_to(state.tags))
        return await self.finished_or_check_status(request, await self._hub.start(again))

    async def finished_or_check_status(self, request: Request, instance_id: str) -> Response:
        """Answer with the end of an instance if the request waits for it and it comes in time, else 202."""
        wait_seconds = seconds(request, "timeout")
        if wait_seconds is None or seconds(request, "pollingInterval") is None:
            return check_status(request, self._urls, instance_id)
        try:
            async with asyncio.timeout(max(wait_seconds, 0)):
                state = await self._hub.wait_finished(instance_id)
        except TimeoutError:
            return check_status(request, self._urls, instance_id)
        if state.status is Status.COMPLETED:
            return JsonAnswer(output_of(state))
        return self.status(request, instance_id)

    def _reasoned(
        self, action: str, instance_id: str, reason: str | None
    ) -> Callable[[], Awaitable[None]] | None:
        return {
            # The reason is the output as it is, which may be no JSON.
            "terminate": lambda: self._hub.terminate(instance_id, reason),
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


class Entities:
    """Answers for entities."""

    def __init__(self, hub: TaskHub) -> None:
        self._hub = hub

    async def answer(self, request: Request, rest: list[str]) -> Response:
        """Answer `/entities[/{name}[/{key}]]`."""
        match request.method, rest:
            case "GET", [] | [_]:
                return self._list(request, rest[0] if rest else None)
            case "GET", [name, key]:
                return self._state(_entity_id(name, key))
            case "POST", [name, key]:
                return await self._signal(request, _entity_id(name, key), request.query_params.get("op", ""))
            case "DELETE", [name, key]:
                return await self._signal(request, _entity_id(name, key), "delete")
        return Response(status_code=404)

    def _list(self, request: Request, name: str | None) -> Response:
        changed_from = instant_from(request.query_params.get("lastOperationTimeFrom"))
        changed_to = instant_from(request.query_params.get("lastOperationTimeTo"))
        wanted = EntityFilter(
            id_prefix=f"@{name.lower()}@" if name else None,
            modified_from_us=None if changed_from is None else to_us(changed_from),
            modified_to_us=None if changed_to is None else to_us(changed_to),
        )
        limit = number(request, "top") or _DEFAULT_PAGE
        found = self._hub.query_entities(wanted, limit, request.headers.get(CONTINUATION_HEADER) or None)
        with_state = flag(request, "fetchState", default=False)
        return page([entity_payload(each, with_state=with_state) for each in found.items], found.token)

    def _state(self, entity_id: str) -> Response:
        state = self._hub.get_entity(entity_id)
        if state is None or state.state is None:
            return Response(status_code=404)
        return JsonAnswer(json_value(state.state))

    async def _signal(self, request: Request, entity_id: str, operation: str) -> Response:
        await self._hub.signal_entity(entity_id, operation, await _operation_input(request))
        return Response(status_code=202)


async def _operation_input(request: Request) -> str | None:
    """Return the body as JSON text: unchanged when its content type is JSON, else as a JSON string."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return await json_body(request)
    body = await request.body()
    return json.dumps(body.decode()) if body else None


def _entity_id(name: str, key: str) -> str:
    return f"@{name.lower()}@{'' if key == _EMPTY_KEY else key}"


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
        except (BadRequestError, InvalidRequestError) as error:
            return problem(400, str(error))
        except HubError as error:
            return problem(_status_of(error), str(error))

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
        return await self._instances.finished_or_check_status(request, started)


def _status_of(error: HubError) -> int:
    """Return the status code for a refusal."""
    match error:
        case InstanceNotFoundError():
            return 404
        case InstanceFinishedError():
            return 410
        case InstanceExistsError():
            return 409
        case StoreUnwritableError():
            return 503
        case WrongStatusError():
            return 412
    return 500
