from typing import Any

import pytest

from bench.crash import HOST, Plan
from bench.peers.target import Call
from bench.promises import Expected, Findings, Kill, expected

ONE_FAILURE = Expected("/attempts/1", "succeeded", 2)
CALLS = [Call("a", 1.0, 1.1, 503, 1), Call("a", 2.2, 2.3, 200, 2)]
KILLS = [Kill(HOST, 1.5, 1.8)]


def document(status: str = "succeeded", attempts: int = 2) -> dict[str, Any]:
    return {"status": status, "attempt_count": attempts, "attempts": []}


def judged(calls: list[Call], shown: dict[str, Any] | None = None) -> tuple[dict[str, list[str]], int]:
    """The promises that an operation with one failure broke, and how many repetitions were permitted."""
    findings = Findings()
    findings.judge("op-1", ONE_FAILURE, document() if shown is None else shown, calls, KILLS)
    return {promise: broken for promise, broken in findings.broken.items() if broken}, findings.repeated


def test_an_operation_that_ended_after_the_attempts_that_it_takes_breaks_no_promise() -> None:
    assert judged(CALLS) == ({}, 0)


@pytest.mark.parametrize(
    "shown", [document("dead_lettered"), document("waiting_retry"), {"attempt_count": 2}]
)
def test_an_operation_without_its_end_is_lost(shown: dict[str, Any]) -> None:
    assert list(judged(CALLS, shown)[0]) == ["lost"]


def test_an_attempt_before_the_wait_is_over_is_early() -> None:
    assert judged([CALLS[0], Call("a", 2.0, 2.3, 200, 2)])[0] == {"early": ["op-1: attempt 2 after 0.900 s"]}


def test_an_attempt_is_early_while_the_one_before_it_is_not_answered() -> None:
    assert list(judged([Call("a", 1.0, 0.0, 503, 1), CALLS[1]])[0]) == ["early"]


def test_a_kill_permits_that_the_attempt_that_it_cut_off_is_made_again() -> None:
    assert judged(
        [Call("a", 1.45, 1.5, 503, 1), Call("a", 1.9, 2.0, 503, 1), Call("a", 3.0, 3.1, 200, 2)]
    ) == (
        {},
        1,
    )


def test_an_attempt_that_is_made_again_without_a_kill_is_miscounted() -> None:
    assert list(judged([*CALLS, Call("a", 2.4, 2.5, 200, 2)])[0]) == ["miscounted"]


@pytest.mark.parametrize(
    ("calls", "counted"),
    [(CALLS, 3), (CALLS[1:], 2), (CALLS[:1], 1), ([*CALLS, Call("a", 9.0, 9.1, 200, 3)], 2), ([], 0)],
)
def test_more_or_fewer_attempts_than_it_takes_are_miscounted(calls: list[Call], counted: int) -> None:
    assert list(judged(calls, document(attempts=counted))[0]) == ["miscounted"]


def test_a_late_attempt_needs_a_reason() -> None:
    attempts = [
        {"number": 1, "started_at": "2026-01-01T00:00:00Z", "duration_ms": 0, "next_delay_seconds": 1},
        {"number": 2, "started_at": "2026-01-01T00:00:05Z", "duration_ms": 0, "next_delay_seconds": None},
    ]
    attempts = [{**attempt, "delay_reasons": []} for attempt in attempts]
    waits = [{"before_attempt": 2, "delay_reasons": ["the host was away"]}]
    assert list(judged(CALLS, {**document(), "attempts": attempts})[0]) == ["unexplained"]
    assert judged(CALLS, {**document(), "attempts": attempts, "waits": waits}) == ({}, 0)


def test_a_seed_draws_the_same_kills_of_all_parts_again() -> None:
    kills = Plan(1_000, 30, seed=7).draw()
    assert kills == Plan(1_000, 30, seed=7).draw() != Plan(1_000, 30, seed=8).draw()
    assert {part for _, _, part in kills} == {"host", "store", "worker"}
    assert {part for _, _, part in Plan(1_000, 30, seed=7, workers=0).draw()} == {"host", "store"}
    assert [after for after, _, _ in kills] == sorted(after for after, _, _ in kills)


def test_operations_succeed_at_each_attempt_and_some_become_dead_letters() -> None:
    ends = {(end.status, end.attempts) for end in map(expected, range(300))}
    assert ends == {
        *(("succeeded", attempts) for attempts in (1, 2, 3)),
        ("dead_lettered", 1),
        ("dead_lettered", 4),
    }
