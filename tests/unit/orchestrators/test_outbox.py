from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import Category, EventState
from durable_retry.features.outbox.rules.outbox import StoredEvent, event_id_for
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.retry.loop import NeedsProbe
from durable_retry.rules.retry.slots import NeedsSlot
from orchestrators.outbox import outbox
from tests.support.builders import NOON, PAYMENTS, after, outcome
from tests.support.cuts import PartStage


def an_event(number: int, **target: Any) -> StoredEvent:
    return StoredEvent(
        event_id=event_id_for("op-1", number),
        event={"type": "t", "data": None, **target},
        state=EventState.PENDING,
        created_at=NOON,
        pending_since=NOON,
    )


class World:
    """Events that are pending, and what each attempt to send one gives."""

    def __init__(self, *events: StoredEvent) -> None:
        self.pending = {event.event_id: event for event in events}
        self.attempts: list[tuple[str, int]] = []
        self.admissions: list[dict[str, Any]] = []
        self.given_up: dict[str, str] = {}
        self.answers: dict[str, list[Any]] = {}

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name == "outbox_pending":
            deliveries = [
                event.to_delivery(PAYMENTS if "dependency" in event.event else None)
                for event in self.pending.values()
            ]
            return {"place": {}, "deliveries": [delivery.to_json() for delivery in deliveries]}
        event_id = given["delivery"]["operation"]["operation_id"]
        if name == "outbox_give_up":
            self.given_up[event_id] = given["detail"]
            self.pending.pop(event_id)
            return "dl-1"
        answer = self.attempt(event_id, given)
        return {"event_id": event_id} | answer if isinstance(answer, dict) else answer

    def attempt(self, event_id: str, given: dict[str, Any]) -> Any:
        self.attempts.append((event_id.rpartition(".")[2], given["attempt"]))
        self.admissions.append(given["delivery"]["state"]["admission"])
        answers = self.answers.get(event_id, [])
        answer = answers.pop(0) if answers else outcome(given["attempt"])
        if isinstance(answer, dict) and not {"category", "stopped"} & answer.keys():
            self.pending.pop(event_id)
        return answer


def played(world: World) -> PartStage:
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    stage.run()
    return stage


def test_what_was_tried_and_when_next_is_shown_of_the_head_of_each_lane() -> None:
    world = World(an_event(1, dependency="payments", path="/"), an_event(2, dependency="payments", path="/"))
    world.answers[event_id_for("op-1", 1)] = [failing(1)]
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    shown = stage.run_until_waiting()["deliveries"]
    (event_id,) = shown
    assert event_id == event_id_for("op-1", 1)
    assert (shown[event_id]["attempt_count"], shown[event_id]["attempts"][0]["status_code"]) == (1, 503)
    assert shown[event_id]["next_attempt_at"] > NOON.isoformat()


def failing(attempt: int, category: Category = Category.TRANSIENT) -> dict[str, Any]:
    return outcome(attempt, category=category, status_code=503, error="no")


def test_events_of_one_destination_are_sent_one_after_the_other() -> None:
    world = World(*(an_event(number, queue="a") for number in (1, 2, 3)))
    world.answers["op-1.1"] = [failing(1)]
    played(world)
    assert world.attempts == [("1", 1), ("1", 2), ("2", 1), ("3", 1)]


def test_no_event_goes_early_where_timers_fire_early() -> None:
    world = World(an_event(1, queue="a"))
    world.answers["op-1.1"] = [{"stopped": BudgetPostponed(after(1.7), reserved=True).to_json()}]
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    stage.whole_seconds = True
    stage.run()
    assert stage.now >= after(1.7)
    assert stage.turns < 10


@pytest.mark.parametrize(("stops", "attempts"), [(None, 1), (True, 3)])
def test_a_paused_dependency_may_stop_the_deadline_of_an_event(*, stops: bool | None, attempts: int) -> None:
    until = after(2 * PAYMENTS.timeouts.deadline_seconds)
    held = Refused(base=until, waiting=0, until=until, reason="it is held open", stops_deadline=stops)
    world = World(an_event(1, dependency="payments", path="/"))
    world.answers["op-1.1"] = [{"stopped": held.to_json()}, failing(1)]
    played(world)
    assert len(world.attempts) == attempts
    assert ("op-1.1" in world.given_up) is (stops is None)


