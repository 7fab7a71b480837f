"""Functions that say which process runs them, block it, and end it."""

import json
import logging
import os
import time
import urllib.request
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.client import TaskHubGrpcClient
from durabletask.entities import DurableEntity, EntityInstanceId

Turns = Generator[task.Task[Any], Any, Any]

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="start/{name}/{instance_id}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> str:
    given = json.loads(req.get_body() or b"null")
    name, instance_id = req.route_params["name"], req.route_params["instance_id"]
    return await client.schedule_new_orchestration(name, input=given, instance_id=instance_id)


@app.route(route="history/{instance_id}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def history(req: func.HttpRequest, client: df.DurableFunctionsClient) -> str:
    """Counts the events, which come as a stream."""
    return str(len(await client.get_orchestration_history(req.route_params["instance_id"])))


@app.route(route="ended/{instance_id}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def ended(req: func.HttpRequest, client: df.DurableFunctionsClient) -> str:
    """Waits for an instance to end, for as many seconds as asked."""
    seconds = float(req.params["seconds"])
    try:
        instance_id = req.route_params["instance_id"]
        state = await client.wait_for_orchestration_completion(instance_id, timeout=seconds)
    except TimeoutError:
        return "not yet"
    return "none" if state is None else state.runtime_status.name


@app.route(route="pid", methods=["GET"])
async def pid(req: func.HttpRequest) -> str:  # noqa: ARG001 # the trigger's
    logging.getLogger(__name__).info("asked for the process")
    return str(os.getpid())


@app.route(route="exit", methods=["POST"])
async def leave(req: func.HttpRequest) -> str:  # noqa: ARG001 # the trigger's
    os._exit(9)


@app.route(route="block", methods=["POST"])
async def block(req: func.HttpRequest) -> str:
    """Blocks the event loop of its process, as no async function should."""
    time.sleep(float(req.params["seconds"]))  # noqa: ASYNC251 # the mistake is the point
    return "done"


@app.route(route="blocking/{instance_id}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def blocking(req: func.HttpRequest, client: df.DurableFunctionsClient) -> str:
    """Asks the task hub and the host with clients that block the event loop, as Microsoft's own tests do."""
    instance_id = req.route_params["instance_id"]
    with TaskHubGrpcClient(host_address=client.rpcBaseUrl, secure_channel=False) as blocking_client:
        blocking_client.schedule_new_orchestration("count", input="blocking", instance_id=instance_id)
        state = blocking_client.get_orchestration_state(instance_id)
        events = blocking_client.get_orchestration_history(instance_id)
    status_url = urlsplit(req.url)._replace(path="/admin/host/status").geturl()
    with urllib.request.urlopen(status_url) as answer:  # noqa: ASYNC210, S310 # the mistake is the point
        status = json.load(answer)
    return json.dumps([state and state.instance_id, events is not None, status["state"]])


@app.orchestration_trigger(context_name="ctx")
def nap(ctx: task.OrchestrationContext, seconds: float) -> Turns:
    """Waits, and returns how late it is seen that the wait is over."""
    due = ctx.current_utc_datetime.replace(tzinfo=UTC) + timedelta(seconds=seconds)
    yield ctx.create_timer(due)
    return (datetime.now(UTC) - due).total_seconds()


@app.orchestration_trigger(context_name="ctx")
def one(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns:
    """Calls one activity."""
    return (yield ctx.call_activity(given["activity"], input=given["input"]))


@app.orchestration_trigger(context_name="ctx")
def many(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns:
    """Calls an activity several times, one after the other, and returns the processes that ran it."""
    pids = set()
    for _ in range(given["times"]):
        pids.add((yield ctx.call_activity("where", input=given["text"])))
    return [given["times"], *pids]


@app.orchestration_trigger(context_name="ctx")
def count(ctx: task.OrchestrationContext, key: str) -> Turns:
    """Calls an entity."""
    return (yield ctx.call_entity(EntityInstanceId("counter", key), "add", 1))


@app.entity_trigger(context_name="context", entity_name="counter")
class Counter(DurableEntity):
    """Adds up."""

    def add(self, amount: int) -> int:
        total = self.get_state(int, 0) + amount
        self.set_state(total)
        return total


@app.activity_trigger(input_name="text")
def where(text: str) -> int:  # noqa: ARG001 # it makes histories long
    return os.getpid()


def _note(folder: str) -> int:
    """Writes down a run; returns how many there were with it."""
    runs = len(list(Path(folder).iterdir())) + 1
    (Path(folder) / f"{runs}-{time.monotonic_ns()}").touch()
    return runs


@app.activity_trigger(input_name="folder")
def exits_once(folder: str) -> int:
    runs = _note(folder)
    if runs == 1:
        os._exit(7)
    return runs


@app.activity_trigger(input_name="folder")
def forks_and_exits(folder: str) -> int:
    """Leaves a process behind that holds whatever this one held, until a file `end` is there."""
    runs = _note(folder)
    if runs > 1:
        return runs
    if os.fork() == 0:
        while not (Path(folder) / "end").exists():
            time.sleep(0.05)
    os._exit(7)


@app.activity_trigger(input_name="folder")
def exits_always(folder: str) -> None:
    _note(folder)
    os._exit(7)


@app.activity_trigger(input_name="given")
def sleeps(given: dict) -> int:  # type: ignore[type-arg] # the worker refuses parameterised generics
    """Notes its process, then blocks its thread until a file is there."""
    folder, until = Path(given["folder"]), Path(given["until"])
    (folder / str(os.getpid())).touch()
    while not until.exists():
        time.sleep(0.05)
    return os.getpid()
