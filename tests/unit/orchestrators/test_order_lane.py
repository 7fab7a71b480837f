from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import Category
from durable_retry.features.order.names import OrderOnFailure
from durable_retry.features.order.rules.lane import HeldTurn, Lane, LaneMessage
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.facts import WaitEnded
from orchestrators import run
from orchestrators.order_lane import pass_turn
from orchestrators.run import LAPS_PER_HISTORY
from tests.support.builders import NOON, after, an_operation, failing
from tests.support.feature_parts import in_order
from tests.support.stage import Stage, dying


def ordered(**changes: Any) -> Stage:
    """Return an operation of the order key `customer-7`, whose activity `look_at_lane` finds nothing."""
    answer = changes.pop("answer", failing(0))
    looking = lambda name, given: 0 if name == "look_at_lane" else answer(name, given)  # noqa: E731
    operation = an_operation(**{"parts": in_order("customer-7")} | changes)
    return Stage(operation, looking)


def message(operation_id: str = "op-front", run: int = 0, **more: Any) -> dict[str, Any]:
    given = LaneMessage(order_key="customer-7", operation_id=operation_id, accepted_at=after(-9), run=run)
    return given.to_json() | more


def behind_another(**changes: Any) -> Stage:
    """Return an operation whose lane has another one in front."""
    stage = ordered(**changes)
    stage.operate("order_lane", "join", message())
    stage.calls["order_lane"].clear()
    return stage


def said(stage: Stage) -> list[str]:
    return [operation for operation, _ in stage.calls["order_lane"]]


def test_a_free_lane_costs_one_awaited_call_and_a_turn() -> None:
    stage = ordered()
    assert stage.run()["status"] == "succeeded"
    assert (stage.turns, len(stage.activities), stage.entity_calls) == (3, 1, 1)
    assert said(stage) == ["take", "leave"]
    assert stage.states["order_lane"] is None


def test_an_operation_without_an_order_key_says_nothing_to_any_lane() -> None:
    stage = Stage(an_operation(), failing(0))
    stage.run()
    assert stage.calls["order_lane"] == []


def test_it_waits_for_its_turn_and_says_who_is_in_front() -> None:
    stage = behind_another()
    status = stage.run_until_waiting()
    assert status["status"] == "waiting_order"
    assert status["next_attempt_at"] is None
    (wait,) = status["waits"]
    assert (wait["kind"], wait["delay_reasons"]) == ("order", ["op-front is in front"])
    assert stage.activities == []
    stage.operate("order_lane", "leave", message(run=1))
    assert stage.run()["status"] == "succeeded"
    assert stage.now < after(30)
    assert said(stage) == ["take", "leave", "leave"]


def test_a_word_that_was_lost_is_made_up_for_when_it_asks_again() -> None:
    stage = behind_another().waiting()
    stage.operate("order_lane", "leave", message(run=1))
    stage.inbox.clear()
    assert stage.run()["status"] == "succeeded"
    assert stage.made("look_at_lane") == 1
    assert said(stage) == ["take", "leave", "take", "leave"]


def test_a_turn_for_an_earlier_run_is_not_taken_for_its_own() -> None:
    stage = behind_another().waiting()
    for stale in ({"run": 7}, {}, "turn", None):
        stage.raise_event("turn", stale)
    assert stage.run_until_waiting()["status"] == "waiting_order"
    assert stage.made("attempt") == 0


def test_it_asks_for_ever_with_a_history_of_bounded_length() -> None:
    stage = behind_another(deadline_in=None).waiting()
    while stage.executions < 3:
        stage._fire_next_timer()
        stage.run_until_waiting()
    assert stage.custom_status["waits"][0]["times"] > LAPS_PER_HISTORY
    assert stage.custom_status["status"] == "waiting_order"
    stage.operate("order_lane", "leave", message(run=1))
    assert stage.run()["status"] == "succeeded"
    assert said(stage)[-3:] == ["take", "leave", "leave"]


def test_one_that_was_begun_early_waits_for_its_start_no_more() -> None:
    stage = behind_another(start_at=after(86_400), deadline_in=None).waiting()
    stage.raise_event("retry_now", {"attempt": 1, "by": "ann"})
    while stage.executions < 2:
        assert stage.run_until_waiting()["status"] == "waiting_order"
        stage._fire_next_timer()
    assert stage.run_until_waiting()["status"] == "waiting_order"


