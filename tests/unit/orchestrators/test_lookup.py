from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from durable_retry.base.names import Category
from durable_retry.features.lookup.rules import Answer, Unclear
from durable_retry.features.polling.rules import Poll
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import NeedsProbe
from durable_retry.rules.retry.slots import NeedsSlot
from orchestrators.run import LAPS_PER_HISTORY
from tests.support.builders import Activities, after, an_operation, failing, outcome
from tests.support.feature_parts import in_order
from tests.support.stage import LATE, Stage

RESULT = {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}

type Reply = Callable[[datetime, int], Any]
"""Answers a question, by the present and the question's number."""


def asking(**changes: Any) -> OperationInput:
    return an_operation(parts={"lookup": {}}, **changes)


def replaying(*, only_asks: bool | None = None, **changes: Any) -> OperationInput:
    unclear = Unclear(since=after(-60), attempt=3, only_asks=only_asks)
    return an_operation(parts={"lookup": unclear.to_json()}, **changes)


def found(at: datetime, number: int) -> dict[str, Any]:
    return said("found", at, number, result=RESULT)


def not_found(at: datetime, number: int) -> dict[str, Any]:
    return said("not_found", at, number)


def said(says: Any, at: datetime, number: int, **more: Any) -> dict[str, Any]:
    answer = Answer(says=says, at=at, settle_seconds=10, status_code=200, **more).to_json()
    outcome = AttemptOutcome(number=number, started_at=at, duration_ms=1.0, status_code=200, result=answer)
    return outcome.to_json()


def unanswered(at: datetime, number: int) -> dict[str, Any]:
    category = Category.TRANSIENT
    outcome = AttemptOutcome(
        number=number, started_at=at, duration_ms=1.0, category=category, status_code=503
    )
    return outcome.to_json()


def held(by: Any) -> Reply:
    return lambda _at, _number: {"stopped": by.to_json()}


class World:
    """A stage whose first attempt has an unknown end, and the questions that it asked.

    The last reply is given for ever.
    """

    def __init__(self, operation: OperationInput, *replies: Reply, unknown: int = 1) -> None:
        self.replies, self.asked = list(replies), list[dict[str, Any]]()
        self.attempts: Activities = failing(unknown, Category.AMBIGUOUS)
        self.stage = Stage(operation, self.answer)

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name != "look_up":
            return self.attempts(name, given)
        self.asked.append(given)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(self.stage.now, given["number"])


def test_what_is_found_is_the_result_and_the_attempt_says_so() -> None:
    world = World(asking(), found)
    document = world.stage.run()
    assert (document["status"], document["result"]) == ("succeeded", RESULT)
    (attempt,) = document["attempts"]
    assert (attempt["category"], attempt["status_code"]) == (None, 200)
    assert attempt["delay_reasons"] == ["found at 2026-11-21T12:00:00Z by lookup"]
    assert (world.stage.made("attempt"), world.asked[0]["attempt"], world.asked[0]["number"]) == (1, 1, 1)


def test_an_attempt_whose_end_is_known_is_not_asked_about() -> None:
    world = World(asking(), found, unknown=0)
    assert world.stage.run()["status"] == "succeeded"
    refused = World(asking(), found)
    refused.attempts = failing(1, Category.BUSINESS_RULE, 409)
    assert refused.stage.run()["dead_letter"]["reason"] == "RejectedByDependency"
    assert (world.asked, refused.asked) == ([], [])


def test_what_is_not_found_is_sent_again_once_that_says_something() -> None:
    world = World(asking(), not_found)
    status = world.stage.run_until_waiting()
    assert (status["status"], status["next_attempt_at"]) == ("waiting_retry", "2026-11-21T12:00:10.001000Z")
    assert status["waits"][0]["kind"] == "lookup"
    assert status["may_have_acted"] is True
    document = world.stage.run()
    assert (document["status"], document["attempt_count"], len(world.asked)) == ("succeeded", 2, 2)
    attempt = document["attempts"][0]
    assert attempt["error"] == "no; not found at 2026-11-21T12:00:10Z by lookup"
    assert (attempt["duration_ms"], attempt["delay_reasons"]) == (10_001.0, ["fixed 10 s"])
    assert world.stage.now == after(20.001)


