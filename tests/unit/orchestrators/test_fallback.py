from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durable_retry.base.names import PAUSE_EVENT, Category
from durable_retry.features.fallback.rules import Departure, Terms, route_of
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from tests.support.builders import after, an_operation, failing, outcome
from tests.support.stage import Stage

RESULT = {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}
TERMS = Terms(
    policy=RetryPolicy(strategy="fixed", initial_seconds=3.0, jitter="none", max_attempts=2),
    timeouts=Timeouts(attempt_seconds=20, deadline_seconds=3600),
    downstream_key="key-1~at~spare",
    parts={},
)
GOES = Departure(to="spare", terms=TERMS)
BACK = Departure(to="payments")

type Answers = Callable[[int, OperationInput], Any]
"""Answers an attempt, by its number and its operation."""


def refused(seconds: float = 60, **more: Any) -> dict[str, Any]:
    refusal = Refused(after(seconds), 0, after(seconds), "the circuit is open: it failed", **more)
    return {"stopped": refusal.to_json()}


def failed(number: int, category: Category, status_code: int) -> dict[str, Any]:
    return outcome(number, category=category, status_code=status_code, error="no")


def answers_as(number: int, operation: OperationInput) -> dict[str, Any]:
    return outcome(number, status_code=200, result=RESULT, dependency=operation.dependency)


class World:
    """A stage of an operation with a fallback.

    Attributes:
        at: How each dependency answers attempts.
        departures: What the activity `leave_dependency` answers, the last one for ever.
        asked: What it was asked.
    """

    def __init__(self, *departures: Any, first: Answers, spare: Answers = answers_as, **changes: Any) -> None:
        self.at = {"payments": first, "spare": spare}
        self.departures, self.asked = list(departures), list[dict[str, Any]]()
        self.called: list[tuple[str, int]] = []
        parts = {"fallback": {"to": "spare", "stay": 0}}
        self.stage = Stage(an_operation(**{"parts": parts} | changes), self.answer)

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name == "leave_dependency":
            self.asked.append(given)
            answer = self.departures.pop(0) if len(self.departures) > 1 else self.departures[0]
            return answer.to_json() if isinstance(answer, Departure) else answer
        if name != "attempt":
            return failing(0)(name, given)
        operation = OperationInput.from_json(given["operation"])
        self.called.append((operation.dependency, given["attempt"]))
        return self.at[operation.dependency](given["attempt"], operation)


def always_refused(_number: int, _operation: OperationInput) -> dict[str, Any]:
    return refused()


def refused_once(then: Answers) -> Answers:
    left = [1]

    def answer(number: int, operation: OperationInput) -> Any:
        return refused() if left and left.pop() else then(number, operation)

    return answer


def test_the_attempt_goes_to_the_fallback_and_the_document_says_which_answered() -> None:
    world = World(GOES, first=always_refused)
    document = world.stage.run()
    assert world.called == [("payments", 1), ("spare", 1)]
    assert (document["status"], document["dependency"]) == ("succeeded", "payments")
    assert document["result"] == RESULT | {"dependency": "spare"}
    assert [attempt["dependency"] for attempt in document["attempts"]] == ["spare"]
    (wait,) = document["waits"]
    assert (wait["kind"], wait["began_at"]) == ("fallback", wait["until"])
    assert wait["delay_reasons"][0] == "the circuit is open: it failed"
    assert wait["delay_reasons"][-1] == "spare is asked in place of payments"
    assert world.stage.now == after(0)


def test_a_pause_that_comes_while_it_leaves_is_kept() -> None:
    def asks_for_a_pause(_number: int, _operation: OperationInput) -> dict[str, Any]:
        world.stage.raise_event(PAUSE_EVENT, {"by": "ada"})
        return refused()

    world = World(GOES, first=asks_for_a_pause)
    assert world.stage.run_until_waiting()["status"] == "paused"
    assert world.called == [("payments", 1)]


def test_it_goes_with_the_policy_the_time_and_a_key_of_the_fallback() -> None:
    world = World(GOES, first=always_refused)
    world.stage.run()
    sent = [
        OperationInput.from_json(given["operation"])
        for name, given in world.stage.activities
        if name == "attempt"
    ]
    assert (sent[1].policy, sent[1].timeouts) == (TERMS.policy, TERMS.timeouts)
    assert [operation.sent_key for operation in sent] == ["key-1", "key-1~at~spare"]
    assert sent[1].deadline_at == sent[0].deadline_at