def test_a_turn_is_kept_when_the_history_begins_anew() -> None:
    stage = ordered(
        answer=failing(30), policy=an_operation().policy.__class__(max_attempts=40, jitter="none")
    )
    assert stage.run()["status"] == "succeeded"
    assert stage.executions > 1
    assert said(stage) == ["take", "leave"]


def test_retry_now_asks_again_and_does_not_break_the_order() -> None:
    stage = behind_another().waiting()
    stage.raise_event("retry_now", {"attempt": 1, "by": "ann"})
    assert stage.run_until_waiting()["status"] == "waiting_order"
    assert said(stage) == ["take", "take"]
    assert stage.made("attempt") == 0


def test_it_can_be_cancelled_while_it_waits_and_leaves_its_place() -> None:
    stage = behind_another().waiting()
    assert stage.raise_event("cancel", {"by": "ann"}).run()["status"] == "cancelled"
    assert [place.operation_id for place in Lane.from_json(stage.states["order_lane"]).places()] == [
        "op-front"
    ]


def test_it_can_be_paused_while_it_waits_and_keeps_its_turn_until_it_goes_on() -> None:
    stage = behind_another().waiting()
    assert stage.raise_event("pause", {"by": "ann"}).run_until_waiting()["status"] == "paused"
    stage.operate("order_lane", "leave", message(run=1))
    assert stage.run_until_waiting()["status"] == "paused"
    stage.raise_event("resume", {"paused_at": "2026-11-21T12:00:00Z", "by": "ann"})
    assert stage.run()["status"] == "succeeded"


def test_its_deadline_ends_the_wait_as_a_dead_letter_that_keeps_its_place() -> None:
    stage = behind_another(deadline_in=45)
    document = stage.run()
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert "waited for its turn: op-front is in front" in document["dead_letter"]["detail"]
    assert (document["attempt_count"], stage.now) == (0, after(45))
    lane = Lane.from_json(stage.states["order_lane"])
    assert (len(lane), lane.dead_letters) == (2, {"op-test": "dl-1"})


def test_its_deadline_stops_while_everything_is_held() -> None:
    refused = Refused(
        base=after(3_600), waiting=0, until=after(3_600), reason="held", stops_deadline=True, frozen=True
    )
    held = HeldTurn(after(30), "held", refused=refused).to_json()

    def looking(name: str, given: dict[str, Any]) -> Any:
        if "held" not in given:
            return 0 if name == "look_at_lane" else failing(0)(name, given)
        return held if stage.now < after(3_600) else None

    stage = behind_another(deadline_in=45)
    stage.answer = looking
    document = stage.run()
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert [wait["kind"] for wait in document["waits"]] == ["order", "freeze", "order"]
    # It had 15 of its seconds left when everything was held.
    assert after(3_615) <= stage.now <= after(3_617)


@pytest.mark.parametrize(("since", "until", "ends_at"), [(10, 30, 65), (-60, 30, 75), (30, 30, 45)])
def test_it_has_the_time_of_a_hold_again_once_that_has_ended_before_its_deadline(
    since: float, until: float, ends_at: float
) -> None:
    """The time for which it waited, and only once."""
    held = HeldTurn(after(since), "held by ada", ended_at=after(until)).to_json()

    def looking(name: str, given: dict[str, Any]) -> Any:
        return held if "held" in given else 0 if name == "look_at_lane" else failing(0)(name, given)

    stage = behind_another(deadline_in=45)
    stage.answer = looking
    document = stage.run()
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert after(ends_at) <= stage.now <= after(ends_at + 2)
    assert [wait["kind"] for wait in document["waits"]] == (
        ["order"] if ends_at == 45 else ["order", "freeze", "order"]
    )


@pytest.mark.parametrize(("on_failure", "left"), [(OrderOnFailure.BLOCK, 1), (OrderOnFailure.SKIP, 0)])
def test_a_dead_letter_blocks_its_lane_unless_it_is_to_be_skipped(
    on_failure: OrderOnFailure, left: int
) -> None:
    stage = ordered(answer=failing(1, Category.MALFORMED, 422), parts=in_order("customer-7", on_failure))
    assert stage.run()["status"] == "dead_lettered"
    lane = (
        Lane(order_key="")
        if stage.states["order_lane"] is None
        else Lane.from_json(stage.states["order_lane"])
    )
    assert len(lane) == left
    assert lane.blocking == ("dl-1" if left else None)


