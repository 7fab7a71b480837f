"""What an operation does when a limit of its dependency holds it up, and when answers do not come."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, override

import pytest

from durable_retry.base.json_forms import from_rfc3339, to_ms, to_rfc3339
from durable_retry.base.names import SLOT_EVENT
from durable_retry.hub.turns import ENTITY_CALLS, MOST_ASKED
from durable_retry.rules.limits.fair import Place
from durable_retry.rules.limits.limiter import Limiter, acquire
from durable_retry.rules.limits.messages import SlotRequest
from durable_retry.rules.limits.settings import LimitSettings, NeedsSlot
from durable_retry.rules.retry.admission import WITHOUT_THE_LIMITER, AdmissionState
from durable_retry.rules.retry.policy import Timeouts
from tests.support.builders import NOON, Activities, an_operation, failing, outcome
from tests.support.stage import LATE, Stage, dying

ONE_AT_ONCE = LimitSettings(max_concurrency=1)
ONE_IN_TEN_SECONDS = LimitSettings(rate_per_second=0.1)


def limited(settings: LimitSettings, then: Activities) -> Activities:
    """Give what a worker without a share answers: an attempt goes with a slot only."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt":
            admission = AdmissionState.from_json(given["admission"])
            if admission.slot is None:
                return {"stopped": NeedsSlot(settings).to_json()}
        return then(name, given)

    return answer


def taken(settings: LimitSettings) -> Any:
    """Return a limiter's state after another operation took a slot."""
    request = SlotRequest("another:1", 5.0, settings, asked_at=NOON, due_at=NOON)
    return acquire(Limiter(), request, NOON)[0].to_json()


def test_an_attempt_takes_a_slot_and_gives_it_back() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    assert stage.run()["status"] == "succeeded"
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    assert stage.states["call_limiter"]["leases"] == {"texts": {}}
    assert stage.calls["call_limiter"][1][1]["lasted_seconds"] > 0


def test_every_attempt_takes_a_slot_of_its_own() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(2)))
    assert stage.run()["attempt_count"] == 3
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"] * 3
    asked = [given["lease_id"] for name, given in stage.calls["call_limiter"] if name == "acquire"]
    assert asked == [f"{stage.operation.run_id}:{number}" for number in (1, 2, 3)]


def test_a_slot_that_a_worker_failed_with_is_given_back() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, lambda _name, _given: OSError("gone")))
    stage.run_until_waiting()
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    assert "lasted_seconds" not in stage.calls["call_limiter"][1][1], "nobody knows"


def test_an_operation_waits_until_a_slot_is_free() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.states["call_limiter"] = taken(ONE_AT_ONCE)
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_retry", 0)
    (wait,) = shown["waits"]
    assert wait["kind"] == "limit"
    assert "1 attempt at once" in wait["delay_reasons"][0]
    done = stage.run()
    assert (done["status"], done["attempt_count"]) == ("succeeded", 1)
    assert stage.now >= NOON + timedelta(seconds=5)


class Halted(Stage):
    """An app that stands still for 18 seconds when its limiter has answered for the first time."""

    @override
    def operate(self, name: str, operation: str, input_: dict[str, Any]) -> Any:
        answer = super().operate(name, operation, input_)
        self.now += timedelta(seconds=18 * (len(self.calls["call_limiter"]) == 1))
        return answer


def test_a_turn_that_was_reserved_before_the_app_stood_still_is_over() -> None:
    stage = Halted(an_operation(), limited(ONE_IN_TEN_SECONDS, failing(0)))
    stage.run()
    assert stage.now == NOON + timedelta(seconds=18)
    _, given = stage.activities[-1]
    assert AdmissionState.from_json(given["admission"]).turn_at == NOON


def held_up() -> Stage:
    """Return an operation that waits for the only slot, which is free by now."""
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.states["call_limiter"] = taken(ONE_AT_ONCE)
    stage.run_until_waiting()
    stage.states["call_limiter"]["leases"] = {"texts": {}}
    stage.now += timedelta(seconds=0.5)
    return stage


def test_one_that_is_told_that_a_slot_is_free_asks_for_it_and_not_its_worker() -> None:
    stage = held_up()
    asked_before, place = stage.made("attempt"), stage.states["call_limiter"]["places"][0]
    assert place[-1] == "op-test", "the instance that is told"
    stage.raise_event(SLOT_EVENT, {"dependency": "payments"})
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=0.5), "before its timer"
    assert stage.made("attempt") == asked_before + 1
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "acquire", "give_back"]


@pytest.mark.parametrize("said", [None, {"dependency": 5}, {"dependency": "another"}])
def test_whatever_else_an_event_says_the_worker_is_asked(said: Any) -> None:
    stage = held_up()
    asked_before = stage.made("attempt")
    stage.raise_event(SLOT_EVENT, said)
    assert stage.run()["status"] == "succeeded"
    assert stage.made("attempt") == asked_before + 2


def test_whoever_gives_a_slot_back_tells_those_that_are_next() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    waiting = replace(Place(to_ms(NOON), "a", to_ms(NOON) + 60_000), waiter="op-next")
    stage.states["call_limiter"] = replace(Limiter(), places=(waiting,), line=("op-last",)).to_json()
    assert stage.run()["status"] == "succeeded"
    assert stage.sent == [(to, SLOT_EVENT, {"dependency": "payments"}) for to in ("op-next", "op-last")]
    assert "calls" not in stage.calls["call_limiter"][-1][1]