def test_the_history_that_sends_begins_with_where_it_goes() -> None:
    world = World(GOES, first=always_refused, spare=lambda *_: refused())
    world.departures = [GOES, Departure()]
    world.stage.run_until_attempt(2)
    assert world.stage.executions == 2
    started = OperationInput.from_json(world.stage.activities[-1][1]["call"]["operation"])
    assert (started.dependency, started.submitted_to, route_of(started).stay) == ("spare", "payments", 1)


def test_what_the_circuit_counted_as_waiting_does_not_wait_any_more() -> None:
    world = World(GOES, first=always_refused)
    world.stage.run()
    assert [name for name, _ in world.stage.calls["circuit_breaker"]] == ["gone"]


def test_after_an_attempt_whose_end_is_unknown_it_waits() -> None:
    def fails_first(number: int, operation: OperationInput) -> Any:
        if number == 1:
            return failed(number, Category.TRANSIENT, 503)
        return refused_twice(number, operation)

    refused_twice = refused_once(answers_as)
    world = World(GOES, first=fails_first)
    assert world.stage.run()["status"] == "succeeded"
    assert {name for name, _ in world.called} == {"payments"}
    assert world.asked == []


def test_nor_does_an_operation_that_acted_in_an_earlier_run() -> None:
    world = World(GOES, first=refused_once(answers_as), acted_before=True)
    assert world.stage.run()["status"] == "succeeded"
    assert world.asked == []


def test_after_a_clear_refusal_it_may_go() -> None:
    def throttles(number: int, _operation: OperationInput) -> Any:
        return failed(number, Category.THROTTLED, 429) if number == 1 else refused()

    world = World(GOES, first=throttles)
    document = world.stage.run()
    assert world.called == [("payments", 1), ("payments", 2), ("spare", 2)]
    assert [attempt.get("dependency") for attempt in document["attempts"]] == [None, "spare"]


@pytest.mark.parametrize("more", [{"throttled": True}, {"stops_deadline": True}])
def test_a_pause_is_waited_for(more: dict[str, Any]) -> None:
    left = [refused(**more)]
    world = World(GOES, first=lambda *given: left.pop() if left else answers_as(*given))
    assert world.stage.run()["status"] == "succeeded"
    assert world.asked == []


def test_a_wait_that_would_pass_the_deadline_goes_to_the_fallback() -> None:
    world = World(GOES, first=lambda *_: refused(throttled=True), deadline_in=30)
    document = world.stage.run()
    assert (document["status"], world.asked[0]["is_late"]) == ("succeeded", True)
    (wait,) = document["waits"]
    assert wait["kind"] == "fallback"
    assert "payments asked for a pause" in wait["delay_reasons"][0]


def test_without_time_left_nobody_is_asked() -> None:
    def late(number: int, _operation: OperationInput) -> Any:
        world.stage.now = after(29.9)
        return failed(number, Category.THROTTLED, 429)

    world = World(GOES, first=late, deadline_in=30)
    assert world.stage.run()["dead_letter"]["reason"] == "DeadlineExceeded"
    assert world.asked == []


def test_one_that_stays_waits_as_decided_and_says_why() -> None:
    world = World(Departure(why="spare is not asked either: open", until=after(20)), first=always_refused)
    status = world.stage.run_until_waiting()
    assert (status["status"], status["next_attempt_at"]) == ("waiting_circuit", "2026-11-21T12:00:20Z")
    (wait,) = status["waits"]
    assert (wait["kind"], wait["until"]) == ("circuit", "2026-11-21T12:00:20Z")
    assert wait["delay_reasons"][-1] == "spare is not asked either: open"
    world.departures = [GOES]
    document = world.stage.run()
    assert (world.stage.now, document["status"]) == (after(20), "succeeded")
    assert [wait["kind"] for wait in document["waits"]] == ["circuit", "fallback"]


def test_one_that_nobody_takes_waits_for_its_own_circuit() -> None:
    world = World(Departure(why="spare has no base_url"), first=always_refused)
    status = world.stage.run_until_waiting()
    assert status["next_attempt_at"] == "2026-11-21T12:01:00.138569Z"
    assert status["waits"][0]["delay_reasons"][-1] == "spare has no base_url"


def test_a_dead_letter_says_why_it_did_not_go() -> None:
    world = World(Departure(why="spare has no base_url"), first=always_refused, deadline_in=30)
    letter = world.stage.run()["dead_letter"]
    assert letter["reason"] == "DeadlineExceeded"
    assert "; spare has no base_url" in letter["detail"]


