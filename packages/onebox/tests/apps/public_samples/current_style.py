"""The four samples of the SDK's repository, in the style of version 2."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import entities, task

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)

Turns = Generator[task.Task[Any], Any, Any]


@blueprint.route(route="orchestrators/{name}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    given = req.get_json() if req.get_body() else None
    instance_id = await client.schedule_new_orchestration(req.route_params["name"], input=given)
    return client.create_check_status_response(req, instance_id)


@blueprint.orchestration_trigger(context_name="context")
def bake(ctx: task.OrchestrationContext, cake: str) -> Turns:
    """Function chaining: each step gets the result of the one before."""
    batter = yield ctx.call_activity("mix", input=cake, return_type=str)
    baked = yield ctx.call_activity("heat", input=batter, return_type=str)
    return (yield ctx.call_activity("serve", input=baked, return_type=str))


@blueprint.activity_trigger(input_name="cake")
def mix(cake: str) -> str:
    return f"{cake} batter"


@blueprint.activity_trigger(input_name="batter")
def heat(batter: str) -> str:
    return batter.replace("batter", "cake")


@blueprint.activity_trigger(input_name="baked")
def serve(baked: str) -> str:
    return f"{baked}, in slices"


@blueprint.orchestration_trigger(context_name="context")
def longest_word(ctx: task.OrchestrationContext, texts: list[str]) -> Turns:
    """Fan out, fan in: one activity per text at the same time, then one result."""
    found: list[str] = yield task.when_all(
        [ctx.call_activity("longest_of", input=text, return_type=str) for text in texts]
    )
    return max(found, key=len)


@blueprint.activity_trigger(input_name="text")
def longest_of(text: str) -> str:
    return max(text.split(), key=len)


@blueprint.orchestration_trigger(context_name="context")
def leave_request(ctx: task.OrchestrationContext, seconds: float) -> Turns:
    """Human interaction: an answer from outside, or none in time."""
    answer = ctx.wait_for_external_event("decision")
    deadline = ctx.create_timer(ctx.current_utc_datetime + timedelta(seconds=seconds))
    first = yield task.when_any([answer, deadline])
    if first is answer:
        deadline.cancel()
        return answer.get_result()
    return {"granted": False, "because": "nobody answered"}


@blueprint.route(route="decisions/{instance_id}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def decide(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    await client.raise_orchestration_event(req.route_params["instance_id"], "decision", data=req.get_json())
    return func.HttpResponse(status_code=202)


@blueprint.orchestration_trigger(context_name="context")
def deposit(ctx: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    """Durable entities: called one after the other, whoever else calls."""
    account = entities.EntityInstanceId("account", order["account"])
    yield ctx.call_entity(account, "put", order["amount"])
    return (yield ctx.call_entity(account, "balance", return_type=int))


@blueprint.entity_trigger(context_name="context")
class Account(entities.DurableEntity):
    def put(self, amount: int) -> None:
        self.set_state(self.get_state(int, 0) + amount)

    def balance(self, _: Any = None) -> int:
        return self.get_state(int, 0)
