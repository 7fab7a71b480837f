"""A shop that was there before the engine: its folders and functions have names that the engine has."""

import json
from collections.abc import Generator
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from engine import CURRENCY

import durable_retry
from activities import priced

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
durable_retry.register(
    app,
    route_prefix="retries",
    function_prefix="retry_",
    dependencies_file="services.toml",
    handlers=["orders"],
    sources=["queue"],
)


@app.activity_trigger(input_name="order")
def submit(order: str) -> str:
    return f"{priced(order)} {CURRENCY}"


@app.orchestration_trigger(context_name="context")
def operation(context: task.OrchestrationContext, order: str) -> Generator[task.Task[Any], Any, Any]:
    """An orchestration of the shop's own."""
    return (yield context.call_activity("submit", input=order))


@app.route(route="operations", methods=["POST"])
@app.durable_client_input(client_name="client")
async def begin(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    instance = await client.schedule_new_orchestration("operation", input=req.get_body().decode())
    state = await client.wait_for_orchestration_completion(instance, timeout=60)
    return func.HttpResponse(None if state is None else state.serialized_output)


@app.orchestration_trigger(context_name="context")
def checkout(
    context: task.OrchestrationContext, order: dict[str, Any]
) -> Generator[task.Task[Any], Any, Any]:
    """An orchestration that charges an order by way of the engine."""
    try:
        charge = yield from durable_retry.call(context, dependency="warehouse", **order)
    except durable_retry.OperationFailed as failed:
        return {"failed": [failed.status, failed.category, failed.reason], "letter": failed.dead_letter_id}
    shipped = yield from durable_retry.call(context, handler="ship-order", input={"number": 7})
    return {"charged": charge["status_code"], "shipped": shipped}


@app.orchestration_trigger(context_name="context")
def first_style(context: df.DurableOrchestrationContext) -> Generator[task.Task[Any], Any, Any]:
    """The same in the SDK's first style."""
    charge = yield from durable_retry.call(context, dependency="warehouse", request={"path": "/fail/0"})
    return charge["status_code"]


@app.orchestration_trigger(context_name="context")
def rounds(
    context: task.OrchestrationContext, keys: list[str]
) -> Generator[task.Task[Any], Any, list[str] | None]:
    """An orchestration that continues as new; the platform gives its child the same id in each round."""
    key = yield context.call_sub_orchestrator("one_round", input="the same in each round")
    if len(keys) < 2:
        context.continue_as_new([*keys, key])
        return None
    return [*keys, key]


@app.orchestration_trigger(context_name="context")
def one_round(context: task.OrchestrationContext, _order: str) -> Generator[task.Task[Any], Any, str]:
    """Call the warehouse in the same way in each round."""
    charge = yield from durable_retry.call(context, dependency="warehouse", request={"path": "/fail/0"})
    return str(charge["json"]["key"])


@app.route(route="checkouts/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def check_out(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """Start one of the two and wait for its end."""
    given = json.loads(req.get_body())
    instance = await client.schedule_new_orchestration(req.route_params["name"], input=given)
    state = await client.wait_for_orchestration_completion(instance, timeout=90)
    return func.HttpResponse(None if state is None else state.serialized_output)


@app.route(route="shipments/{key}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def ship(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """Submit an operation in the process, twice, and wait for its end."""
    operations = durable_retry.Operations.of(client)
    given: dict[str, Any] = {"handler": "ship-order", "input": {"number": 7}, "key": req.route_params["key"]}
    first, again = await operations.submit(**given), await operations.submit(**given)
    shipped = await operations.wait(first.operation_id, timeout_seconds=60)
    is_cancelled = await operations.cancel(first.operation_id)
    found = await operations.get(first.operation_id)
    answer = [first.is_replayed, again.is_replayed, shipped, is_cancelled, found and found["source"]]
    return func.HttpResponse(json.dumps(answer))
