from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pytest

from durable_retry.base.names import Category
from durable_retry.features.polling.rules import Poll, Polled
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.rules.retry.history import AttemptOutcome
from orchestrators.run import LAPS_PER_HISTORY
from tests.support.builders import NOON, Activities, after, an_operation, failing, outcome
from tests.support.stage import Stage, held, resume

JOB = {"status_code": 202, "headers": {"location": "/jobs/7"}}


POLLING: Final = {"polling": Poll().model_dump(exclude_none=True)}


def polling(**changes: Any) -> Any:
    return an_operation(parts=POLLING, **changes)


def accepting(*polls: dict[str, Any] | Exception | None) -> tuple[Activities, list[dict[str, Any]]]:
    """Return activities of which the first attempt is accepted and the polls answer so, and what was asked.

    None is an answer that the work goes on; the last of them is given for ever.
    """
    left, asked = list(polls), list[dict[str, Any]]()

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt" and given["attempt"] == 1:
            return outcome(1, status_code=202, result=JOB)
        if name != "poll":
            return failing(1)(name, given)
        asked.append(given)
        answered = left.pop(0) if len(left) > 1 else left[0]
        return (
            Polled(place="https://x/jobs/8", outcome=a_poll(202)).to_json() if answered is None else answered
        )

    return answer, asked


def a_poll(status_code: int, at: datetime = NOON, **changes: Any) -> AttemptOutcome:
    result = {"status_code": status_code, "headers": {}, "json": {"id": 7}}
    base = AttemptOutcome(number=1, started_at=at, duration_ms=0.0, status_code=status_code, result=result)
    return replace(base, **changes)


def over(last: AttemptOutcome) -> dict[str, Any]:
    return Polled(place="/jobs/7", outcome=last, is_over=True).to_json()


def test_the_work_is_asked_for_until_it_has_ended() -> None:
    answer, asked = accepting(None, over(a_poll(200, after(10))))
    stage = Stage(polling(), answer)
    document = stage.run()
    assert (document["status"], document["result"]["json"]) == ("succeeded", {"id": 7})
    assert [each["place"] for each in asked] == ["/jobs/7", "https://x/jobs/8"]
    (attempt,) = document["attempts"]
    assert (attempt["number"], attempt["status_code"], attempt["duration_ms"]) == (1, 200, 10_000.0)
    assert stage.now == after(10)


def test_it_is_shown_as_running_and_when_it_is_asked_again() -> None:
    answer, _ = accepting(None)
    status = Stage(polling(), answer).run_until_waiting()
    assert (status["status"], status["next_attempt_at"]) == ("running", "2026-11-21T12:00:05Z")
    (wait,) = status["waits"]
    assert (wait["kind"], wait["until"]) == ("accepted", "2026-11-21T12:00:05Z")
    assert wait["delay_reasons"] == ["accepted by payments, asked again at 2026-11-21T12:00:05Z"]


def test_while_a_poll_is_under_way_nothing_is_shown_as_due() -> None:
    statuses: list[Any] = []

    def spying(name: str, given: dict[str, Any]) -> Any:
        if name == "poll":
            stage.before_turn = lambda at: statuses.append(at.custom_status)
        return answer(name, given)

    answer, _ = accepting(over(a_poll(200)))
    stage = Stage(polling(), spying)
    stage.run()
    assert (statuses[0]["status"], statuses[0]["next_attempt_at"]) == ("running", None)


def test_an_operation_that_is_not_polled_ends_with_its_202() -> None:
    answer, asked = accepting(None)
    document = Stage(an_operation(), answer).run()
    assert (document["status"], document["result"], asked) == ("succeeded", JOB, [])


def test_a_long_job_is_asked_for_in_histories_that_stay_short() -> None:
    polls = 50
    answer, asked = accepting(*([None] * polls), over(a_poll(200, after(5 * polls))))
    stage = Stage(polling(), answer)
    document = stage.run()
    assert (document["status"], len(asked)) == ("succeeded", polls + 1)
    assert stage.executions == 1 + polls // LAPS_PER_HISTORY
    assert stage.longest_history < 100
    (wait,) = document["waits"]
    assert wait["times"] == polls + 1


def test_a_failure_that_may_pass_counts_no_attempt_and_one_that_ends_it_does() -> None:
    failing_poll = a_poll(503, category=Category.TRANSIENT, error="no", result=None)
    gone = a_poll(404, after(10), category=Category.NOT_FOUND, error="no such job", result=None)
    answer, asked = accepting(Polled(place="/jobs/7", outcome=failing_poll).to_json(), over(gone))
    document = Stage(polling(), answer).run()
    assert (document["status"], document["attempt_count"], len(asked)) == ("dead_lettered", 1, 2)
    assert document["dead_letter"]["reason"] == "RejectedByDependency"
    assert document["dead_letter"]["detail"] == (
        "status 404, it was accepted at 2026-11-21T12:00:00Z; no such job"
    )
    assert document["may_have_acted"] is True


