from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import CIRCUIT_EVENT, GONE, SLOT_EVENT, Category
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.retry.admission import WITHOUT_THE_CIRCUIT, AdmissionState
from durable_retry.rules.retry.loop import Blocked, NeedsProbe
from durable_retry.rules.retry.slots import NeedsSlot
from tests.support.builders import NOON, Activities, an_operation, an_outcome, failing
from tests.support.circuit import tripped
from tests.support.stage import Stage, dying

BREAK_OVER = NOON + timedelta(seconds=30)
OPEN = Refused(base=BREAK_OVER, waiting=40, until=BREAK_OVER, reason="the circuit is open: 9 of 10 failed")
PAUSED = replace(OPEN, reason="the dependency asked for a pause", throttled=True)
PROBE = NeedsProbe(CircuitSettings())


def blocked(*by: Blocked | None, then: Activities | None = None) -> Activities:
    """Give what the activities answer when attempts are blocked in this order; None lets one through."""
    left = list(by)
    go_on = then or failing(0)

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt" and left and (blocking := left.pop(0)) is not None:
            return {"stopped": blocking.to_json()}
        return go_on(name, given)

    return answer


def admissions(stage: Stage) -> list[dict[str, Any]]:
    return [given["admission"] for name, given in stage.activities if name == "attempt"]


def state_of(breaker: Breaker) -> dict[str, Any]:
    return breaker.to_json()


def held_open(reason: str) -> dict[str, Any]:
    action = ManualAction(ManualControl.OPEN, NOON, "ada", reason, for_seconds=60)
    return state_of(action.apply(Breaker(), NOON))


def test_a_healthy_operation_never_asks_the_circuit_itself() -> None:
    stage = Stage(an_operation(), failing(0))
    assert stage.run()["status"] == "succeeded"
    assert (stage.turns, stage.made("attempt"), stage.entity_calls, stage.calls["circuit_breaker"]) == (
        2,
        1,
        0,
        [],
    )


def test_a_refused_operation_waits_for_its_place_without_counting_an_attempt() -> None:
    stage = Stage(an_operation(), blocked(OPEN))
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"], shown["attempts"]) == ("waiting_circuit", 0, [])
    at = from_rfc3339(shown["next_attempt_at"])
    assert BREAK_OVER <= at <= BREAK_OVER + timedelta(seconds=1)
    (wait,) = shown["waits"]
    assert (wait["kind"], wait["before_attempt"], wait["until"]) == ("circuit", 1, shown["next_attempt_at"])
    assert wait["delay_reasons"][:2] == [OPEN.reason, "circuit lets attempts through at 2026-11-21T12:00:30Z"]

    done = stage.run()
    assert (done["status"], done["attempt_count"]) == ("succeeded", 1)
    assert done["waits"] == [wait]
    assert [state["waiting"] for state in admissions(stage)] == [False, True]


def test_after_an_attempt_the_next_wait_is_a_new_one() -> None:
    stage = Stage(an_operation(), blocked(OPEN, None, OPEN, then=failing(1)))
    assert stage.run()["attempt_count"] == 2
    assert [state["waiting"] for state in admissions(stage)] == [False, True, False, True]


def test_a_break_beyond_the_deadline_is_not_waited_for() -> None:
    operation = an_operation(deadline_at=NOON + timedelta(seconds=20))
    ended = Stage(operation, blocked(OPEN)).run()
    assert ended["dead_letter"]["reason"] == "DeadlineExceeded"
    assert ended["attempt_count"] == 0


HELD: Final = replace(OPEN, stops_deadline=True)
"""The dependency is paused until `BREAK_OVER`, and deadlines stop."""


def test_a_pause_of_the_dependency_that_stops_deadlines_is_waited_for() -> None:
    operation = an_operation(deadline_at=NOON + timedelta(seconds=20))
    waited = BREAK_OVER - NOON
    ended = Stage(operation, blocked(HELD)).run()
    assert ended["status"] == "succeeded"
    assert ended["deadline_at"] == to_rfc3339(NOON + timedelta(seconds=20) + waited)


def test_the_time_for_which_operation_and_dependency_are_paused_counts_once() -> None:
    stage = Stage(an_operation(deadline_at=NOON + timedelta(seconds=20)), blocked(HELD)).waiting()
    ended = stage.raise_event("pause", {"by": "ada", "for_seconds": 5, "stops_deadline": True}).run()
    assert ended["status"] == "succeeded"
    assert ended["deadline_at"] == to_rfc3339(NOON + timedelta(seconds=20) + (BREAK_OVER - NOON))


