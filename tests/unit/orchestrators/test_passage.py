"""What an operation does when the circuit or the retry budget holds it up."""

from datetime import timedelta
from typing import Any

import pytest

from engine.budget import BudgetPostponed
from engine.circuit import (
    Breaker,
    CircuitSettings,
    Hand,
    HandAction,
    HandMessage,
    Refused,
    breaker_to_json,
)
from engine.gate import NeedsProbe, Stop, stop_to_json
from engine.instants import from_rfc3339, to_rfc3339
from stores.waiting_operations import CIRCUIT_EVENT
from tests.operation_stage import START, Answer, Stage, an_operation, failing

BREAK_OVER = START + timedelta(seconds=30)
OPEN = Refused(base=BREAK_OVER, waiting=40, until=BREAK_OVER, reason="the circuit is open: 9 of 10 failed")
PROBE = NeedsProbe(CircuitSettings())


def stopped(*stops: Stop | None, then: Answer | None = None) -> Answer:
    """Give what the activities answer when attempts are held up in this order; None lets one through."""
    left = list(stops)
    go_on = then or failing(0)

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt" and left and (stop := left.pop(0)) is not None:
            return {"stopped": stop_to_json(stop)}
        return go_on(name, given)

    return answer


def tickets(stage: Stage) -> list[dict[str, Any]]:
    return [given["ticket"] for name, given in stage.activities if name == "attempt"]


def state_of(breaker: Breaker) -> dict[str, Any]:
    return breaker_to_json(breaker)


def held_open(reason: str) -> dict[str, Any]:
    action = HandAction(Hand.OPEN, START, "ada", reason, for_seconds=60)
    return state_of(HandMessage(action).apply(Breaker()))


def test_a_healthy_operation_never_asks_the_circuit_itself() -> None:
    stage = Stage(an_operation(), failing(0))
    assert stage.run()["status"] == "succeeded"
    assert (stage.turns, stage.made("attempt"), stage.entity_calls, stage.circuit_calls) == (3, 1, 1, [])


def test_a_refused_operation_waits_for_its_place_without_counting_an_attempt() -> None:
    stage = Stage(an_operation(), stopped(OPEN))
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"], shown["attempts"]) == ("waiting_circuit", 0, [])
    at = from_rfc3339(shown["next_attempt_at"])
    assert BREAK_OVER <= at <= BREAK_OVER + timedelta(seconds=1)
    (wait,) = shown["waits"]
    assert (wait["kind"], wait["before_attempt"], wait["until"]) == ("circuit", 1, shown["next_attempt_at"])
    assert wait["delay_reasons"][:2] == [OPEN.reason, "circuit lets attempts through in 30 s"]

    done = stage.run()
    assert (done["status"], done["attempt_count"]) == ("succeeded", 1)
    assert done["waits"] == [wait]
    assert [ticket["waiting"] for ticket in tickets(stage)] == [False, True]


def test_after_an_attempt_the_next_wait_is_a_new_one() -> None:
    stage = Stage(an_operation(), stopped(OPEN, None, OPEN, then=failing(1)))
    assert stage.run()["attempt_count"] == 2
    assert [ticket["waiting"] for ticket in tickets(stage)] == [False, True, False, True]


def test_a_break_beyond_the_deadline_is_not_waited_for() -> None:
    operation = an_operation(deadline_at=START + timedelta(seconds=20))
    ended = Stage(operation, stopped(OPEN)).run()
    assert ended["dead_letter"]["reason"] == "DeadlineExceeded"
    assert ended["attempt_count"] == 0


def test_a_probe_goes_with_the_circuits_own_permit() -> None:
    stage = Stage(an_operation(), stopped(PROBE))
    assert stage.run()["status"] == "succeeded"
    ((operation, message),) = stage.circuit_calls
    assert operation == "permit"
    assert message["request"]["operation_id"] == "op-test"
    assert [ticket["permit"] is not None for ticket in tickets(stage)] == [False, True]
    assert tickets(stage)[1]["permit"]["permitted"] is True


def test_the_circuit_itself_may_refuse() -> None:
    stage = Stage(an_operation(), stopped(PROBE))
    stage.circuit = held_open("maintenance")
    shown = stage.run_until_waiting()
    assert shown["status"] == "waiting_circuit"
    assert shown["waits"][0]["delay_reasons"][0] == "the circuit is held open: maintenance"
    assert stage.made("attempt") == 1


