"""Retries and deterministic values, and the route that starts an instance of anything."""

import json
from collections import Counter
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task

Turns = Generator[task.Task[Any], Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

RUNS: Counter[str] = Counter()


@blueprint.route(route="start/{name}/{instance_id}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    instance_id = await client.schedule_new_orchestration(
        req.route_params["name"],
        input=json.loads(req.get_body() or b"null"),
        instance_id=req.route_params["instance_id"],
    )
    return client.create_check_status_response(req, instance_id)


@blueprint.activity_trigger(input_name="order")
def count(order: dict) -> int:  # type: ignore[type-arg] # the worker takes no parameterised types
    """Counts its runs under a key; fails as often as its input says."""
    RUNS[order["key"]] += 1
    if RUNS[order["key"]] <= order.get("failures", 0):
        raise ConnectionError(f"run {RUNS[order['key']]}")
    return RUNS[order["key"]]


@blueprint.orchestration_trigger(context_name="context")
def retried(context: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    """The SDK's own retries of an activity."""
    policy = task.RetryPolicy(
        first_retry_interval=timedelta(milliseconds=10), max_number_of_attempts=order["attempts"]
    )
    return (yield context.call_activity("count", input=order, retry_policy=policy))


@blueprint.orchestration_trigger(context_name="context")
def stamps(context: task.OrchestrationContext, given: Any) -> Turns:
    """Deterministic ids and times, the same before and after a replay."""
    before = (context.new_uuid(), context.current_utc_datetime.isoformat())
    yield context.create_timer(timedelta(milliseconds=5))
    later = (context.new_uuid(), context.current_utc_datetime.isoformat())
    return {"given": given, "ids": [before[0], later[0]], "ordered": before[1] < later[1]}
