from dataclasses import replace
from datetime import UTC, datetime

import pytest

from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.operations.steps import (
    HEARTBEAT,
    MAX_PROGRESS_BYTES,
    Execution,
    OvertakenError,
    RememberedStep,
    begin_heartbeats,
    progress_text,
    report_progress,
    shown_heartbeat,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
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