def test_a_probe_goes_with_the_circuits_own_permit() -> None:
    stage = Stage(an_operation(), blocked(PROBE))
    assert stage.run()["status"] == "succeeded"
    ((operation, message),) = stage.calls["circuit_breaker"]
    assert operation == "permit"
    assert message["request"]["operation_id"] == "op-test"
    assert ["permit" in state for state in admissions(stage)] == [False, True]
    assert admissions(stage)[1]["permit"]["kind"] == "permitted"


def test_a_probe_of_a_limit_keys_circuit_is_asked_of_that_keys_entity() -> None:
    stage = Stage(an_operation(limit_key="customer-17"), blocked(replace(PROBE, limit_key="customer-17")))
    assert stage.run()["status"] == "succeeded"
    called = [each.entityOperationCalled for each in stage.past if each.HasField("entityOperationCalled")]
    own = str(circuit_id("payments", "customer-17"))
    assert [each.targetInstanceId.value for each in called if each.operation == "permit"] == [own]


def test_the_circuit_itself_may_refuse() -> None:
    stage = Stage(an_operation(), blocked(PROBE))
    stage.states["circuit_breaker"] = held_open("maintenance")
    shown = stage.run_until_waiting()
    assert shown["status"] == "waiting_circuit"
    assert shown["waits"][0]["delay_reasons"][0] == "the circuit is held open: maintenance"
    assert stage.made("attempt") == 1


def test_a_circuit_that_fails_lets_the_attempt_go() -> None:
    stage = Stage(an_operation(), blocked(PROBE))
    stage.states["circuit_breaker"] = state_of(Breaker()) | {"version": 99}
    assert stage.run()["status"] == "succeeded"
    assert admissions(stage)[1]["permit"]["epoch"] == 0


def test_a_lease_that_expired_on_the_way_is_asked_for_again_a_little_later() -> None:
    stage = Stage(an_operation(), blocked(PROBE, PROBE))
    assert stage.run_until_waiting()["status"] == "waiting_circuit"
    assert stage.run()["status"] == "succeeded"
    assert stage.made("attempt") == 3


def test_a_retry_that_the_budget_postponed_goes_in_its_turn_unasked() -> None:
    turn = NOON + timedelta(seconds=25)
    stage = Stage(an_operation(), blocked(None, BudgetPostponed(turn, reserved=True), then=failing(1)))
    stage.run_until_waiting()
    done = stage.run()
    assert done["status"] == "succeeded"
    (wait,) = done["waits"]
    assert (wait["kind"], wait["before_attempt"], wait["until"]) == ("retry_budget", 2, to_rfc3339(turn))
    assert [state.get("promised_at") for state in admissions(stage)] == [None, None, to_rfc3339(turn)]
    assert done["attempt_count"] == 2


def test_the_worker_hears_of_a_promise_after_refusals_and_in_a_new_history() -> None:
    later = BudgetPostponed(NOON + timedelta(seconds=25), reserved=True)
    again = [Refused(NOON, 0, NOON, "half-open")] * 30
    stage = Stage(an_operation(), blocked(None, later, *again, then=failing(1)))
    done = stage.run()
    assert stage.executions > 1
    assert all("promised_at" in state for state in admissions(stage)[2:])
    assert all(state["waiting"] for state in admissions(stage)[3:])
    assert [(wait["kind"], wait["times"]) for wait in done["waits"]] == [("retry_budget", 1), ("circuit", 30)]


def test_who_asks_again_unpromised_is_not_promised() -> None:
    later = BudgetPostponed(NOON + timedelta(seconds=25), reserved=False)
    stage = Stage(an_operation(), blocked(None, later, then=failing(1)))
    stage.run()
    assert not any("promised_at" in state for state in admissions(stage))


def test_a_promised_retry_that_somebody_sends_now_goes_at_its_instant_all_the_same() -> None:
    turn = NOON + timedelta(seconds=25)
    stage = Stage(an_operation(), blocked(None, BudgetPostponed(turn, reserved=True), then=failing(1)))
    stage.run_until_attempt(2)
    stage.run_until_waiting()
    assert stage.raise_event("retry_now", {"by": "ann", "attempt": 2}).run()["status"] == "succeeded"
    assert stage.now >= turn


