"""Durable HTTP calls, and services to call; one is slow, answers 202 and asks to come back."""

import json
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task

Turns = Generator[task.Task[Any], Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

type Decorator = Callable[..., Callable[[Callable[..., Any]], Any]]
# The SDK runs functions of one argument, but its types know only those of two.
orchestration_trigger: Decorator = blueprint.orchestration_trigger

POLLS: Counter[str] = Counter()


@orchestration_trigger(context_name="context")
def calls(context: df.DurableOrchestrationContext) -> Turns:
    """Calls what it is given and returns the answer."""
    order = context.get_input()
    response = yield context.call_http(
        order["method"], order["url"], content=order.get("content"), headers=order.get("headers")
    )
    return {"status": response.status_code, "content": response.content}


@blueprint.route(route="service/echo", methods=["POST"])
def service_echo(req: func.HttpRequest) -> func.HttpResponse:
    seen = {"body": req.get_json(), "header": req.headers.get("X-Thing")}
    return func.HttpResponse(json.dumps(seen), mimetype="application/json", status_code=201)


@blueprint.route(route="service/broken", methods=["GET"])
def service_broken(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 # the binding names it
    return func.HttpResponse("out of order", status_code=503)


@blueprint.route(route="service/jobs/{job}", methods=["GET", "POST"])
def service_job(req: func.HttpRequest) -> func.HttpResponse:
    """Needs three visits; asks for a pause between them, and says so with a relative address."""
    job = req.route_params["job"]
    POLLS[job] += 1
    if POLLS[job] < 3:
        headers = {"Location": f"/api/service/jobs/{job}", "Retry-After": "0"}
        return func.HttpResponse(status_code=202, headers=headers)
    return func.HttpResponse(f"{req.method} {POLLS[job]}")