@pytest.mark.parametrize("answer", [RuntimeError("died"), "dl-1", Departure()])
def test_without_an_answer_it_waits_as_decided(answer: Any) -> None:
    world = World(answer, first=refused_once(answers_as))
    document = world.stage.run()
    assert (document["status"], {name for name, _ in world.called}) == ("succeeded", {"payments"})
    assert world.stage.now >= after(60)


def test_where_both_are_out_it_comes_back_and_asks_the_first_after_the_wait() -> None:
    world = World(GOES, BACK, first=refused_once(answers_as), spare=lambda *_: refused(30))
    document = world.stage.run()
    assert world.called == [("payments", 1), ("spare", 1), ("payments", 1)]
    assert (document["result"], document["dependency"]) == (RESULT, "payments")
    assert after(30) <= world.stage.now < after(60)
    assert [given["is_late"] for given in world.asked] == [False, False]


def test_while_it_waits_between_both_the_first_circuit_wakes_it() -> None:
    world = World(GOES, BACK, first=always_refused, spare=lambda *_: refused(500))
    status = world.stage.run_until_waiting()
    assert (status["status"], status["dependency"]) == ("waiting_circuit", "payments")
    assert "waits_for" not in status
    assert [wait["kind"] for wait in status["waits"]] == ["fallback", "circuit"]


def test_at_the_fallback_a_clear_refusal_is_retried_there() -> None:
    def throttles(number: int, operation: OperationInput) -> Any:
        again = replace(operation, dependency="spare")
        return answers_as(number, again) if number == 2 else failed(number, Category.THROTTLED, 429)

    world = World(GOES, Departure(), first=always_refused, spare=throttles)
    assert world.stage.run()["status"] == "succeeded"
    assert world.called == [("payments", 1), ("spare", 1), ("spare", 2)]
    assert world.stage.now == after(3)


def test_what_may_have_acted_at_the_fallback_stays_there() -> None:
    left = [failed(1, Category.TRANSIENT, 503), refused(30)]
    world = World(
        GOES, first=always_refused, spare=lambda *given: left.pop(0) if left else answers_as(*given)
    )
    status = world.stage.run_until_attempt(3)
    assert (status["status"], status["waits_for"]) == ("waiting_circuit", "spare")
    assert world.stage.run()["status"] == "succeeded"
    assert world.called == [("payments", 1), ("spare", 1), ("spare", 2), ("spare", 2)]
    assert len(world.asked) == 1


def test_the_dead_letter_of_a_fallback_has_its_operation_as_it_was_sent() -> None:
    world = World(GOES, first=always_refused, spare=lambda number, _: failed(number, Category.TRANSIENT, 503))
    document = world.stage.run()
    assert (document["dead_letter"]["reason"], document["dependency"]) == ("RetriesExhausted", "payments")
    assert document["dead_letter"]["detail"].startswith("attempt 2 of 2 failed")
    entry = next(given for name, given in world.stage.activities if name == "dead_letter")
    assert (entry["operation"]["dependency"], entry["operation"]["acted_before"]) == ("spare", True)


def test_one_that_had_left_before_goes_on_in_another_stay() -> None:
    own = outcome(1, category=Category.TRANSIENT, error="the operation has left payments", counted=False)
    left = [own]
    world = World(Departure(to="payments"), first=lambda *given: left.pop() if left else answers_as(*given))
    document = world.stage.run()
    assert (document["status"], document["result"]) == ("succeeded", RESULT)
    assert (world.stage.now, world.called) == (after(0), [("payments", 1), ("payments", 1)])
    sent = world.stage.activities[-1][1]["operation"]
    assert sent["parts"]["fallback"] == {"to": "spare", "stay": 1}


def test_without_a_fallback_nothing_is_asked() -> None:
    world = World(GOES, first=refused_once(answers_as), parts=None)
    assert world.stage.run()["status"] == "succeeded"
    assert world.asked == []


def test_a_cancel_ends_what_asks_for_leave() -> None:
    world = World(Departure(), first=always_refused)
    world.stage.run_until_waiting()
    assert world.stage.raise_event("cancel", {}).run()["status"] == "cancelled"


def test_a_call_that_fails_fast_goes_to_its_fallback_all_the_same() -> None:
    parts = {"fail_fast": {}, "fallback": {"to": "spare", "stay": 0}}
    world = World(GOES, first=always_refused, source="call", parts=parts)
    assert world.stage.run()["result"] == RESULT | {"dependency": "spare"}
    refuses = World(Departure(), first=always_refused, source="call", parts=parts)
    assert refuses.stage.run()["dead_letter"]["reason"] == "CircuitOpen"