def test_without_attempts_left_it_is_a_dead_letter_of_exhausted_retries() -> None:
    policy = replace(an_operation().policy, max_attempts=1)
    letter = World(asking(policy=policy), not_found).stage.run()["dead_letter"]
    assert letter["reason"] == "RetriesExhausted"
    assert letter["detail"].endswith("no; not found at 2026-11-21T12:00:10Z by lookup")


def test_what_has_failed_there_is_refused() -> None:
    world = World(asking(), lambda at, number: said("failed", at, number, why='/status is "failed"'))
    letter = world.stage.run()["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("RejectedByDependency", "business_rule")


def test_a_question_that_fails_is_repeated_as_an_attempt_is() -> None:
    world = World(asking(), unanswered, found)
    status = world.stage.run_until_waiting()
    assert status["waits"][0]["delay_reasons"] == ["its lookup answers 503", "fixed 10 s"]
    document = world.stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 1)
    assert [each["number"] for each in world.asked] == [1, 2]


def test_without_an_answer_it_stays_unknown() -> None:
    world = World(asking(), unanswered)
    document = world.stage.run()
    letter = document["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("AmbiguousOutcome", "ambiguous")
    assert letter["detail"].endswith("no; its lookup got no answer: attempt 5 of 5 failed: status 503")
    assert (len(world.asked), document["attempt_count"], document["may_have_acted"]) == (5, 1, True)


def test_the_deadline_leaves_it_unknown() -> None:
    letter = World(asking(deadline_in=8), not_found).stage.run()["dead_letter"]
    assert letter["reason"] == "AmbiguousOutcome"
    assert letter["detail"].endswith("and the deadline comes first")


def test_a_question_waits_for_the_circuit_and_asks_its_entities() -> None:
    refused = Refused(base=after(30), waiting=0, until=after(30), reason="open")
    probe, slot = NeedsProbe(CircuitSettings()), NeedsSlot({"max_concurrency": 1})
    world = World(asking(), held(refused), held(probe), held(slot), found)
    status = world.stage.run_until_waiting()
    assert (status["status"], status["next_attempt_at"][:19]) == ("waiting_circuit", "2026-11-21T12:00:30")
    assert "waits_for" not in status
    assert world.stage.run()["status"] == "succeeded"
    (permit,) = [given for name, given in world.stage.calls["circuit_breaker"] if name == "permit"]
    assert "op-test~lookup1" in str(permit)
    assert [name for name, _ in world.stage.calls["call_limiter"]] == ["acquire", "give_back"]


def test_a_probe_whose_lease_is_over_on_its_way_is_asked_for_again() -> None:
    probe = NeedsProbe(CircuitSettings())
    world = World(asking(), held(probe), held(probe), found)
    assert world.stage.run()["status"] == "succeeded"
    assert len(world.asked) == 3


def test_a_worker_that_dies_or_an_answer_of_something_else_costs_no_question() -> None:
    world = World(asking(), lambda _at, _number: RuntimeError("gone"), lambda _at, _number: "dl-1", found)
    assert world.stage.run()["status"] == "succeeded"
    assert [each["number"] for each in world.asked] == [1, 1, 1]


def test_an_answer_that_is_lost_is_asked_for_again_until_somebody_cancels() -> None:
    world = World(asking(), lambda _at, _number: LATE)
    world.stage.run_until_waiting()
    world.stage.now = after(60)
    world.stage.raise_event("nudge", {"asked_before": "2026-11-21T12:01:00Z"}).run_until_waiting()
    assert len(world.asked) == 2
    document = world.stage.raise_event("cancel", {"by": "ann"}).run()
    assert (document["status"], document["may_have_acted"]) == ("cancelled", True)


def test_a_cancel_ends_the_wait_and_gives_back_what_the_question_holds() -> None:
    refused = Refused(base=after(30), waiting=0, until=after(30), reason="open")
    world = World(asking(), held(refused))
    world.stage.run_until_waiting()
    document = world.stage.raise_event("cancel", {"by": "ann"}).run()
    assert document["status"] == "cancelled"
    assert [attempt["category"] for attempt in document["attempts"]] == ["ambiguous"]
    assert ("gone", {"was_waiting": True}) in [
        (name, {key: given[key] for key in ("was_waiting",)})
        for name, given in world.stage.calls["circuit_breaker"]
    ]


def test_retry_now_asks_at_once() -> None:
    world = World(asking(), not_found)
    world.stage.run_until_waiting()
    world.stage.now = after(3)
    world.stage.raise_event("retry_now", {"attempt": 1, "by": "ann"}).run_until_waiting()
    assert (len(world.asked), world.stage.made("attempt")) == (2, 1)


def test_many_questions_are_asked_in_histories_that_stay_short() -> None:
    policy = replace(an_operation().policy, max_attempts=40)
    world = World(asking(policy=policy), *[unanswered] * 30, found)
    document = world.stage.run()
    assert (document["status"], document["attempt_count"], len(world.asked)) == ("succeeded", 1, 31)
    assert world.stage.executions == 1 + 30 // LAPS_PER_HISTORY
    assert world.stage.longest_history < 100


def test_a_replay_asks_before_its_first_attempt() -> None:
    world = World(replaying(), found, unknown=0)
    document = world.stage.run()
    assert (document["status"], document["result"], document["attempts"]) == ("succeeded", RESULT, [])
    assert document["waits"][-1]["delay_reasons"] == ["found at 2026-11-21T12:00:00Z by lookup"]
    assert (world.asked[0]["attempt"], world.stage.made("attempt")) == (3, 0)


@pytest.mark.parametrize(("since", "asked"), [(-60, 1), (-2, 2)])
def test_a_replay_is_sent_where_it_was_not_found_once_settled(since: int, asked: int) -> None:
    unclear = Unclear(since=after(since)).to_json()
    world = World(an_operation(parts={"lookup": unclear}), not_found, unknown=0)
    document = world.stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 1)
    assert len(world.asked) == asked


