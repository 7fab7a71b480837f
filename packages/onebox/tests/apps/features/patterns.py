"""The patterns of the documentation: events, continue-as-new, versions, retries, children, races."""

import json
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
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
    """Starts an instance; the query may give a version, tags and a delay in seconds."""
    delay, tag = req.params.get("delay"), req.params.get("tag")
    instance_id = await client.schedule_new_orchestration(
        req.route_params["name"],
        input=json.loads(req.get_body() or b"null"),
        instance_id=req.route_params["instance_id"],
        version=req.params.get("version"),
        tags=None if tag is None else {"tag": tag},
        start_at=None if delay is None else datetime.now(UTC) + timedelta(seconds=float(delay)),
    )
    return client.create_check_status_response(req, instance_id)


@blueprint.route(route="runs/{key}", methods=["GET"])
def runs(req: func.HttpRequest) -> str:
    """How often the activities of a key have run."""
    return str(RUNS[req.route_params["key"]])


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
def parent(context: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    """One activity of its own, then a child with an id and one without."""
    own = yield context.call_activity("count", input={"key": f"{order['key']}-own"})
    children: list[task.Task[Any]] = [
        context.call_sub_orchestrator("child", input=order, instance_id=f"{context.instance_id}-child"),
        context.call_sub_orchestrator("child", input={"key": f"{order['key']}-other"}),
    ]
    return [own, *(yield task.when_all(children))]


@blueprint.orchestration_trigger(context_name="context")
def child(context: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    counted = yield context.call_activity("count", input=order)
    return {"parent": context.parent_instance_id, "counted": counted}


@blueprint.orchestration_trigger(context_name="context")
def two_events(context: task.OrchestrationContext, seconds: float) -> Turns:
    """Sleeps first, so that events come before it waits for them; takes them in the order it likes."""
    context.set_custom_status("asleep")
    yield context.create_timer(timedelta(seconds=seconds))
    second = yield context.wait_for_external_event("second")
    first = yield context.wait_for_external_event("FIRST")
    return [first, second]


@blueprint.orchestration_trigger(context_name="context")
def collector(context: task.OrchestrationContext, seen: list[int]) -> Turns:
    """Takes one event a generation; those that came meanwhile are carried over."""
    number = yield context.wait_for_external_event("number")
    seen = [*seen, number]
    if len(seen) < 5:
        context.continue_as_new(seen, save_events=True)
        return None
    return seen


@blueprint.orchestration_trigger(context_name="context")
def race(context: task.OrchestrationContext, seconds: float) -> Turns:
    """An approval against a deadline."""
    approval = context.wait_for_external_event("approval")
    deadline = context.create_timer(timedelta(seconds=seconds))
    winner = yield task.when_any([approval, deadline])
    if winner is approval:
        deadline.cancel()
        return approval.get_result()
    return "too late"


@blueprint.orchestration_trigger(context_name="context")
def sends(context: task.OrchestrationContext, whom: str) -> str:
    """Sends an event to another instance and ends."""
    context.send_event(whom, "approval", data=f"from {context.instance_id}")
    return "sent"


@blueprint.orchestration_trigger(context_name="context")
def versioned(context: task.OrchestrationContext, _: Any) -> Turns:
    """What it was started as, and what its child is started as."""
    own_child = yield context.call_sub_orchestrator("version_of_child")
    pinned = yield context.call_sub_orchestrator("version_of_child", version="1.5")
    return [context.version, own_child, pinned]


@blueprint.orchestration_trigger(context_name="context")
def version_of_child(context: task.OrchestrationContext, _: Any) -> str | None:
    return context.version


@blueprint.orchestration_trigger(context_name="context")
def stamps(context: task.OrchestrationContext, given: Any) -> Turns:
    """Deterministic ids and times, the same before and after a replay."""
    before = (context.new_uuid(), context.current_utc_datetime.isoformat())
    yield context.create_timer(timedelta(milliseconds=5))
    later = (context.new_uuid(), context.current_utc_datetime.isoformat())
    return {"given": given, "ids": [before[0], later[0]], "ordered": before[1] < later[1]}
