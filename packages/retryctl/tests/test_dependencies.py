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