@pytest.mark.parametrize("event", ["cancel", "pause"])
@pytest.mark.parametrize("key", [None, "customer-17"])
def test_who_leaves_gives_its_token_back(event: str, key: str | None) -> None:
    later = BudgetPostponed(NOON + timedelta(seconds=25), reserved=True, limit_key=key)
    stage = Stage(an_operation(), blocked(None, later, then=failing(1)))
    stage.run_until_attempt(2)
    stage.run_until_waiting()
    stage.raise_event(event, {"by": "ann"}).run_until_waiting()
    assert stage.calls["circuit_breaker"] == [(GONE, {"was_waiting": False, "was_promised": True})]
    told = [each.entityOperationSignaled.targetInstanceId.value for each in stage.past]
    assert str(circuit_id("payments", key)) in told


@pytest.mark.parametrize("event", ["cancel", "pause"])
def test_a_probe_that_leaves_while_it_waits_for_a_slot_gives_its_permit_back(event: str) -> None:
    """Else nobody else could probe, and the circuit of the key would stay as it is, until its lease ends."""
    limits = {"max_concurrency": 1}
    stage = Stage(an_operation(), blocked(NeedsProbe(CircuitSettings(), "customer-17"), NeedsSlot(limits)))
    stage.states["circuit_breaker"] = state_of(tripped().breaker)
    stage.now += timedelta(seconds=30)
    stage.lend("another", limits)
    stage.run_until_waiting()
    assert len(stage.states["circuit_breaker"]["leases"]) == 1
    stage.raise_event(event, {"by": "ann"}).run_until_waiting()
    assert stage.states["circuit_breaker"]["leases"] == []
    told = [each.entityOperationSignaled.targetInstanceId.value for each in stage.past]
    assert str(circuit_id("payments", "customer-17")) in told


@pytest.mark.parametrize(("event", "is_told"), [("cancel", True), ("pause", False)])
def test_who_will_never_come_counts_as_waiting_no_more(event: str, *, is_told: bool) -> None:
    stage = Stage(an_operation(), blocked(OPEN)).waiting()
    stage.raise_event(event, {"by": "ann"}).run_until_waiting()
    gone = [(GONE, {"was_waiting": True, "was_promised": False})]
    assert stage.calls["circuit_breaker"] == (gone if is_told else [])


def test_a_wait_for_the_circuit_ends_when_the_circuit_changed() -> None:
    stage = Stage(an_operation(), blocked(OPEN)).waiting()
    stage.now += timedelta(seconds=5)
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(stage.now)})
    assert stage.run_until_waiting()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=5)


@pytest.mark.parametrize(
    "message", [{"at": to_rfc3339(NOON - timedelta(seconds=1))}, None, {}, {"at": "noon"}, "now", {"at": 5}]
)
def test_a_change_from_before_the_wait_or_of_another_form_changes_nothing(message: Any) -> None:
    stage = Stage(an_operation(), blocked(OPEN)).waiting()
    assert stage.raise_event(CIRCUIT_EVENT, message).run_until_waiting()["status"] == "waiting_circuit"
    assert stage.made("attempt") == 1
    assert stage.run()["status"] == "succeeded"


def test_who_a_throttling_pause_holds_waits_for_that_and_for_no_circuit() -> None:
    stage = Stage(an_operation(), blocked(PAUSED))
    shown = stage.run_until_waiting()
    (wait,) = shown["waits"]
    assert (shown["status"], shown["attempt_count"], wait["kind"]) == ("waiting_throttle", 0, "throttle")
    assert wait["delay_reasons"][:2] == [PAUSED.reason, "the pause ends at 2026-11-21T12:00:30Z"]
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(NOON)})
    assert stage.run_until_waiting()["status"] == "succeeded"


def test_whose_own_attempt_was_throttled_waits_for_the_pause_too() -> None:
    stage = Stage(an_operation(), failing(1, Category.THROTTLED, 429))
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_throttle", 1)
    # The attempt says how long and why.
    assert "waits" not in shown
    # It is told no earlier because somebody resets the circuit, which ends the pause for the others.
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(NOON + timedelta(seconds=1))})
    assert stage.run_until_waiting()["status"] == "waiting_throttle"
    assert stage.made("attempt") == 1
    assert stage.run()["status"] == "succeeded"


def test_who_is_held_up_after_its_own_pause_goes_on_when_the_circuit_changes() -> None:
    stage = Stage(an_operation(), blocked(None, PAUSED, then=failing(1, Category.THROTTLED, 429)))
    assert stage.run_until_attempt(2)["status"] == "waiting_throttle"
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(stage.now)})
    assert stage.run_until_waiting()["status"] == "succeeded"


