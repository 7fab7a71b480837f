from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.hub.turns import MOST_ASKED
from tests.support.builders import NOON, an_operation, failing, outcome
from tests.support.stage import LATE, Stage


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
    return stage.raise_event("nudge", {"asked_before": to_rfc3339(before)}).run_until_waiting()


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
    assert stage.raise_event("cancel", {}).run()["status"] == "cancelled"


def test_a_cancel_waits_for_the_answer_of_an_attempt_that_nobody_misses() -> None:
    stage = silent()
    stage.raise_event("cancel", {}).run_until_waiting()
    assert not stage.ended
    stage.answer_task(stage.unanswered[0], outcome(1, result={}))
    assert stage.run()["status"] == "succeeded"
