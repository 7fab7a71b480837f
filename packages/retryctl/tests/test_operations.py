"""What is printed of one operation."""

from typing import Any

import pytest

from tests.support.retryctl import Run, answers

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


def shown(document: Any) -> list[str]:
    return Run(answers(document), "get", "op-1").out.splitlines()


def test_the_steps_of_a_handler_are_shown_with_their_results() -> None:
    steps = [
        {"name": "charge", "status": "succeeded", "attempts": 2, "result": {"id": "ch-1"}},
        {"name": "parcel", "status": "failed", "attempts": 1, "result": None},
    ]
    lines = shown(OPERATION | {"steps": steps})
    assert 'step charge  succeeded  attempts: 2  {"id": "ch-1"}' in lines
    assert "step parcel  failed  attempts: 1" in lines


def test_a_request_has_no_steps() -> None:
    assert "step" not in "".join(shown(OPERATION))


def test_what_people_did_is_shown_with_their_names() -> None:
    document = OPERATION | {
        "submitted_by": "ada",
        "actions": [{"action": "retry_now", "at": "2026-11-21T12:00:00Z", "by": None}],
        "replays": [
            {"dead_letter_id": "dl-1", "requested_at": "2026-11-21T12:00:00Z", "by": "ada", "status": None}
        ],
    }
    lines = shown(document)
    assert any(line.split() == ["submitted", "by", "ada"] for line in lines)
    assert "retry_now  2026-11-21T12:00:00Z" in lines
    assert "replay of dl-1  2026-11-21T12:00:00Z by ada: not known" in lines


@pytest.mark.parametrize("command", [["list"], ["find"], ["dead-letters", "list"]])
def test_lists_are_narrowed_by_what_operations_share(command: list[str]) -> None:
    given = {"order_key": "customer-7", "debounce_key": "stock-3", "priority": "low"}
    argv = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", value)]
    asked = Run(answers({"items": [], "next_cursor": None}), *command, *argv).requests[0].url.params
    assert {name: asked[name] for name in given} == given
