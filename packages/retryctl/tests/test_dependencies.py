"""Circuits and limits on a terminal."""

from typing import Any, Final

import pytest

from tests.support.retryctl import Run, answers

CIRCUIT: Final[dict[str, Any]] = {
    "dependency": "payments",
    "state": "closed",
    **dict.fromkeys(("calls", "failures", "slow_calls", "failed_probes", "waiting"), 0),
    **dict.fromkeys(
        ("opened_at", "first_opened_at", "retry_at", "throttled_until", "changed_by", "last_error")
    ),
    "failure_ratio": 0.0,
    "reason": "healthy",
    "audit": [],
}


@pytest.mark.parametrize(
    ("limits", "is_shown"), [({}, False), ({"waiting_by_key": {"customer-17": 9, "customer-18": 1}}, True)]
)
def test_a_circuit_shows_the_limit_keys_with_most_waiting(limits: dict[str, Any], *, is_shown: bool) -> None:
    run = Run(answers(CIRCUIT | {"limits": limits}), "circuits", "show", "payments")
    assert ("customer-17: 9, customer-18: 1" in run.out) is is_shown


KEY: Final = CIRCUIT | {"limit_key": "customer-17", "state": "open", "why": "open: 401: revoked"}


def test_circuits_of_limit_keys_stand_behind_that_of_their_dependency() -> None:
    listed = {"items": [CIRCUIT | {"limit_keys": [KEY]}], "next_cursor": None}
    lines = Run(answers(listed), "circuits", "list").out.splitlines()
    assert lines[0].split()[:3] == ["DEPENDENCY", "LIMIT", "KEY"]
    assert ["customer-17" in line for line in lines[1:]] == [False, True]
    shown = Run(answers(CIRCUIT | {"limit_keys": [KEY]} | {"limits": {}}), "circuits", "show", "payments")
    assert "401: revoked" in shown.out


def test_the_circuit_of_one_limit_key_is_shown_and_changed() -> None:
    run = Run(answers(KEY | {"limits": {}}), "circuits", "show", "payments", "--limit-key", "customer-17")
    assert run.requests[0].url.query == b"limit_key=customer-17"
    assert "customer-17" in run.out
    changed = {"dependency": "payments", "action": "open", "reason": "revoked", "limit_key": "customer-17"}
    argv = ("circuits", "open", "payments", "--reason", "revoked", "--limit-key", "customer-17")
    assert Run(answers(changed, 202), *argv).out == "payments for customer-17  open: revoked\n"


def test_a_circuit_that_is_closed_in_a_pause_says_that_calls_do_not_go_and_what_would_end_it() -> None:
    why = "paused by 429 until 2026-11-21T22:17:00Z; reset ends the pause"
    changed = {"dependency": "payments", "action": "close", "reason": "back", "still_held": why}
    run = Run(answers(changed, 202), "circuits", "close", "payments", "--reason", "back")
    assert run.out == f"payments  close: back\ncalls still do not go: {why}\n"
