"""A shop that was there before the engine: its folders and functions have names that the engine has."""

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
    """Price an order."""
    return f"{priced(order)} {CURRENCY}"


@app.orchestration_trigger(context_name="context")
def operation(context: task.OrchestrationContext, order: str) -> Generator[task.Task[Any], Any, Any]:
    """An orchestration of the shop's own."""
    return (yield context.call_activity("submit", input=order))


@app.route(route="operations", methods=["POST"])
@app.durable_client_input(client_name="client")
async def begin(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """Start the shop's own orchestration."""
    instance = await client.schedule_new_orchestration("operation", input=req.get_body().decode())
    state = await client.wait_for_orchestration_completion(instance, timeout=60)
    return func.HttpResponse(None if state is None else state.serialized_output)