def test_work_that_failed_in_a_way_that_may_pass_is_attempted_again() -> None:
    failed = a_poll(503, after(5), category=Category.TRANSIENT, error="no", result=None)
    answer, _ = accepting(over(failed))
    document = Stage(polling(), answer).run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 2)
    assert document["attempts"][0]["delay_reasons"] == ["fixed 10 s"]


def test_the_deadline_ends_it_and_the_dead_letter_says_that_it_was_accepted() -> None:
    answer, asked = accepting(None)
    stage = Stage(polling(deadline_in=20), answer)
    document = stage.run()
    letter = document["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("DeadlineExceeded", "deadline_exceeded")
    assert letter["detail"] == (
        "it was accepted at 2026-11-21T12:00:00Z, and had not ended after 4 polls, the last one answered 202 "
        "(deadline 2026-11-21T12:00:20Z)"
    )
    assert (len(asked), stage.now, document["may_have_acted"]) == (4, after(18), True)


@pytest.mark.parametrize("laps", [1, LAPS_PER_HISTORY + 1])
def test_a_cancel_ends_it(laps: int) -> None:
    answer, asked = accepting(None)
    stage = Stage(polling(), answer).waiting()
    while len(asked) < laps:
        stage._fire_next_timer()
        stage.run_until_waiting()
    assert stage.raise_event("cancel", {"by": "ann"}).run()["status"] == "cancelled"
    assert len(asked) == laps


def test_a_retry_now_asks_at_once() -> None:
    answer, asked = accepting(over(a_poll(200)))
    stage = Stage(polling(), answer).waiting()
    document = stage.raise_event("retry_now", {"attempt": 1, "by": "ann"}).run()
    assert (document["status"], len(asked), stage.now) == ("succeeded", 1, NOON)
    assert [action["action"] for action in document["actions"]] == ["retry_now"]


def test_a_pause_holds_the_polls_up() -> None:
    answer, asked = accepting(over(a_poll(200, after(60))))
    stage = Stage(polling(), answer).waiting()
    assert stage.raise_event("pause", {"for_seconds": 60.0}).run_until_waiting()["status"] == "paused"
    assert stage.run()["status"] == "succeeded"
    assert (len(asked), stage.now) == (1, after(60))


def test_an_attempt_that_is_not_accepted_is_followed_as_any_other() -> None:
    document = Stage(polling(), failing(2)).run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 3)


def test_one_that_nobody_can_ask_for_is_a_dead_letter() -> None:
    def answer(name: str, given: dict[str, Any]) -> Any:
        unnamed = {"status_code": 202, "headers": {}}
        return outcome(1, status_code=202, result=unnamed) if name == "attempt" else failing(0)(name, given)

    assert Stage(polling(), answer).run()["dead_letter"]["reason"] == "AmbiguousOutcome"


def test_polls_that_fail_on_this_side_are_made_again_and_end_in_a_dead_letter() -> None:
    answer, asked = accepting(RuntimeError("no worker"), over(a_poll(200, after(7))))
    assert Stage(polling(), answer).run()["status"] == "succeeded"
    assert len(asked) == 2
    answer, asked = accepting(RuntimeError("no worker"))
    document = Stage(polling(deadline_in=None), answer).run()
    assert (document["dead_letter"]["reason"], len(asked)) == ("AmbiguousOutcome", MAX_OWN_FAILURES)
    assert "the poll failed 20 times in a row" in document["dead_letter"]["detail"]


def test_a_cancel_ends_polls_that_fail_on_this_side() -> None:
    answer, _ = accepting(RuntimeError("no worker"))
    stage = Stage(polling(), answer).waiting()
    stage._fire_next_timer()
    stage.run_until_waiting()
    assert stage.raise_event("cancel", {}).run()["status"] == "cancelled"


def test_work_that_was_held_at_its_deadline_is_asked_for_again_and_not_sent_again() -> None:
    answer, asked = accepting(None, None, None, over(a_poll(200)))
    stage = held(answer, parts=POLLING, deadline_in=12)
    assert stage.custom_status["actions"][0]["reason"].startswith("DeadlineExceeded: it was accepted at")
    resume(stage)
    document = stage.run()
    assert (document["status"], document["attempt_count"], stage.made("attempt")) == ("succeeded", 1, 1)
    assert len(asked) == 4


def test_work_that_was_held_at_its_deadline_is_a_dead_letter_when_nobody_came() -> None:
    stage = held(accepting(None)[0], parts=POLLING, deadline_in=12)
    document = stage.run()
    assert (document["status"], stage.made("attempt")) == ("dead_lettered", 1)
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert [each["action"] for each in document["actions"]] == ["pause"]