def test_a_clock_ahead_of_the_workers_does_not_make_it_ask_without_a_wait() -> None:
    world = World(an_event(1, queue="a"))
    passed = {"stopped": BudgetPostponed(after(-1), reserved=False).to_json()}
    world.answers["op-1.1"] = [passed] * 5
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    stage.run()
    assert len(world.attempts) == 6
    assert stage.now >= after(10)


def test_a_destination_that_fails_does_not_hold_up_another() -> None:
    world = World(an_event(1, dependency="payments", path="/"), *(an_event(n, queue="a") for n in (2, 3)))
    world.answers["op-1.1"] = [failing(1), failing(2)]
    stage = played(world)
    assert world.attempts[:3] == [("1", 1), ("2", 1), ("3", 1)]
    assert world.attempts[-1] == ("1", 3)
    assert stage.now > NOON


def test_an_event_that_cannot_be_delivered_is_given_up_and_the_next_one_goes() -> None:
    world = World(*(an_event(number, dependency="payments", path="/") for number in (1, 2)))
    world.answers["op-1.1"] = [failing(1, Category.BUSINESS_RULE)]
    played(world)
    assert list(world.given_up) == ["op-1.1"]
    assert world.given_up["op-1.1"].startswith("RejectedByDependency: ")
    assert world.attempts == [("1", 1), ("2", 1)]


def test_a_worker_that_fails_costs_no_attempt() -> None:
    world = World(an_event(1, queue="a"), an_event(2, queue="b"))
    world.answers["op-1.1"] = [RuntimeError("the host is going down")]
    played(world)
    assert world.attempts.count(("1", 1)) == 2
    assert world.attempts.count(("2", 1)) == 1


def test_a_spent_retry_budget_is_waited_for() -> None:
    world = World(an_event(1, dependency="payments", path="/"))
    until = NOON + timedelta(seconds=30)
    world.answers["op-1.1"] = [{"stopped": BudgetPostponed(until, reserved=True).to_json()}]
    assert played(world).now == until
    assert world.attempts == [("1", 1), ("1", 1)]
    assert "promised_at" in world.admissions[1]


def test_a_half_open_circuit_is_asked_for_a_probe() -> None:
    world = World(an_event(1, dependency="payments", path="/"))
    settings = CircuitSettings()
    world.answers["op-1.1"] = [{"stopped": NeedsProbe(settings).to_json()}]
    stage = played(world)
    assert [name for name, _ in stage.calls["circuit_breaker"]] == ["permit"]
    assert world.attempts == [("1", 1), ("1", 1)]
    assert world.admissions[1]["permit"] is not None


def test_a_webhook_beyond_the_share_takes_a_slot_and_gives_it_back() -> None:
    world = World(an_event(1, dependency="payments", path="/"))
    world.answers["op-1.1"] = [{"stopped": NeedsSlot({"max_concurrency": 1}).to_json()}]
    stage = played(world)
    assert [name for name, _ in stage.calls["call_limiter"]] == ["acquire", "give_back"]
    assert world.attempts == [("1", 1), ("1", 1)]
    assert world.admissions[1]["slot"]["lease_id"].startswith("op-1.1.")


def test_a_long_wait_keeps_a_short_history() -> None:
    world = World(*(an_event(number, queue=f"q{number}") for number in range(1, 6)))
    for number in range(1, 6):
        world.answers[f"op-1.{number}"] = [failing(attempt) for attempt in range(1, 12)]
    stage = played(world)
    assert stage.executions > 1
    assert stage.longest_history < 400
    assert world.pending == {}


def test_a_refusal_of_another_event_gives_none_up() -> None:
    """A turn that was lost may have asked for fewer events, so that its answers come for others."""
    world = World(an_event(1, queue="a"), an_event(2, queue="b"))
    world.answers["op-1.1"] = [failing(1, Category.MALFORMED) | {"event_id": "op-1.2"}]
    played(world)
    assert world.attempts == [("1", 1), ("2", 1), ("1", 1)]
    assert world.given_up == {}


@pytest.mark.parametrize("answer", ["dl-1", None, {"place": {}, "deliveries": [], "event_id": None}])
def test_the_answer_of_another_activity_is_no_result(answer: Any) -> None:
    world = World(an_event(1, queue="a"))
    stage = PartStage(outbox, "outbox-op-1", {"operation_id": "op-1"}, world.answer)
    answers = [answer]
    stage.answer = lambda name, given: (
        answers.pop() if name == "publish" and answers else world.answer(name, given)
    )
    stage.run()
    assert (stage.failure, world.attempts) == (None, [("1", 1)])
