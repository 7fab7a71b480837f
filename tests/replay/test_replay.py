"""Histories recorded earlier, replayed by today's orchestrators.

An orchestration may run for days, so a deployment meets histories that older code wrote. A change that cannot
replay them fails here; then it needs a new orchestrator name, or a version check, not a new recording.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.app import harden_runtime
from durable_retry.engine.base.names import (
    BATCH,
    BULK_ACTION,
    CALL,
    DIAGNOSIS,
    OPERATION,
    ORCHESTRATIONS,
    OUTBOX,
    PASS_TURN,
    RELEASE_WAITING,
    RETENTION,
    SAGA,
)
from durable_retry_console.bulk import orchestration as bulk
from orchestrators import batch, call, diagnosis, operation, order_lane, outbox, saga, wake_waiting
from orchestrators import upkeep as retention
from tests.replay.recording import FOREIGN, Recording, load, shapes
from tests.replay.with_a_wait import with_a_wait

ORCHESTRATORS: Final[dict[str, Any]] = {
    OPERATION: operation.operation,
    OUTBOX: outbox.outbox,
    BATCH: batch.batch,
    SAGA: saga.saga,
    BULK_ACTION: bulk.bulk_action,
    RELEASE_WAITING: wake_waiting.release_waiting,
    CALL: call.call_operation,
    RETENTION: retention.retention,
    DIAGNOSIS: diagnosis.diagnosis,
    PASS_TURN: order_lane.pass_turn,
}

ACTIVITIES: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    OPERATION: (operation, ("ATTEMPT",)),
    OUTBOX: (outbox, ("OUTBOX_PENDING", "PUBLISH")),
    BATCH: (batch, ("BATCH_STEP", "BATCH_CLOSE")),
    SAGA: (saga, ("SUBMIT",)),
    BULK_ACTION: (bulk, ("BULK_BATCH", "BULK_ENDS")),
    RELEASE_WAITING: (wake_waiting, ("WAKE_WAITING",)),
    CALL: (call, ("START_CALL", "LOOK_AT_CALL")),
    RETENTION: (retention, ("REMOVE_PAST",)),
    DIAGNOSIS: (diagnosis, ("DIAGNOSE",)),
}
"""Where each orchestrator has the names of the activities that it calls in every history."""

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
        yield pb.OrchestratorRequest(
            instanceId=recording.instance_id, pastEvents=events[:begin], newEvents=woken_by
        )


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


def failures_of(recording: Recording) -> list[str]:
    return failures(ORCHESTRATORS[recording.orchestrator], recording)


def test_there_are_recordings_of_every_orchestrator() -> None:
    counts = Counter(shape.partition("/")[0] for shape in shapes())
    assert counts.keys() == ORCHESTRATORS.keys() == ORCHESTRATIONS
    assert min(counts.values()) >= 2


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.shows("A22")
def test_todays_orchestrator_replays_every_turn(shape: str) -> None:
    assert failures_of(load(shape)) == []


@pytest.mark.parametrize("shape", shapes())
def test_the_last_turn_ends_as_it_did(shape: str) -> None:
    recording = load(shape)
    end = completion(replayed(ORCHESTRATORS[recording.orchestrator], list(turns(recording))[-1]))
    assert end is not None
    assert json.loads(end.result.value or "null") == recording.output


@pytest.mark.parametrize("shape", [name for name in shapes() if name.partition("/")[0] in ACTIVITIES])
def test_a_renamed_activity_is_found_out(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = load(shape)
    module, names = ACTIVITIES[recording.orchestrator]
    for name in names:
        monkeypatch.setattr(module, name, "renamed")
    found = failures_of(recording)
    assert found
    assert all("NonDeterminism" in name for name in found)


@pytest.mark.parametrize("shape", shapes())
def test_a_wait_put_in_front_is_found_out(shape: str) -> None:
    recording = load(shape)
    found = failures(with_a_wait(ORCHESTRATORS[recording.orchestrator]), recording)
    assert found
    assert all("NonDeterminism" in name for name in found)


@pytest.mark.parametrize("shape", shapes(FOREIGN))
def test_a_history_that_other_code_has_written_is_found_out(shape: str) -> None:
    """The same saga, recorded with a wait in front: its orchestration must fail, not go on from nowhere."""
    found = failures_of(load(shape, FOREIGN))
    assert found
    assert all("NonDeterminism" in name for name in found)


def test_there_is_a_history_that_other_code_has_written() -> None:
    assert shapes(FOREIGN) == ["saga/with_a_wait"]
