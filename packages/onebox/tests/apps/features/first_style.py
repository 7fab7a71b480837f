"""The style of version 1, deprecated but shipped: one-argument functions and the client's old names."""

import json
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func

Turns = Generator[Any, Any, Any]

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

type Decorator = Callable[..., Callable[[Callable[..., Any]], Any]]
# The SDK runs functions of one argument, but its types know only those of two.
orchestration_trigger: Decorator = blueprint.orchestration_trigger
entity_trigger: Decorator = blueprint.entity_trigger

FAILED_ONCE: set[str] = set()


def _json(document: Any, status_code: int = 200) -> func.HttpResponse:
    return func.HttpResponse(json.dumps(document), mimetype="application/json", status_code=status_code)


@blueprint.activity_trigger(input_name="city")
def old_hello(city: str) -> str:
    return f"Hello {city}!"


@blueprint.activity_trigger(input_name="key")
def fails_once(key: str) -> str:
    if key not in FAILED_ONCE:
        FAILED_ONCE.add(key)
        raise OSError("the first time")
    return key


@orchestration_trigger(context_name="context")
def old_chain(context: df.DurableOrchestrationContext) -> Turns:
    """Chaining, fan-out, retries, a child, a timer and an entity, all in the old words."""
    context.set_custom_status("at work")
    cities = context.get_input()
    greetings = yield context.task_all([context.call_activity("old_hello", city) for city in cities])
    retried = yield context.call_activity_with_retry(
        "fails_once", df.RetryOptions(10, 3), f"{context.instance_id}-key"
    )
    nested = yield context.call_sub_orchestrator("old_child", {"of": context.instance_id})
    yield context.create_timer(context.current_utc_datetime + timedelta(milliseconds=5))
    entity = df.EntityId("old_counter", context.instance_id)
    context.signal_entity(entity, "add", 2)
    total = yield context.call_entity(entity, "add", 3)
    return {"greetings": greetings, "retried": retried, "nested": nested, "total": total}


@orchestration_trigger(context_name="context")
def old_child(context: df.DurableOrchestrationContext) -> Any:
    return context.get_input()


@orchestration_trigger(context_name="context")
def old_approval(context: df.DurableOrchestrationContext) -> Turns:
    """The approval against a timeout of the documentation."""
    approval: Any = context.wait_for_external_event("approval")
    timeout: Any = context.create_timer(context.current_utc_datetime + timedelta(minutes=5))
    winner = yield context.task_any([approval, timeout])
    if winner is approval:
        timeout.cancel()
        return approval.result
    return "too late"


class Coin:
    """An object that says itself how it becomes JSON, as the sample `serialize_arguments` has it."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    @staticmethod
    def to_json(coin: "Coin") -> str:
        return str(coin.cents)

    @staticmethod
    def from_json(text: str) -> "Coin":
        return Coin(int(text))


@blueprint.activity_trigger(input_name="coin")
def doubles(coin) -> Coin:  # type: ignore[no-untyped-def] # noqa: ANN001 # the sample's is untyped, so it is read by its name
    return Coin(2 * coin.cents)


@orchestration_trigger(context_name="context")
def old_objects(context: df.DurableOrchestrationContext) -> Turns:
    coin = yield context.call_activity("doubles", Coin(context.get_input()))
    return coin.cents


@entity_trigger(context_name="context")
def old_counter(context: df.DurableEntityContext) -> None:
    total = context.get_state(lambda: 0)
    match context.operation_name:
        case "add":
            total += context.get_input()
        case "reset":
            total = 0
    context.set_state(total)
    context.set_result(total)


@blueprint.route(route="old/start/{name}/{instance_id}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def old_start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    given = json.loads(req.get_body() or b"null")
    name, instance_id = req.route_params["name"], req.route_params["instance_id"]
    instance_id = await client.start_new(name, instance_id=instance_id, client_input=given)
    return client.create_check_status_response(req, instance_id)


@blueprint.route(route="old/wait/{instance_id}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def old_wait(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    instance_id, wait = req.route_params["instance_id"], int(req.params["ms"])
    return await client.wait_for_completion_or_create_check_status_response(
        req, instance_id, timeout_in_milliseconds=wait, retry_interval_in_milliseconds=1
    )


@blueprint.route(route="old/status/{instance_id}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def old_status(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    status = await client.get_status(req.route_params["instance_id"], show_history=True, show_input=True)
    return _json(status.to_json(), 200 if status else 404)


@blueprint.route(route="old/by/{status}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def old_by(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    wanted = [df.OrchestrationRuntimeStatus(req.route_params["status"])]
    found = await client.get_status_by(runtime_status=wanted)
    everything = await client.get_status_all()
    return _json({"found": [each.instance_id for each in found], "all": len(everything)})


@blueprint.route(route="old/{action:regex(^(?!counter$)[a-z]+$)}/{instance_id}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def old_action(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    instance_id = req.route_params["instance_id"]
    match req.route_params["action"]:
        case "raise":
            await client.raise_event(instance_id, req.params["event"], json.loads(req.get_body()))
        case "suspend":
            await client.suspend(instance_id, "a break")
        case "resume":
            await client.resume(instance_id, "go on")
        case "terminate":
            await client.terminate(instance_id, "enough")
        case "rewind":
            await client.rewind(instance_id, "again")
        case "restart":
            return _json(await client.restart(instance_id, restart_with_new_instance_id=True))
        case "purge":
            return _json((await client.purge_instance_history(instance_id)).instances_deleted)
    return func.HttpResponse(status_code=202)


@blueprint.route(route="old/counter/{key}", methods=["GET", "POST"])
@blueprint.durable_client_input(client_name="client")
async def old_entity(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    entity = df.EntityId("old_counter", req.route_params["key"])
    if req.method == "POST":
        await client.signal_entity(entity, "add", json.loads(req.get_body()))
        return func.HttpResponse(status_code=202)
    state = await client.read_entity_state(entity)
    return _json({"exists": state.entity_exists, "state": state.entity_state})
