"""Histories recorded earlier, replayed by today's orchestrators.

An orchestration may run for days, so a deployment meets histories that older code wrote. A change that cannot
replay them fails here; then it needs a new orchestrator name, or a version check, not a new recording.
"""

import json
from collections import Counter
from typing import Any, Final

import pytest

from durable_retry.app import harden_runtime
from durable_retry.base.names import OPERATION
from durable_retry.features.circuit_controls.names import RELEASE_WAITING
from durable_retry.features.diagnosis.names import DIAGNOSIS
from durable_retry.features.freeze.names import FREEZE
from durable_retry.features.histories.replay import Difference, replayed
from durable_retry.features.in_process.names import CALL
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.features.order.names import PASS_TURN
from durable_retry.features.outbox.names import OUTBOX
from durable_retry.features.retention.names import RETENTION
from durable_retry.features.standstill.names import QUEUE_CHECK
from durable_retry.features.workflows.names import BATCH, SAGA
from durable_retry.hub.orchestrations import orchestrations
from durable_retry_console.bulk import names as bulk_names
from durable_retry_console.bulk import orchestration as bulk
from durable_retry_console.bulk.names import BULK_ACTION
from orchestrators import (
    batch,
    call,
    call_limiter,
    diagnosis,
    freeze,
    operation,
    order_lane,
    outbox,
    queue_check,
    retention,
    saga,
    wake_waiting,
)
from tests.replay.recording import FOREIGN, Recording, load, shapes
from tests.replay.with_a_wait import with_a_wait
from tests.support.narrowing import existing

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
    QUEUE_CHECK: queue_check.queue_check,
    PASS_TURN: order_lane.pass_turn,
    CALL_NEXT: call_limiter.call_next,
    FREEZE: freeze.freeze,
}

ACTIVITIES: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    OPERATION: (operation, ("ATTEMPT",)),
    OUTBOX: (outbox, ("OUTBOX_PENDING", "PUBLISH")),
    BATCH: (batch, ("BATCH_STEP", "BATCH_CLOSE")),
    SAGA: (saga, ("SUBMIT",)),
    BULK_ACTION: (bulk_names, ("BULK_BATCH", "BULK_ENDS")),
    RELEASE_WAITING: (wake_waiting, ("WAKE_WAITING",)),
    CALL: (call, ("START_CALL", "LOOK_AT_CALL")),
    RETENTION: (retention, ("REMOVE_PAST",)),
    QUEUE_CHECK: (queue_check, ("PASS_QUEUE",)),
    DIAGNOSIS: (diagnosis, ("DIAGNOSE",)),
    FREEZE: (freeze, ("KEEP_FROZEN",)),
}
"""Where each orchestrator has the names of the activities that it calls in every history."""


@pytest.fixture(scope="module", autouse=True)
def hardened() -> None:
    harden_runtime()


def difference(recording: Recording) -> Difference | None:
    history = recording.history
    return replayed(ORCHESTRATORS[history.orchestrator], history).difference


def test_there_are_recordings_of_every_orchestrator() -> None:
    counts = Counter(shape.partition("/")[0] for shape in shapes())
    assert counts.keys() == ORCHESTRATORS.keys() == orchestrations().keys()
    assert min(counts.values()) >= 2


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.shows("A22")
def test_todays_orchestrator_replays_every_turn_and_ends_as_it_did(shape: str) -> None:
    recording = load(shape)
    replay = replayed(ORCHESTRATORS[recording.history.orchestrator], recording.history)
    assert replay.difference is None
    assert json.loads(replay.result or "null") == recording.output


@pytest.mark.parametrize("shape", [name for name in shapes() if name.partition("/")[0] in ACTIVITIES])
def test_a_renamed_activity_is_found_out(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = load(shape)
    module, names = ACTIVITIES[recording.history.orchestrator]
    for name in names:
        monkeypatch.setattr(module, name, "renamed")
    assert existing(difference(recording)).code == "activity renamed"


@pytest.mark.parametrize("shape", shapes())
def test_a_wait_put_in_front_is_found_out(shape: str) -> None:
    history = load(shape).history
    found = existing(replayed(with_a_wait(ORCHESTRATORS[history.orchestrator]), history).difference)
    assert found.code == "a timer"


@pytest.mark.parametrize("shape", shapes(FOREIGN))
def test_a_history_that_other_code_has_written_is_found_out(shape: str) -> None:
    """The same saga, recorded with a wait in front: its orchestration must fail, not go on from nowhere."""
    found = existing(difference(load(shape, FOREIGN)))
    assert (found.history, found.code) == ("a timer", "activity submit")


def test_there_is_a_history_that_other_code_has_written() -> None:
    assert shapes(FOREIGN) == ["saga/with_a_wait"]