def test_a_replay_that_only_asks_sends_nothing() -> None:
    world = World(replaying(only_asks=True), not_found)
    letter = world.stage.run()["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("AmbiguousOutcome", "ambiguous")
    assert letter["detail"] == "not found at 2026-11-21T12:00:00Z by lookup; a replay sends it again"
    assert world.stage.made("attempt") == 0


def test_a_replay_of_which_nothing_is_known_stays_a_dead_letter() -> None:
    world = World(replaying(), unanswered)
    letter = world.stage.run()["dead_letter"]
    assert letter["reason"] == "AmbiguousOutcome"
    assert letter["detail"] == (
        "the request may have taken effect, so it is not sent again: its lookup got no answer: "
        "attempt 5 of 5 failed: status 503"
    )
    assert world.stage.made("attempt") == 0


def test_a_replay_that_asks_for_long_goes_on_in_a_history_of_its_own() -> None:
    policy = replace(an_operation().policy, max_attempts=40)
    world = World(replaying(policy=policy), *[unanswered] * 20, not_found, unknown=0)
    assert world.stage.run()["status"] == "succeeded"
    assert [each["number"] for each in world.asked] == list(range(1, 22))
    assert world.stage.executions > 3


def test_a_replay_can_be_cancelled_while_it_asks() -> None:
    world = World(replaying(), unanswered)
    world.stage.run_until_waiting()
    document = world.stage.raise_event("cancel", {"by": "ann"}).run()
    assert (document["status"], document["attempts"]) == ("cancelled", [])


def test_an_operation_that_begins_later_asks_nothing_before() -> None:
    world = World(asking(start_at=after(60)), found, unknown=0)
    assert world.stage.run_until_waiting()["status"] == "scheduled"
    assert (world.stage.run()["status"], world.asked, world.stage.now) == ("succeeded", [], after(60))


def test_one_that_was_begun_early_waits_for_its_start_at_no_other_gate() -> None:
    parts = {"lookup": {}, **in_order("a")}
    world = World(an_operation(start_at=after(60), parts=parts), found, unknown=0)
    world.stage.run_until_waiting()
    world.stage.raise_event("retry_now", {"attempt": 1, "by": "ann"})
    assert (world.stage.run()["status"], world.stage.now) == ("succeeded", after(0))


def test_accepted_work_whose_end_is_unknown_is_asked_about() -> None:
    parts = {"lookup": {}, "polling": Poll().model_dump(exclude_none=True)}
    world = World(an_operation(parts=parts), found)
    world.attempts = lambda _name, _call: outcome(1, status_code=202, result={"headers": {}})
    document = world.stage.run()
    assert (document["status"], document["result"]) == ("succeeded", RESULT)