def test_a_wait_for_a_retry_does_not_end_because_the_circuit_changed() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    stage.raise_event(CIRCUIT_EVENT, {"at": to_rfc3339(NOON + timedelta(seconds=1))})
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    assert stage.made("attempt") == 1


def test_retry_now_asks_the_circuit_which_still_decides() -> None:
    stage = Stage(an_operation(), blocked(OPEN, OPEN)).waiting()
    shown = stage.raise_event("retry_now", {"attempt": 1}).run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_circuit", 0)
    assert shown["waits"][0]["times"] == 2


PAST: Final = "sent past the circuit, which does not count it and stays as it is"


def tried(stage: Stage, attempt: int = 1) -> dict[str, Any]:
    stage.run_until_waiting()
    stage.raise_event("try", {"attempt": attempt, "by": "ada", "reason": "it is back"})
    shown: dict[str, Any] = stage.run_until_waiting()
    return shown


def test_one_attempt_is_let_past_the_circuit_and_says_that_it_was() -> None:
    stage = Stage(an_operation(), blocked(OPEN))
    shown = tried(stage)
    assert [each.get("is_canary") for each in admissions(stage)] == [None, True]
    assert (shown["status"], shown["attempts"][0]["delay_reasons"], stage.now) == ("succeeded", [PAST], NOON)
    (act,) = shown["actions"]
    assert (act["action"], act["by"], act["reason"]) == ("try", "ada", "it is back")
    assert [operation for operation, _ in stage.calls["circuit_breaker"]] == ["gone"], "it waits no more"


def test_after_one_that_failed_the_circuit_decides_again_and_still_counts_who_waits() -> None:
    stage = Stage(an_operation(), blocked(OPEN, None, OPEN, then=failing(9)))
    failed = tried(stage)
    assert (failed["status"], failed["attempts"][0]["delay_reasons"][0]) == ("waiting_retry", PAST)
    held = stage.raise_event("retry_now", {"attempt": 2}).run_until_waiting()
    assert (held["status"], held["attempt_count"]) == ("waiting_circuit", 1)
    assert (admissions(stage)[2]["waiting"], "is_canary" in admissions(stage)[2]) == (True, False)


def test_a_try_for_an_earlier_attempt_lets_nothing_through() -> None:
    stage = Stage(an_operation(), blocked(OPEN))
    assert tried(stage, attempt=2)["status"] == "waiting_circuit"
    assert stage.made("attempt") == 1


def test_a_wait_for_the_circuit_can_be_cancelled() -> None:
    stage = Stage(an_operation(), blocked(OPEN)).waiting()
    assert stage.raise_event("cancel", {}).run_until_waiting()["status"] == "cancelled"


def test_a_circuit_whose_worker_dies_is_asked_again() -> None:
    stage = Stage(an_operation(), blocked(PROBE))
    stage.dead_batches = dying("permit", 2)
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=6)
    assert [name for name, _ in stage.calls["circuit_breaker"]] == ["permit"]


def test_a_circuit_that_always_fails_does_not_take_its_dependency_down() -> None:
    stage = Stage(an_operation(), blocked(PROBE))
    stage.dead_batches = dying("permit", 99)
    document = stage.run()
    assert document["status"] == "succeeded"
    assert document["attempts"][0]["delay_reasons"] == [WITHOUT_THE_CIRCUIT]
    assert stage.now == NOON + timedelta(seconds=30)
    assert (stage.calls["circuit_breaker"], admissions(stage)[-1]["permit"]["kind"]) == ([], "permitted")


def at_step(*by: Blocked, dependency: str = "warehouse") -> Activities:
    """Give what the activities answer when a step at another dependency is blocked in this order."""
    answers = blocked(*by)

    def answer(name: str, given: dict[str, Any]) -> Any:
        answered = answers(name, given)
        return answered | {"step_at": dependency} if "stopped" in answered else answered

    return answer


def test_a_step_that_another_dependency_refuses_makes_the_operation_wait_for_that_circuit() -> None:
    stage = Stage(an_operation(handler="ship", request=None), at_step(OPEN))
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_circuit", 0)
    assert (shown["dependency"], shown["waits_for"]) == ("payments", "warehouse")
    assert stage.run()["attempt_count"] == 1
    steps = [given.get("step") for name, given in stage.activities if name == "attempt"]
    assert [step and (step["dependency"], step["admission"]["waiting"]) for step in steps] == [
        None,
        ("warehouse", True),
    ]