def test_an_attempt_asks_for_its_turn_shortly_before_and_comes_to_its_worker_then() -> None:
    stage = Stage(an_operation(), limited(ONE_IN_TEN_SECONDS, failing(0)))
    stage.states["call_limiter"] = taken(ONE_IN_TEN_SECONDS)
    shown = stage.run_until_waiting()
    assert from_rfc3339(shown["next_attempt_at"]) == NOON + timedelta(seconds=5), "it looks again soon"
    assert stage.run()["status"] == "succeeded"
    assert NOON + timedelta(seconds=9) <= stage.now <= NOON + timedelta(seconds=10)
    asked = [given["reserved"] for name, given in stage.calls["call_limiter"] if name == "acquire"]
    assert asked == [False, False, False, True]


@pytest.mark.parametrize("event", ["cancel", "pause"])
def test_who_is_cancelled_or_paused_gives_its_place_back(event: str) -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.states["call_limiter"] = taken(ONE_AT_ONCE)
    stage.run_until_waiting()
    assert len(stage.states["call_limiter"]["places"]) == 1
    stage.raise_event(event, {"by": "ann"})
    stage.run_until_waiting()
    assert stage.states["call_limiter"]["places"] == []
    (left,) = [given for name, given in stage.calls["call_limiter"] if name == "leave"]
    assert (left["lease_id"].endswith(":1"), left["is_gone"]) == (True, True)


def test_a_limiter_that_fails_does_not_stop_calls() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.states["call_limiter"] = {"clock": "nonsense"}
    assert stage.run()["status"] == "succeeded"


def test_a_limiter_whose_worker_dies_is_asked_again() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 2)
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=6)
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    (slot,) = [
        given["admission"]["slot"]
        for name, given in stage.activities
        if given.get("admission", {}).get("slot")
    ]
    assert slot["lease_id"] == f"{stage.operation.run_id}:1"


@pytest.mark.shows("P9", "W3")
def test_a_limiter_that_always_fails_does_not_hold_its_dependency_up_for_ever() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 99)
    document = stage.run()
    assert document["status"] == "succeeded"
    assert document["attempts"][0]["delay_reasons"] == [WITHOUT_THE_LIMITER]
    assert (stage.now, stage.entity_calls) == (NOON + timedelta(seconds=30), ENTITY_CALLS)


def test_a_limiter_that_fails_is_not_asked_again_beyond_the_last_useful_start() -> None:
    soon = an_operation(deadline_at=NOON + timedelta(seconds=9), timeouts=Timeouts(connect_seconds=2))
    stage = Stage(soon, limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 99)
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=6)


def silent() -> Stage:
    """Return an operation whose attempt was asked for, and has no answer."""
    others = failing(0)
    stage = Stage(
        an_operation(deadline_in=None), lambda name, given: LATE if name == "attempt" else others(name, given)
    )
    stage.run_until_waiting()
    return stage


def nudge(stage: Stage, minutes: float, asked_before: float | None = None) -> Any:
    """Nudge an operation after some minutes, as upkeep does; return what it shows."""
    stage.now = NOON + timedelta(minutes=minutes)
    before = NOON + timedelta(minutes=minutes if asked_before is None else asked_before)
    stage.raise_event("nudge", {"asked_before": to_rfc3339(before)})
    return stage.run_until_waiting()


@pytest.mark.shows("P29")
@pytest.mark.parametrize("first", [0, 1])
def test_what_is_asked_for_again_is_answered_by_whichever_answer_comes_first(first: int) -> None:
    stage = silent()
    shown = nudge(stage, 5)
    assert (shown["status"], stage.made("attempt")) == ("running", 2)
    stage.answer_task(stage.unanswered[first], outcome(1, result={}))
    document = stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 1)
    (wait,) = document["waits"]
    assert wait["kind"] == "own_failure"
    assert wait["delay_reasons"] == ["its answer was lost, so it was asked for again"]
    assert wait["until"] == to_rfc3339(NOON + timedelta(minutes=5))


def test_a_worker_that_dies_says_nothing_of_another_execution() -> None:
    stage = silent()
    nudge(stage, 5)
    stage.answer_task(stage.unanswered[1], RuntimeError("the worker died"))
    assert stage.run_until_waiting()["status"] == "running"
    stage.answer_task(stage.unanswered[0], outcome(1, result={}))
    assert stage.run()["status"] == "succeeded"


def test_when_the_workers_of_all_executions_died_the_attempt_has_failed_on_this_side() -> None:
    stage = silent()
    nudge(stage, 5)
    for task_id in stage.unanswered:
        stage.answer_task(task_id, RuntimeError("the worker died"))
    shown = stage.run_until_waiting()
    assert "the worker failed" in shown["waits"][-1]["delay_reasons"][0]


def test_a_nudge_for_an_earlier_question_asks_for_nothing() -> None:
    stage = silent()
    nudge(stage, 5)
    nudge(stage, 6, asked_before=4.9)
    assert stage.made("attempt") == 2


def test_an_attempt_is_asked_for_a_few_times_and_then_waits_as_for_any_failure_of_our_own() -> None:
    stage = silent()
    for minutes in range(5, 5 + MOST_ASKED):
        shown = nudge(stage, minutes)
    assert stage.made("attempt") == MOST_ASKED
    assert (shown["status"], shown["waits"][-1]["kind"]) == ("waiting_retry", "own_failure")
    assert "its answer was lost" in shown["waits"][-1]["delay_reasons"][0]


def test_an_attempt_that_was_asked_for_again_can_be_cancelled() -> None:
    stage = silent()
    nudge(stage, 5)
    stage.raise_event("cancel", {})
    assert stage.run()["status"] == "cancelled"


def test_a_cancel_waits_for_the_answer_of_an_attempt_that_nobody_misses() -> None:
    stage = silent()
    stage.raise_event("cancel", {})
    stage.run_until_waiting()
    assert not stage.ended
    stage.answer_task(stage.unanswered[0], outcome(1, result={}))
    assert stage.run()["status"] == "succeeded"