def test_a_circuit_that_fails_lets_the_attempt_go() -> None:
    stage = Stage(an_operation(), stopped(PROBE))
    stage.circuit = state_of(Breaker()) | {"version": 99}
    assert stage.run()["status"] == "succeeded"
    assert tickets(stage)[1]["permit"]["epoch"] == 0


def test_a_lease_that_expired_on_the_way_is_asked_for_again_a_little_later() -> None:
    stage = Stage(an_operation(), stopped(PROBE, PROBE))
    shown = stage.run_until_waiting()
    assert shown["status"] == "waiting_circuit"
    assert stage.run()["status"] == "succeeded"
    assert stage.made("attempt") == 3


def test_a_retry_that_the_budget_postponed_goes_in_its_turn_unasked() -> None:
    turn = START + timedelta(seconds=25)
    stage = Stage(an_operation(), stopped(None, BudgetPostponed(turn, reserved=True), then=failing(1)))
    stage.run_until_waiting()
    done = stage.run()
    assert done["status"] == "succeeded"
    (wait,) = done["waits"]
    assert (wait["kind"], wait["before_attempt"], wait["until"]) == ("retry_budget", 2, to_rfc3339(turn))
    assert [ticket["promised"] for ticket in tickets(stage)] == [False, False, True]
    assert done["attempt_count"] == 2


def test_a_promise_outlives_a_refusal_and_a_new_history() -> None:
    later = BudgetPostponed(START + timedelta(seconds=25), reserved=True)
    again = [Refused(START, 0, START, "half-open")] * 30
    stage = Stage(an_operation(), stopped(None, later, *again, then=failing(1)))
    done = stage.run()
    assert stage.executions > 1
    assert all(ticket["promised"] for ticket in tickets(stage)[2:])
    assert all(ticket["waiting"] for ticket in tickets(stage)[3:])
    assert [(wait["kind"], wait["times"]) for wait in done["waits"]] == [("retry_budget", 1), ("circuit", 30)]


def test_who_asks_again_unpromised_is_not_promised() -> None:
    later = BudgetPostponed(START + timedelta(seconds=25), reserved=False)
    stage = Stage(an_operation(), stopped(None, later, then=failing(1)))
    stage.run()
    assert [ticket["promised"] for ticket in tickets(stage)] == [False, False, False]


def test_a_wait_for_the_circuit_ends_when_the_circuit_changed() -> None:
    stage = Stage(an_operation(), stopped(OPEN))
    stage.run_until_waiting()
    stage.now += timedelta(seconds=5)
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(stage.now)})
    assert stage.run_until_waiting()["status"] == "succeeded"
    assert stage.now == START + timedelta(seconds=5)


@pytest.mark.parametrize(
    "told", [{"at": to_rfc3339(START - timedelta(seconds=1))}, None, {}, {"at": "noon"}, "now", {"at": 5}]
)
def test_a_change_from_before_the_wait_or_of_another_form_changes_nothing(told: Any) -> None:
    stage = Stage(an_operation(), stopped(OPEN))
    stage.run_until_waiting()
    stage.raise_event(CIRCUIT_EVENT, told)
    assert stage.run_until_waiting()["status"] == "waiting_circuit"
    assert stage.made("attempt") == 1
    assert stage.run()["status"] == "succeeded"


def test_a_wait_for_a_retry_does_not_end_because_the_circuit_changed() -> None:
    stage = Stage(an_operation(), failing(1))
    stage.run_until_waiting()
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(START + timedelta(seconds=1))})
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    assert stage.made("attempt") == 1


def test_retry_now_asks_the_circuit_which_still_decides() -> None:
    stage = Stage(an_operation(), stopped(OPEN, OPEN))
    stage.run_until_waiting()
    stage.raise_event("retry_now", {"attempt": 1})
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_circuit", 0)
    assert shown["waits"][0]["times"] == 2


def test_a_wait_for_the_circuit_can_be_cancelled() -> None:
    stage = Stage(an_operation(), stopped(OPEN))
    stage.run_until_waiting()
    stage.raise_event("cancel", {})
    assert stage.run_until_waiting()["status"] == "cancelled"
