"""What is printed of one operation."""

from typing import Any

from retryctl.operations import operation_text

OPERATION: dict[str, Any] = {
    "operation_id": "op-1",
    "status": "running",
    "key": "order-7",
    "dependency": "payments",
    "correlation_id": None,
    "deadline_at": None,
    "next_attempt_at": None,
    "attempts": [],
    "dead_letter": None,
    "result": None,
    "events": [],
}


def test_the_steps_of_a_handler_are_shown_with_their_results() -> None:
    steps = [
        {"name": "charge", "status": "succeeded", "attempts": 2, "result": {"id": "ch-1"}},
        {"name": "parcel", "status": "failed", "attempts": 1, "result": None},
    ]
    lines = operation_text(OPERATION | {"steps": steps}).splitlines()
    assert 'step charge  succeeded  attempts: 2  {"id": "ch-1"}' in lines
    assert "step parcel  failed  attempts: 1" in lines


def test_a_request_has_no_steps() -> None:
    assert "step" not in operation_text(OPERATION)
