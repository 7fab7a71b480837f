"""The webhook of the Event Grid extension: `/runtime/webhooks/eventgrid?functionName=...`.

Both schemas are taken, with their handshakes: Event Grid's validation event and CloudEvents' OPTIONS request.
Source: "Webhook event delivery", Event Grid documentation; "HTTP 1.1 Web Hooks", CloudEvents.
"""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onebox.triggers.retrying import RetryingRunner
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import Catalogue, Function
from onebox.worker.runner import json_datum

EVENT_GRID_PATH = "/runtime/webhooks/eventgrid"
EVENT_GRID_TRIGGER = "eventGridTrigger"


class EventGridWebhook:
    """Answers requests in the form of Event Grid's deliveries, whoever sends them."""

    def __init__(self, catalogue: Catalogue, runner: RetryingRunner, inputs: BindingInputs) -> None:
        self._catalogue = catalogue
        self._runner = runner
        self._inputs = inputs

    async def answer(self, request: Request) -> Response:
        """Complete a handshake, or run the function once per event: 202 when all succeeded, else 500."""
        function = self._catalogue.find(request.query_params.get("functionName", ""))
        if function is None or function.trigger.type != EVENT_GRID_TRIGGER:
            return JSONResponse({"error": "functionName names no Event Grid function"}, status_code=404)
        if request.method == "OPTIONS":
            return _cloud_events_handshake(request)
        if request.method != "POST":
            return Response(status_code=405)
        return await self._answer_post(function, request)

    async def _answer_post(self, function: Function, request: Request) -> Response:
        try:
            content = json.loads(await request.body())
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the body must be JSON"}, status_code=400)
        events = content if isinstance(content, list) else [content]
        match request.headers.get("aeg-event-type", "").lower():
            case "subscriptionvalidation":
                return _validation(events)
            case "unsubscribe":
                return Response(status_code=202)
        return await self._run_all(function, events)

    async def _run_all(self, function: Function, events: list[Any]) -> Response:
        succeeded = True
        for event in events:
            datum = json_datum(json.dumps(event))
            values = [(function.trigger.name, datum), *self._inputs.of(function)]
            succeeded &= await self._runner.run(function, values, {}, reason="Event Grid event")
        return Response(status_code=202 if succeeded else 500)


def _cloud_events_handshake(request: Request) -> Response:
    origin = request.headers.get("webhook-request-origin")
    if origin is None:
        return Response(status_code=400)
    return Response(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})


def _validation(events: list[Any]) -> Response:
    try:
        code = events[0]["data"]["validationCode"]
    except (LookupError, TypeError):
        return JSONResponse({"error": "the validation event has no data.validationCode"}, status_code=400)
    return JSONResponse({"validationResponse": code})
