"""The turn of a plain orchestrator through the SDK: what the turns of an operation are compared with."""

import base64
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import OrchestratorRequest


def plain_turn_seconds(turns: int) -> float:
    """Returns the processor time of a plain orchestrator's turn through the SDK, the mean of so many."""
    worker, request = DurableFunctionsWorker(), _first_turn()
    worker.execute_orchestration_request(_plain, request)
    busy = time.process_time()
    for _ in range(turns):
        worker.execute_orchestration_request(_plain, request)
    return (time.process_time() - busy) / turns


def _plain(context: Any, value: int) -> Generator[task.Task[Any], Any, Any]:
    """Calls an activity."""
    return (yield context.call_activity("same", input=value))


def _first_turn() -> str:
    """Returns the request for an instance's first turn, as the host sends it."""
    request = OrchestratorRequest(instanceId="plain")
    request.newEvents.append(helpers.new_orchestrator_started_event(datetime.now(UTC)))
    request.newEvents.append(helpers.new_execution_started_event("plain", "plain", "1"))
    return base64.b64encode(request.SerializeToString()).decode()
