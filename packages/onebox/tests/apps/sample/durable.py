"""Orchestrators, activities and entities of the sample, and how they are started and read over HTTP."""

import json
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

Turns = Generator[task.Task[Any], Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)


@blueprint.route(route="start/{name}/{instance_id?}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    instance_id = await client.schedule_new_orchestration(
        req.route_params["name"],
        input=json.loads(req.get_body() or b"null"),
        instance_id=req.route_params.get("instance_id"),
    )
    return client.create_check_status_response(req, instance_id)


@blueprint.route(route="status/{instance_id}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def status(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    state = await client.get_orchestration_state(req.route_params["instance_id"])
    if state is None:
        return func.HttpResponse(status_code=404)
    failed = state.failure_details is not None
    output = state.serialized_output if failed else json.loads(state.serialized_output or "null")
    document = {
        "status": state.runtime_status.name,
        "output": output,
        "error": state.failure_details.message if state.failure_details else None,
    }
    return func.HttpResponse(json.dumps(document), mimetype="application/json")


@blueprint.route(route="counter/{key}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def read_counter(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    entity = await client.get_entity(EntityInstanceId("counter", req.route_params["key"]))
    if entity is None:
        return func.HttpResponse(status_code=404)
    return func.HttpResponse(entity.get_state(str) or "null", mimetype="application/json")


@blueprint.route(route="count/{key}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
def count(req: func.HttpRequest, client: df.SyncDurableFunctionsClient) -> func.HttpResponse:
    client.signal_entity(EntityInstanceId("counter", req.route_params["key"]), "add", 1)
    return func.HttpResponse(status_code=202)


@blueprint.orchestration_trigger(context_name="context")
def greet(context: task.OrchestrationContext, names: list[str]) -> Turns:
    """Greets everybody and counts the greetings, in a counter of its own."""
    greetings = yield task.when_all([context.call_activity("hello", input=name) for name in names])
    total = yield context.call_entity(EntityInstanceId("counter", context.instance_id), "add", len(greetings))
    return {"greetings": greetings, "total": total}


@blueprint.orchestration_trigger(context_name="context")
def nap(context: task.OrchestrationContext, seconds: float) -> Turns:
    """Sleeps on a durable timer, then says so."""
    yield context.create_timer(context.current_utc_datetime + timedelta(seconds=seconds))
    return (yield context.call_activity("hello", input="sleeper"))


@blueprint.orchestration_trigger(context_name="context")
def waits(context: task.OrchestrationContext, _: object) -> Turns:
    """Ends with what the event `go` brings."""
    return (yield context.wait_for_external_event("go"))


@blueprint.orchestration_trigger(context_name="context")
def fails(context: task.OrchestrationContext, why: str) -> Turns:
    yield context.call_activity("raises", input=why)


@blueprint.orchestration_trigger(context_name="context")
def versions(context: task.OrchestrationContext, of_child: dict[str, str | None] | None) -> Turns:
    """Ends with its version and, when it is to start a child, with that one's."""
    if of_child is None:
        return context.version
    child = yield context.call_sub_orchestrator("versions", version=of_child["version"])
    return [context.version, child]


@blueprint.orchestration_trigger(context_name="context")
def nests(context: task.OrchestrationContext, given: dict[str, int]) -> Turns:
    """Pass a list that nests `taken` levels to an activity, which answers one of `returned` levels."""
    text = "[" * given["taken"] + "]" * given["taken"]
    answer = yield context.call_activity("nested", input=[given["returned"], json.loads(text)])
    return str(answer).count("[")


@blueprint.activity_trigger(input_name="given")
def nested(given: list) -> list:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    answer: list[Any] = []
    for _ in range(given[0] - 1):
        answer = [answer]
    return answer


@blueprint.activity_trigger(input_name="name")
def hello(name: str) -> str:
    return f"Hello {name}!"


@blueprint.activity_trigger(input_name="why")
async def raises(why: str) -> str:
    raise LookupError(why)


@blueprint.entity_trigger(context_name="context", entity_name="counter")
class Counter(DurableEntity):
    """Adds up."""

    def add(self, amount: int) -> int:
        total = self.get_state(int, 0) + amount
        self.set_state(total)
        return total
