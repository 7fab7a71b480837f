from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers.rules.steps import (
    HEARTBEAT,
    MAX_PROGRESS_BYTES,
    Execution,
    RememberedStep,
    UnknownEffectError,
    begin_heartbeats,
    begin_step,
    complete_step,
    fail_step,
    forgotten,
    hold_step,
    progress_text,
    report_progress,
    shown,
    shown_heartbeat,
)
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.operations.status import StepState

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def an_execution(name: str = "x1", **changes: Any) -> Execution:
    values: dict[str, Any] = {
        "name": "charge",
        "token": name,
        "run": 7,
        "is_repeatable": True,
        "now": NOON,
        "dead_letter_id": "dl-1",
    }
    return Execution(**(values | changes))


def running(name: str = "x1", **changes: Any) -> RememberedStep:
    return begin_step(None, an_execution(name, **changes))


def test_a_step_begins_succeeds_and_keeps_its_result() -> None:
    begun = running()
    assert (begun.state, begun.attempts, begun.begun_at) == (StepState.RUNNING, 1, NOON)
    done = complete_step(begun, begun, '{"id": 1}')
    assert (done.state, done.result, done.has_succeeded) == (StepState.SUCCEEDED, '{"id": 1}', True)
    assert begin_step(done, an_execution("x2", run=9, is_repeatable=False)) == done
    assert RememberedStep.from_json(done.to_json()) == done


def test_a_step_that_failed_begins_again_with_the_next_attempt() -> None:
    again = begin_step(fail_step(running(), running()), an_execution("x2", is_repeatable=False))
    assert (again.state, again.attempts, again.execution) == (StepState.RUNNING, 2, "x2")


def test_a_step_whose_process_died_is_run_again_under_its_number_where_it_may() -> None:
    again = begin_step(running(), an_execution("x2"))
    assert (again.attempts, again.execution) == (1, "x2")


def test_a_step_that_must_not_run_twice_stops_when_its_end_is_not_known() -> None:
    with pytest.raises(UnknownEffectError, match="charge"):
        begin_step(running(), an_execution("x2", is_repeatable=False))


def test_an_execution_recognizes_what_it_wrote_itself() -> None:
    begun = running()
    assert begin_step(begun, an_execution("x1", is_repeatable=False)) is begun


def test_a_later_run_is_a_persons_decision_to_go_on() -> None:
    again = begin_step(running(), an_execution("x2", run=8, is_repeatable=False, dead_letter_id="dl-2"))
    assert (again.run, again.dead_letter_id) == (8, "dl-2")


def test_a_run_that_lost_its_claim_writes_no_more() -> None:
    later = running("x2", run=8)
    with pytest.raises(OvertakenError):
        begin_step(later, an_execution("x1"))
    with pytest.raises(OvertakenError):
        complete_step(later, running(), "1")


def test_the_first_result_stays() -> None:
    first = complete_step(running(), running(), "1")
    assert complete_step(first, running("x2"), "2") == first
    assert fail_step(first, running("x2")) == first


def test_a_failure_leaves_alone_what_another_execution_began() -> None:
    other = begin_step(running(), an_execution("x2"))
    assert fail_step(other, running()) == other


def test_a_step_that_its_dependency_did_not_admit_counts_no_attempt() -> None:
    held = hold_step(running(), running())
    assert (held.state, held.attempts) == (StepState.FAILED, 0)
    again = begin_step(held, an_execution("x2", is_repeatable=False))
    assert (again.state, again.attempts) == (StepState.RUNNING, 1)


def test_a_step_that_waits_for_its_circuit_is_not_shown_as_failed() -> None:
    held = hold_step(running(), running())
    assert shown(held, OperationState.RUNNING).status is StepState.WAITING
    failed = fail_step(running(), running())
    assert shown(failed, OperationState.WAITING_CIRCUIT).status is StepState.WAITING
    assert shown(failed, OperationState.WAITING_THROTTLE).status is StepState.WAITING
    assert shown(failed, OperationState.WAITING_RETRY).status is StepState.FAILED


def test_a_step_that_was_not_admitted_leaves_alone_what_another_execution_wrote() -> None:
    other = running("x2")
    assert hold_step(other, running()) == other
    done = complete_step(running(), running(), "1")
    assert hold_step(done, running()) == done


def test_a_record_that_was_deleted_meanwhile_is_written_anew() -> None:
    begun = running()
    assert complete_step(None, begun, "1").result == "1"
    assert fail_step(None, begun).state is StepState.FAILED


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (OperationState.RUNNING, "running"),
        (OperationState.WAITING_RETRY, "unknown"),
        (OperationState.DEAD_LETTERED, "unknown"),
    ],
)
def test_a_step_that_runs_nowhere_any_more_is_unknown(state: OperationState, status: str) -> None:
    assert shown(running(), state).to_json() == {
        "name": "charge",
        "status": status,
        "attempts": 1,
        "result": None,
    }
    done = shown(complete_step(running(), running(), "5"), state)
    assert (done.status, done.result) == (StepState.SUCCEEDED, 5)


def test_a_forgotten_step_is_made_again_by_the_next_run_and_an_older_execution_gives_it_no_result() -> None:
    begun = running()
    record = forgotten(complete_step(begun, begun, "1"))
    assert forgotten(record) == record
    assert shown(record, OperationState.RUNNING).status is StepState.WAITING
    with pytest.raises(OvertakenError):
        complete_step(record, begun, "1")
    again = begin_step(record, an_execution("x2", run=9, is_repeatable=False))
    assert (again.state, again.attempts, again.result) == (StepState.RUNNING, 1, None)
    with pytest.raises(LookupError):
        forgotten(None)


EXECUTION = Execution(name=HEARTBEAT, run=2, token="x1", is_repeatable=True, now=NOON, dead_letter_id="dl-1")


def reported(text: str = '{"page": 3}', attempt: int = 1) -> RememberedStep:
    return report_progress(None, EXECUTION, attempt, text)


def test_an_attempt_begins_with_what_an_earlier_one_reported() -> None:
    assert begin_heartbeats(None, EXECUTION, 1).result == "null"
    begun = begin_heartbeats(reported(), EXECUTION, 2)
    assert (begun.result, begun.attempts) == ('{"page": 3}', 2)
    assert begin_heartbeats(replace(begun, result=None), EXECUTION, 2).result == "null"


def test_a_record_is_kept_as_a_step_is_and_shown_by_itself() -> None:
    record = RememberedStep.from_json(reported().to_json())
    assert record == reported()
    assert shown_heartbeat(record).to_json() == {
        "at": "2026-11-22T12:00:00Z",
        "attempt": 1,
        "progress": {"page": 3},
    }
    assert shown_heartbeat(replace(record, result=None)).progress is None


def test_an_attempt_that_was_left_behind_writes_over_no_later_one() -> None:
    later = reported(attempt=2)
    assert report_progress(later, EXECUTION, 1, "0") == later
    assert report_progress(later, EXECUTION, 2, "0").result == "0"
    next_run = replace(EXECUTION, run=3)
    assert report_progress(later, next_run, 1, "0").result == "0"
    with pytest.raises(OvertakenError, match="run 3 of this key has begun; run 2 is over"):
        report_progress(replace(later, run=3), EXECUTION, 3, "0")


def test_progress_is_small() -> None:
    assert progress_text({"page": 1}) == '{"page": 1}'
    with pytest.raises(InvalidInputError, match="a heartbeat takes 16384"):
        progress_text("x" * MAX_PROGRESS_BYTES)
