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


CIRCUIT = {
    "kind": "circuit",
    "before_attempt": 2,
    "began_at": "2026-11-21T12:00:02Z",
    "until": "2026-11-21T12:12:02Z",
    "delay_reasons": ["payments answers 503: no upstream, since 12:00 UTC", "staggered by 1 s"],
}
FAILED = {
    "number": 1,
    "started_at": "2026-11-21T12:00:00Z",
    "duration_ms": 41.2,
    "category": "transient",
    "status_code": 503,
    "error": "no upstream",
    "next_delay_seconds": 1.5,
    "delay_reasons": ["fixed 1.5 s"],
}
PAUSE = CIRCUIT | {"kind": "retry", "began_at": "2026-11-21T12:00:00.5Z", "until": "2026-11-21T12:00:02Z"}
DONE = FAILED | {"number": 2, "category": None, "status_code": 200, "error": None, "next_delay_seconds": None}


def test_attempts_and_waits_are_shown_in_their_order_with_the_error_behind_each() -> None:
    done = DONE | {"started_at": "2026-11-21T12:12:02Z"}
    lines = shown(OPERATION | {"status": "succeeded", "attempts": [FAILED, done], "waits": [PAUSE, CIRCUIT]})
    why = "payments answers 503: no upstream, since 12:00 UTC, staggered by 1 s"
    assert lines[-4:] == [
        "attempt 1  503  41.2 ms  transient: no upstream",
        f"  waited 1.5 s: {why}",
        f"  waited 12 min for the circuit: {why}",
        "attempt 2  200  41.2 ms  success",
    ]


def test_an_attempt_at_a_fallback_says_so() -> None:
    attempts = [DONE | {"number": 1, "dependency": "spare"}]
    assert "attempt 1 at spare  200  41.2 ms  success" in shown(OPERATION | {"attempts": attempts})


def test_a_wait_that_somebody_ended_is_as_long_as_it_was() -> None:
    done = DONE | {"started_at": "2026-11-21T12:05:02Z"}
    lines = shown(OPERATION | {"status": "succeeded", "attempts": [FAILED, done], "waits": [CIRCUIT]})
    assert lines[-2].startswith("  waited 5 min for the circuit: ")


@pytest.mark.parametrize(
    ("wait", "status", "line"),
    [
        (CIRCUIT, "waiting_circuit", "waits for the circuit: {why}; next probe in "),
        (CIRCUIT | {"kind": "freeze"}, "waiting_circuit", "waits for a thaw: {why}; asks again in "),
        (
            CIRCUIT | {"kind": "throttle"},
            "waiting_throttle",
            "waits for the end of a pause: {why}; next attempt in ",
        ),
    ],
)
def test_a_wait_before_the_first_attempt_says_why_and_when_it_ends(
    wait: dict[str, Any], status: str, line: str
) -> None:
    document = OPERATION | {"status": status, "waits": [wait], "next_attempt_at": "2126-11-21T12:12:02Z"}
    assert shown(document)[-1].startswith("  " + line.format(why=", ".join(wait["delay_reasons"])))


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ({"value": {"order": 7}}, 'result {"order": 7}'),
        ({"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}, 'result 200  {"id": "ch_1"}'),
        ({"status_code": 201, "headers": {}, "body": "made"}, "result 201  made"),
        ({"status_code": 204, "headers": {}}, "result 204"),
    ],
)
def test_a_success_shows_what_it_brought(result: dict[str, Any], line: str) -> None:
    assert shown(OPERATION | {"status": "succeeded", "result": result})[-1] == line


def test_nobody_can_say_when_a_turn_comes() -> None:
    wait = CIRCUIT | {"kind": "order", "delay_reasons": ["behind order-6"]}
    lines = shown(OPERATION | {"status": "waiting_order", "waits": [wait]})
    assert lines[-1] == "  waits for its turn: behind order-6"


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
    given = {
        "order_key": "customer-7",
        "limit_key": "customer-17",
        "debounce_key": "stock-3",
        "priority": "low",
    }
    argv = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", value)]
    asked = Run(answers({"items": [], "next_cursor": None}), *command, *argv).requests[0].url.params
    assert {name: asked[name] for name in given} == given


def test_an_attempt_without_a_status_code_as_of_a_handler_is_not_said_to_have_got_no_answer() -> None:
    attempts = [FAILED | {"status_code": None, "error": "ConnectError"}, DONE | {"status_code": None}]
    lines = shown(OPERATION | {"attempts": attempts})
    assert "attempt 1  41.2 ms  transient: ConnectError" in lines
    assert "attempt 2  41.2 ms  success" in lines
