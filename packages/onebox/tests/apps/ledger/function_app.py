"""An app whose every run leaves a line in a file, so that a test can count them over several lives."""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.client import OrchestrationStatus

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

LEDGER = Path(os.environ["LEDGER"])


def _enter(line: str) -> None:
    with LEDGER.open("a") as lines:
        lines.write(f"{line}\n")


@app.route(route="start/{instance_id}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """Starts an instance unless it is there: what a client may post again when it got no answer."""
    instance_id = req.route_params["instance_id"]
    state = await client.get_orchestration_state(instance_id)
    if state is None or state.runtime_status is OrchestrationStatus.FAILED:
        await client.schedule_new_orchestration("enters", instance_id=instance_id)
    return func.HttpResponse(status_code=202)


@app.orchestration_trigger(context_name="context")
def enters(context: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
    return (yield context.call_activity("enter", input=context.instance_id))


@app.activity_trigger(input_name="instance_id")
def enter(instance_id: str) -> str:
    _enter(f"activity {instance_id} in life {os.getpid()}")
    return instance_id


@app.queue_trigger(arg_name="message", queue_name="jobs", connection="AzureWebJobsStorage")
def on_job(message: func.QueueMessage) -> None:
    body = message.get_body().decode()
    _enter(f"job {body}")
    if body.startswith("bad"):
        raise ValueError(body)


@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def on_second(timer: func.TimerRequest) -> None:  # noqa: ARG001 # the binding names it
    _enter("tick")
