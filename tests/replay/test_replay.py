"""Histories recorded earlier, replayed by today's orchestrator.

An operation may run for days, so a deployment meets histories that older code wrote. A change that cannot
replay them fails here; then it needs a new orchestrator name, or a version check, not a new recording.
"""

import base64
import json
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.internal import orchestrator_service_pb2 as pb

from orchestrators import passage as module
from orchestrators.operation import operation
from stores.configuration import harden_runtime
from tests.replay.recording import Recording, load, shapes

SCHEDULED: Final = (
    "taskScheduled",
    "timerCreated",
    "entityOperationCalled",
    "entityOperationSignaled",
    "orchestratorCompleted",
)
"""What a turn writes itself; the rest of its events is what woke it."""


def turns(recording: Recording) -> Iterator[pb.OrchestratorRequest]:
    """Give what each turn of a recording was given."""
    events = recording.events
    starts = [at for at, event in enumerate(events) if event.HasField("orchestratorStarted")]
    for begin, end in zip(starts, [*starts[1:], len(events)], strict=True):
        woken_by = [event for event in events[begin:end] if event.WhichOneof("eventType") not in SCHEDULED]
        yield pb.OrchestratorRequest(instanceId="op-test", pastEvents=events[:begin], newEvents=woken_by)


def replayed(orchestrator: Any, request: pb.OrchestratorRequest) -> pb.OrchestratorResponse:
    """Run one turn through the SDK's executor."""
    harden_runtime()
    encoded = base64.b64encode(request.SerializeToString()).decode()
    answer = DurableFunctionsWorker().execute_orchestration_request(orchestrator, encoded)
    response = pb.OrchestratorResponse()
    response.ParseFromString(base64.b64decode(answer))
    return response


def completion(response: pb.OrchestratorResponse) -> pb.CompleteOrchestrationAction | None:
    done = [action for action in response.actions if action.HasField("completeOrchestration")]
    return done[0].completeOrchestration if done else None


def failures(orchestrator: Any, recording: Recording) -> list[str]:
    """Return what went wrong in each turn that failed."""
    ends = [completion(replayed(orchestrator, request)) for request in turns(recording)]
    return [
        end.failureDetails.errorType
        for end in ends
        if end is not None and end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED
    ]


def test_there_are_recordings_of_every_shape() -> None:
    assert len(shapes()) >= 8


@pytest.mark.parametrize("shape", shapes())
def test_todays_orchestrator_replays_every_turn(shape: str) -> None:
    assert failures(operation, load(shape)) == []


@pytest.mark.parametrize("shape", shapes())
def test_the_last_turn_ends_as_it_did(shape: str) -> None:
    recording = load(shape)
    end = completion(replayed(operation, list(turns(recording))[-1]))
    assert end is not None
    assert json.loads(end.result.value) == recording.output


@pytest.mark.parametrize("shape", shapes())
def test_a_renamed_activity_is_found_out(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPT", "attempt_renamed")
    found = failures(operation, load(shape))
    assert found
    assert all("NonDeterminism" in name for name in found)


@pytest.mark.parametrize("shape", shapes())
def test_a_wait_put_in_front_is_found_out(shape: str) -> None:
    def with_a_wait(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Generator[Any, Any, Any]:
        yield ctx.create_timer(timedelta(seconds=1))
        return (yield from operation(ctx, input_))

    found = failures(with_a_wait, load(shape))
    assert found
    assert all("NonDeterminism" in name for name in found)