def test_a_lane_whose_worker_dies_is_asked_again() -> None:
    stage = ordered()
    stage.dead_batches = dying("take", 3)
    assert stage.run()["status"] == "succeeded"


def test_nobody_goes_on_out_of_order_while_its_lane_does_not_answer() -> None:
    stage = ordered(deadline_in=600)
    stage.dead_batches = dying("take", 1_000)
    document = stage.run()
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert "its order lane does not answer" in document["dead_letter"]["detail"]
    assert stage.made("attempt") == 0


def test_a_look_that_fails_costs_nothing_but_time() -> None:
    stage = behind_another()
    stage.answer = lambda name, given: (
        RuntimeError("no") if name == "look_at_lane" else failing(0)(name, given)
    )
    stage.run_until_waiting()
    stage._fire_next_timer()
    assert stage.run_until_waiting()["waits"][0]["times"] == 2


def test_an_operation_that_begins_later_enters_its_lane_when_it_begins() -> None:
    stage = ordered(start_at=after(60)).waiting()
    assert said(stage) == []
    stage.run()
    assert (
        stage.calls["order_lane"][0][1]["accepted_at"]
        == LaneMessage(order_key="", operation_id="", accepted_at=after(60)).to_json()["accepted_at"]
    )


def test_the_time_in_order_is_no_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Any] = []
    monkeypatch.setattr(run, "report", facts.append)
    stage = behind_another().waiting()
    stage.now += timedelta(seconds=4)
    stage.operate("order_lane", "leave", message(run=1))
    assert [wait["kind"] for wait in stage.run()["waits"]] == ["order"]
    (ended,) = [fact for fact in facts if isinstance(fact, WaitEnded)]
    assert (ended.kind, ended.seconds, ended.late_seconds) == ("order", 4.0, None)


def behind_a_gap(*looks: Any) -> Stage:
    """Return an operation whose lane has not seen the one before it, and what looks for that find."""
    found = iter(looks)

    def answer(name: str, given: dict[str, Any]) -> Any:
        is_look = name == "look_at_lane" and given.get("unseen") == "op-front"
        return next(found) if is_look else failing(0)(name, given)

    return Stage(an_operation(parts=in_order("customer-7", number=2, after="op-front")), answer)


def test_who_misses_the_one_before_it_goes_on_when_a_look_finds_that_it_is_over() -> None:
    stage = behind_a_gap(None)
    assert stage.run()["status"] == "succeeded"
    assert said(stage) == ["take", "take", "leave"]
    assert "waits" not in stage.output
    assert stage.now == NOON


@pytest.mark.shows("W7")
def test_who_misses_the_one_before_it_lets_it_go_first() -> None:
    """The join of that one was lost, and its orchestration has not asked yet."""
    stage = behind_a_gap(message(number=1)).waiting()
    assert said(stage) == ["take", "join", "take"]
    assert stage.operate("order_lane", "take", message(run=1, number=1))["has_turn"]
    stage.operate("order_lane", "leave", message(run=1, number=1))
    document = stage.run()
    assert document["waits"][0]["delay_reasons"] == ["op-front is in front"]
    assert document["status"] == "succeeded"


def test_nobody_goes_on_before_a_look_has_found_what_became_of_the_one_before_it() -> None:
    stage = behind_a_gap(RuntimeError("no"), None)
    document = stage.run()
    assert document["status"] == "succeeded"
    (wait,) = document["waits"]
    assert wait["delay_reasons"] == ["op-front, which was accepted before it, has not come to its order lane"]
    assert stage.now == NOON + timedelta(seconds=5)


def test_an_operation_is_told_of_its_turn() -> None:
    stage = Stage(
        an_operation(), failing(0), lambda ctx, _: pass_turn(ctx, {"operation_id": "op-b", "run": 3})
    )
    stage.turn()
    assert stage.sent == [("op-b", "turn", {"run": 3})]
    assert stage.now == NOON
