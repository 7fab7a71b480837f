"""An orchestration in a host's turns, by the SDK's executor."""

import base64
import json
from collections.abc import Callable
from typing import Any

from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.app import harden_runtime
from tests.support.builders import NOON

type Orchestrator = Callable[[task.OrchestrationContext, Any], Any]


class Instance:
    """One orchestration: `begin` runs its first turn, `go_on` the next one with an event."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        harden_runtime()
        self.orchestrator = orchestrator
        self.past: list[pb.HistoryEvent] = []
        self.custom_status: str | None = None

    def begin(self, input_: str = "null", execution: str | None = None) -> list[pb.OrchestratorAction]:
        started = helpers.new_execution_started_event("o", "id-1", input_)
        if execution is not None:
            started.executionStarted.orchestrationInstance.executionId.value = execution
        return self.go_on(started)

    def go_on(self, *events: pb.HistoryEvent) -> list[pb.OrchestratorAction]:
        new = [helpers.new_orchestrator_started_event(NOON), *events]
        request = pb.OrchestratorRequest(instanceId="id-1", pastEvents=self.past, newEvents=new)
        encoded = base64.b64encode(request.SerializeToString()).decode()
        answer = DurableFunctionsWorker().execute_orchestration_request(self.orchestrator, encoded)
        self.past.extend(new)
        response = pb.OrchestratorResponse.FromString(base64.b64decode(answer))
        self.custom_status = response.customStatus.value if response.HasField("customStatus") else None
        return list(response.actions)


def end_of(actions: list[pb.OrchestratorAction]) -> Any:
    """The return value; the failure as text."""
    (end,) = [each.completeOrchestration for each in actions if each.HasField("completeOrchestration")]
    if end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED:
        return f"FAILED: {end.failureDetails.errorMessage}"
    return json.loads(end.result.value or "null")