def test_a_step_that_another_dependency_refuses_is_let_past_that_circuit() -> None:
    stage = Stage(an_operation(handler="ship", request=None), at_step(OPEN))
    shown = tried(stage)
    assert (shown["status"], shown["attempts"][0]["delay_reasons"]) == ("succeeded", [PAST])
    last = [given for name, given in stage.activities if name == "attempt"][-1]
    assert ("is_canary" in last["admission"], last["step"]["admission"]["is_canary"]) == (False, True)


def test_a_step_probes_and_takes_a_slot_at_its_own_dependency() -> None:
    slot = NeedsSlot({"max_concurrency": 1})
    stage = Stage(an_operation(handler="ship", request=None), at_step(PROBE, slot))
    assert stage.run()["status"] == "succeeded"
    steps = [given["step"] for name, given in stage.activities if name == "attempt" and "step" in given]
    assert steps[0]["admission"]["permit"]["kind"] == "permitted"
    assert steps[1]["admission"]["slot"] is not None
    assert [operation for operation, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    assert not any("permit" in state for state in admissions(stage))


def test_the_slot_of_a_step_is_kept_while_the_operations_own_dependency_holds_it_up() -> None:
    slot = NeedsSlot({"max_concurrency": 1})
    answers, own = at_step(slot), iter([False, True, False])

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt" and next(own):
            return {"stopped": slot.to_json()}
        return answers(name, given)

    stage = Stage(an_operation(handler="ship", request=None), answer)
    assert stage.run()["status"] == "succeeded"
    last = [given for name, given in stage.activities if name == "attempt"][-1]
    assert None not in (last["admission"]["slot"], last["step"]["admission"]["slot"])


def test_a_step_that_is_told_of_a_free_slot_asks_for_it_and_its_handler_runs_once_more() -> None:
    slot = NeedsSlot({"max_concurrency": 1})
    stage = Stage(an_operation(handler="ship", request=None), at_step(slot))
    stage.lend("another", {"max_concurrency": 1})
    stage.run_until_waiting()
    stage.states["call_limiter"]["leases"] = {"texts": {}}
    stage.now += timedelta(seconds=0.5)
    assert stage.raise_event(SLOT_EVENT, {"dependency": "warehouse"}).run()["status"] == "succeeded"
    assert (stage.now, stage.made("attempt")) == (NOON + timedelta(seconds=0.5), 2)


def test_a_turn_counts_from_the_call_that_was_answered() -> None:
    """Two workers of the limiter die, so the call is made a third time six seconds later."""
    rate, called_at = {"rate_per_second": 1.0}, NOON + timedelta(seconds=6)
    stage = Stage(an_operation(), blocked(NeedsSlot(rate)))
    stage.dead_batches = dying("acquire", 2)

    def start_another(playing: Stage) -> None:
        if playing.now == called_at:
            playing.lend("another", rate)

    stage.before_turn = start_another
    assert stage.run()["status"] == "succeeded"
    admission = AdmissionState.from_json(stage.activities[-1][1]["admission"])
    assert admission.turn_at == called_at + timedelta(seconds=1)


def test_an_operation_that_was_started_with_a_needed_slot_has_it_before_its_first_attempt() -> None:
    """An attempt that could only say that it needs one costs a turn and an activity."""
    stage = Stage(an_operation(), failing(1), needed_slot=NeedsSlot({"max_concurrency": 1}))
    assert stage.run()["status"] == "succeeded"
    assert [bool(admission.get("slot")) for admission in admissions(stage)] == [True, False]
    assert [operation for operation, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]


def test_a_slot_that_a_worker_gave_back_as_its_attempt_began_is_not_given_back_again() -> None:
    """Those whom it calls would be told twice, and ask in vain."""
    outcome = an_outcome(None, result={"status_code": 200}, gave_slot_back=True).to_json()
    stage = Stage(an_operation(), lambda *_: outcome, needed_slot=NeedsSlot({"max_concurrency": 1}))
    assert stage.run()["status"] == "succeeded"
    assert [operation for operation, _ in stage.calls["call_limiter"]] == ["acquire"]


def test_an_operation_that_was_started_with_a_needed_slot_waits_for_it_without_an_attempt() -> None:
    limits = {"max_concurrency": 1}
    stage = Stage(an_operation(), failing(0), needed_slot=NeedsSlot(limits))
    stage.lend("another", limits)
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    assert (stage.turns, stage.activities) == (2, [])
    stage.states["call_limiter"]["leases"] = {"texts": {}}
    stage.raise_event(SLOT_EVENT, {"dependency": "payments"})
    assert (stage.run()["status"], stage.made("attempt")) == ("succeeded", 1)
