from dataclasses import replace
from datetime import timedelta
from typing import Any, override

import pytest

from durable_retry.base.json_forms import from_rfc3339, to_ms
from durable_retry.base.names import SLOT_EVENT
from durable_retry.features.limits.rules.fair import Place
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.hub.turns import ENTITY_CALLS
from durable_retry.rules.retry.admission import WITHOUT_THE_LIMITER, AdmissionState
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.rules.retry.slots import NeedsSlot
from orchestrators.run import LAPS_PER_HISTORY
from tests.support.builders import NOON, Activities, an_operation, failing
from tests.support.stage import Stage, dying

ONE_AT_ONCE = LimitSettings(max_concurrency=1)
ONE_IN_TEN_SECONDS = LimitSettings(rate_per_second=0.1)


def limited(settings: LimitSettings, then: Activities) -> Activities:
    """Give what a worker without a share answers: an attempt goes with a slot only."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt":
            admission = AdmissionState.from_json(given["admission"])
            if admission.slot is None:
                return {"stopped": NeedsSlot(settings.to_json()).to_json()}
        return then(name, given)

    return answer


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
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, lambda _name, _given: OSError("gone"))).waiting()
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    assert "lasted_seconds" not in stage.calls["call_limiter"][1][1], "nobody knows"


def test_an_operation_waits_until_a_slot_is_free() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.lend("another", ONE_AT_ONCE.to_json())
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
    stage.lend("another", ONE_AT_ONCE.to_json())
    stage.run_until_waiting()
    stage.states["call_limiter"]["leases"] = {"texts": {}}
    stage.now += timedelta(seconds=0.5)
    return stage


def test_one_that_is_told_that_a_slot_is_free_asks_for_it_and_not_its_worker() -> None:
    stage = held_up()
    asked_before, place = stage.made("attempt"), stage.states["call_limiter"]["places"][0]
    assert place[-1] == "op-test", "the instance that is told"
    assert stage.raise_event(SLOT_EVENT, {"dependency": "payments"}).run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=0.5), "before its timer"
    assert stage.made("attempt") == asked_before + 1
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "acquire", "give_back"]


def test_one_that_is_told_brings_the_slot_whose_give_back_was_lost() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    lent = stage.lend("another", ONE_AT_ONCE.to_json())
    stage.run_until_waiting()
    stage.now += timedelta(seconds=0.5)
    stage.raise_event(SLOT_EVENT, {"dependency": "payments", "freed": lent})
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=0.5)


def test_one_that_is_told_as_its_history_ends_brings_the_slot_with_the_next_one() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.lend("another", ONE_AT_ONCE.to_json())
    stage.run_until_waiting()
    for number in range(LAPS_PER_HISTORY):
        stage.now += timedelta(seconds=0.5)
        told = {"dependency": "payments", "freed": {"number": number}}
        stage.raise_event(SLOT_EVENT, told).run_until_waiting()
    asked = [given.get("freed") for name, given in stage.calls["call_limiter"] if name == "acquire"]
    assert asked == [None, *({"number": number} for number in range(LAPS_PER_HISTORY))]


@pytest.mark.parametrize("said", [None, {"dependency": 5}, {"dependency": "another"}])
def test_whatever_else_an_event_says_the_worker_is_asked(said: Any) -> None:
    stage = held_up()
    asked_before = stage.made("attempt")
    assert stage.raise_event(SLOT_EVENT, said).run()["status"] == "succeeded"
    assert stage.made("attempt") == asked_before + 2


def test_whoever_gives_a_slot_back_tells_those_that_are_next() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    waiting = replace(Place(to_ms(NOON), "a", to_ms(NOON) + 60_000), waiter="op-next")
    stage.states["call_limiter"] = replace(Limiter(), places=(waiting,)).to_json()
    assert stage.run()["status"] == "succeeded"
    _, freed = stage.calls["call_limiter"][-1]
    assert stage.sent == [("op-next", SLOT_EVENT, {"dependency": "payments", "freed": freed})]
    assert "calls" not in freed


def test_an_attempt_asks_for_its_turn_shortly_before_and_comes_to_its_worker_then() -> None:
    stage = Stage(an_operation(), limited(ONE_IN_TEN_SECONDS, failing(0)))
    stage.lend("another", ONE_IN_TEN_SECONDS.to_json())
    shown = stage.run_until_waiting()
    assert from_rfc3339(shown["next_attempt_at"]) == NOON + timedelta(seconds=5), "it looks again soon"
    assert stage.run()["status"] == "succeeded"
    assert NOON + timedelta(seconds=9) <= stage.now <= NOON + timedelta(seconds=10)
    asked = [given["reserved"] for name, given in stage.calls["call_limiter"] if name == "acquire"]
    assert asked == [False, False, False, True]


@pytest.mark.parametrize("event", ["cancel", "pause"])
def test_who_is_cancelled_or_paused_gives_its_place_back(event: str) -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.lend("another", ONE_AT_ONCE.to_json())
    stage.run_until_waiting()
    assert len(stage.states["call_limiter"]["places"]) == 1
    stage.raise_event(event, {"by": "ann"}).run_until_waiting()
    assert stage.states["call_limiter"]["places"] == []
    (left,) = [given for name, given in stage.calls["call_limiter"] if name == "leave"]
    assert (left["lease_id"].endswith(":1"), left["is_gone"]) == (True, True)


def test_one_that_was_paused_asks_at_once_when_it_is_resumed_as_nobody_tells_it_of_a_slot() -> None:
    stage = held_up()
    paused_at = stage.raise_event("pause", {"by": "ann"}).run_until_waiting()["updated_at"]
    stage.now += timedelta(seconds=0.5)
    stage.raise_event("resume", {"paused_at": paused_at, "by": "ann"})
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=1)


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


@pytest.mark.parametrize(
    ("deadline_seconds", "goes_on_after", "calls"),
    [(2.5, 2, ["acquire", "give_back"]), (2.0, 2, ["acquire", "give_back"]), (1.9, 0, [])],
)
def test_one_death_near_the_deadline_lets_no_attempt_go_without_a_slot_that_has_time_to_ask_again(
    deadline_seconds: float, goes_on_after: float, calls: list[str]
) -> None:
    """A death takes the answers of all whose deadlines are near, and all of them would go at once."""
    soon = an_operation(
        deadline_at=NOON + timedelta(seconds=deadline_seconds), timeouts=Timeouts(connect_seconds=1)
    )
    stage = Stage(soon, limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 1)
    document = stage.run()
    assert (document["status"], stage.now) == ("succeeded", NOON + timedelta(seconds=goes_on_after))
    assert [name for name, _ in stage.calls["call_limiter"]] == calls
