import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise, repeat
from typing import Any, Final
from unittest.mock import Mock

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.base.trace_context import TraceContext
from durable_retry.features.debounce.rules import Debounce, DebounceRequest, Series
from durable_retry.rules.facts import OperationEnded, WaitEnded
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import CONTENT_BYTES
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from orchestrators import run
from orchestrators.run import LAPS_PER_HISTORY
from tests.support import history
from tests.support.builders import NOON, Activities, an_operation, failing, first, outcome
from tests.support.feature_parts import followed_by, in_order
from tests.support.narrowing import existing
from tests.support.stage import Stage

HEALTHY_TURNS = 2
TURNS_PER_FAILURE = 2


def test_a_healthy_operation_costs_two_turns_and_one_activity() -> None:
    stage = Stage(an_operation(), failing(0))
    document = stage.run()
    assert document["status"] == "succeeded"
    assert document["result"] == {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}
    assert (stage.turns, len(stage.activities), stage.entity_calls) == (HEALTHY_TURNS, 1, 0)
    assert (stage.calls["idempotency_record"], stage.states["idempotency_record"]) == ([], None)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, None),
        ({"start_at": NOON + timedelta(seconds=5)}, "running"),
        ({"parts": in_order("a", number=1)}, "running"),
    ],
)
def test_the_first_attempt_is_shown_of_what_may_wait_before_it_only(
    changes: dict[str, Any], shown: str | None
) -> None:
    statuses: list[str | None] = []

    def answer(name: str, given: dict[str, Any]) -> Any:
        stage.before_turn = lambda at: statuses.append(at.custom_status and at.custom_status["status"])
        return failing(2)(name, given)

    stage = Stage(an_operation(**changes), answer)
    assert stage.run()["status"] == "succeeded"
    assert statuses == [shown, "waiting_retry", "running", "waiting_retry", "running"]


@pytest.mark.parametrize(
    ("changes", "is_recorded"),
    [
        ({"keeps_record": True}, True),
        ({"created_at": NOON - timedelta(days=1)}, False),
        ({"created_at": NOON - timedelta(days=1, microseconds=1)}, True),
        ({"created_at": NOON - timedelta(days=3), "key_is_generated": True}, False),
    ],
)
def test_an_end_completes_the_record_of_its_key_where_that_may_outlive_the_history(
    changes: dict[str, Any], is_recorded: object
) -> None:
    stage = Stage(an_operation(**changes), failing(0))
    document = stage.run()
    assert (stage.turns, len(stage.activities)) == (HEALTHY_TURNS, 1)
    assert [name for name, _ in stage.calls["idempotency_record"]] == ["complete"] * bool(is_recorded)
    assert (
        stage.states["idempotency_record"] is not None
        and stage.states["idempotency_record"]["document"] == document
    ) is is_recorded


def test_an_end_is_reported_once_however_often_its_history_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts: list[OperationEnded] = []
    monkeypatch.setattr("durable_retry.telemetry.facts._receivers", {OperationEnded: [facts.append]})
    trace = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    document = Stage(an_operation(trace=trace), failing(3)).run()
    assert facts == [OperationEnded(document, trace)]


def test_each_failed_attempt_adds_two_turns_one_activity_and_one_timer() -> None:
    stage = Stage(an_operation(), failing(3))
    assert stage.run()["attempt_count"] == 4
    assert stage.turns == HEALTHY_TURNS + 3 * TURNS_PER_FAILURE
    assert stage.made("attempt") == 4


@pytest.mark.shows("P22")
def test_a_timer_of_a_lost_turn_does_not_take_the_attempt_for_its_own() -> None:
    """On Azure Storage a turn may first have set a timer, and have scheduled an attempt when it ran again."""
    stage = Stage(an_operation(), failing(0))
    stage.turn()
    (answered,) = stage.inbox
    assert isinstance(answered, history.Completed)
    stage.inbox = [history.Fired(answered.number, NOON.replace(tzinfo=None))]
    stage.turn()
    stage.inbox = [answered]
    assert stage.run()["status"] == "succeeded"


def test_an_answer_to_a_lost_turn_does_not_end_the_wait() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    (_, number) = stage.timers[0]
    stage.inbox = [history.Completed(number, json.dumps(outcome(2)))]
    stage.run_until_waiting()
    assert stage.made("attempt") == 1
    assert stage.run()["attempt_count"] == 2


def test_waits_are_shown_with_their_end_and_their_reasons() -> None:
    status = Stage(an_operation(), failing(1)).run_until_waiting()
    assert status["status"] == "waiting_retry"
    assert status["next_attempt_at"] == "2026-11-21T12:00:10Z"
    assert status["attempts"][0]["next_delay_seconds"] == 10.0
    assert status["attempts"][0]["delay_reasons"] == ["fixed 10 s"]


def odd_waits() -> dict[str, Any]:
    return {"policy": RetryPolicy(strategy="fixed", initial_seconds=1.7, jitter="none", max_attempts=40)}


@pytest.mark.parametrize("failures", [1, 30])
def test_no_retry_goes_early_where_timers_fire_early(failures: int) -> None:
    """On Azure Storage a wait of 1.7 s is over after 1 s."""
    made_at = []

    def answer(name: str, given: dict[str, Any]) -> Any:
        made_at.append(stage.now)
        return failing(failures)(name, given)

    stage = Stage(an_operation(**odd_waits()), answer)
    stage.whole_seconds = True
    assert stage.run()["status"] == "succeeded"
    assert min(later - earlier for earlier, later in pairwise(made_at)) >= timedelta(seconds=1.7)
    assert stage.executions == 1 + failures // LAPS_PER_HISTORY


def test_an_early_timer_does_not_take_a_cancel_away() -> None:
    stage = Stage(an_operation(**odd_waits()), failing(9))
    stage.whole_seconds = True
    stage.run_until_waiting()
    stage._fire_next_timer()
    stage.turn()
    assert stage.raise_event("cancel", {}).run()["status"] == "cancelled"
    assert stage.made("attempt") == 1


def test_clocks_that_disagree_do_not_make_a_wait_endless() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    for _ in range(4):
        fire_at, timer_id = stage.timers.pop()
        stage.inbox.append(history.Fired(timer_id, fire_at.replace(tzinfo=None)))
        stage.turn()
    assert stage.made("attempt") == 2


def test_a_wait_that_is_checked_by_a_clock_behind_is_late_by_seconds() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    (due, timer_id), true_now = stage.timers[-1], stage.timers[-1][0]
    while stage.made("attempt") == 1:
        stage.now = true_now - timedelta(seconds=30)
        stage.inbox.append(history.Fired(timer_id, due.replace(tzinfo=None)))
        stage.turn()
        if len(stage.timers) > 1:
            next_at, timer_id = stage.timers.pop()
            true_now += next_at - stage.now
    assert true_now - due <= timedelta(seconds=6)


def test_an_attempt_that_a_lost_turn_asked_for_is_not_taken_for_the_dead_letter() -> None:
    stage = Stage(an_operation(), first("dead_letter", [outcome(2)], failing(9)))
    assert stage.run()["dead_letter"]["id"] == "dl-1"
    assert stage.made("dead_letter") == 2


def test_a_dead_letter_that_a_lost_turn_asked_for_is_not_taken_for_an_attempt() -> None:
    stage = Stage(an_operation(), first("attempt", ["stopped-dl-1"], failing(0)))
    document = stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 1)


@pytest.mark.shows("P19")
def test_an_input_that_cannot_be_read_is_a_dead_letter_with_the_input() -> None:
    """It may be of a version that is newer, or older than what is read still."""
    stage = Stage(an_operation(reports_to="saga-1"), failing(0))
    written = an_operation(reports_to="saga-1").to_json()
    del written["policy"]
    stage._begin(json.dumps({"operation": written}))
    document = stage.run()
    assert (document["status"], document["key"], document["attempt_count"]) == ("dead_lettered", "key-1", 0)
    assert document["dead_letter"]["reason"] == "ValidationFailed"
    ((name, entry),) = stage.activities
    assert (name, entry["unreadable"]) == ("dead_letter", {"operation": written})
    assert stage.custom_status["status"] == "dead_lettered"
    assert [where for where, _, _ in stage.sent] == ["saga-1"]


@pytest.mark.parametrize("given", [None, [], "text", {}, {"operation": 5}])
def test_whatever_the_input_is_the_operation_ends_as_a_dead_letter(given: Any) -> None:
    stage = Stage(an_operation(), failing(0))
    stage._begin(json.dumps(given))
    assert stage.run()["dead_letter"]["id"] == "dl-1"


def test_a_later_input_that_cannot_be_read_may_have_acted() -> None:
    stage = Stage(an_operation(replay_of="dl-0"), failing(99)).waiting()
    written = an_operation(replay_of="dl-0").to_json()
    stage._begin(json.dumps({"operation": written, "history": {"attempts": [{}]}}))
    assert existing(Completion.of(stage.run())).may_have_acted


def test_the_waits_are_the_policys() -> None:
    stage = Stage(an_operation(), failing(2))
    stage.run()
    assert stage.now == NOON + timedelta(seconds=20)


def test_the_late_end_of_the_run_before_a_replay_does_not_speak_for_the_replay() -> None:
    failed = Stage(an_operation(), failing(99))
    failed.run()
    replay = an_operation(replay_of="dl-1", keeps_record=True).restarted(NOON + timedelta(seconds=1))
    replayed = Stage(replay, failing(0))
    replayed.run()
    replayed.operate(
        "idempotency_record", "complete", an_operation().completion(failed.output, NOON).to_json()
    )
    assert replayed.states["idempotency_record"]["document"]["status"] == "succeeded"


def test_exhausted_attempts_become_one_dead_letter() -> None:
    stage = Stage(an_operation(), failing(99))
    document = stage.run()
    assert document["status"] == "dead_lettered"
    assert document["attempt_count"] == 5
    assert document["dead_letter"]["id"] == "dl-1"
    assert document["dead_letter"]["reason"] == "RetriesExhausted"
    assert stage.made("dead_letter") == 1


@pytest.mark.parametrize(
    "category", [Category.MALFORMED, Category.UNAUTHORIZED, Category.AMBIGUOUS, Category.BUSINESS_RULE]
)
def test_what_is_useless_or_unsafe_to_repeat_is_attempted_once(category: Category) -> None:
    stage = Stage(an_operation(), failing(99, category))
    assert stage.run()["status"] == "dead_lettered"
    assert stage.made("attempt") == 1


def ending_in(*categories: Category) -> Activities:
    """Return activities whose attempts end in these categories, one after the other."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "dead_letter":
            return "dl-1"
        return outcome(given["attempt"], category=categories[given["attempt"] - 1], error="no")

    return answer


@pytest.mark.parametrize(
    ("earlier", "may_have_acted"), [(Category.TRANSIENT, True), (Category.THROTTLED, False)]
)
def test_what_an_earlier_attempt_may_have_done_goes_with_the_end_and_with_a_replay(
    earlier: Category, *, may_have_acted: bool
) -> None:
    stage = Stage(an_operation(reports_to="saga-1"), ending_in(earlier, Category.MALFORMED))
    document = stage.run()
    assert document["dead_letter"]["category"] == "malformed"
    assert document.get("may_have_acted", False) is may_have_acted
    ((_, _, report),) = stage.sent
    assert report["may_have_acted"] is may_have_acted
    (letter,) = [given for name, given in stage.activities if name == "dead_letter"]
    assert letter["operation"].get("acted_before", False) is may_have_acted
    calls = [given.get("acted_before") for name, given in stage.activities if name == "attempt"]
    assert calls == [None, may_have_acted or None]


def test_a_replay_that_is_refused_does_not_undo_what_the_run_before_it_did() -> None:
    stage = Stage(an_operation(acted_before=True), ending_in(Category.MALFORMED))
    assert existing(Completion.of(stage.run())).may_have_acted


def test_a_success_does_not_say_that_it_may_have_acted() -> None:
    stage = Stage(an_operation(), failing(1))
    assert stage.run_until_waiting()["may_have_acted"] is True
    assert "may_have_acted" not in stage.run()


@pytest.mark.shows("D10")
def test_a_wait_past_the_deadline_is_not_begun() -> None:
    stage = Stage(an_operation(deadline_at=NOON + timedelta(seconds=11)), failing(99))
    assert stage.run()["dead_letter"]["reason"] == "DeadlineExceeded"
    assert stage.now == NOON


def test_an_attempt_that_never_left_is_made_again_under_its_number() -> None:
    failures = [RuntimeError("the worker died"), RuntimeError("again")]
    stage = Stage(an_operation(), first("attempt", failures, failing(0)))
    assert stage.run()["attempt_count"] == 1
    assert [given["attempt"] for _, given in stage.activities] == [1, 1, 1]


def test_an_answer_for_another_attempt_is_not_taken() -> None:
    of_another = outcome(7, status_code=200, result={})
    stage = Stage(an_operation(), first("attempt", [of_another], failing(0)))
    assert stage.run()["attempts"][0]["number"] == 1
    assert stage.made("attempt") == 2


def test_our_own_storage_failing_does_not_lose_a_dead_letter() -> None:
    failures = [OSError("table storage is away")] * 3
    stage = Stage(an_operation(), first("dead_letter", failures, failing(99, Category.MALFORMED)))
    assert stage.run()["dead_letter"]["id"] == "dl-1"
    assert stage.now == NOON + timedelta(seconds=2 + 4 + 8)


def test_cancelling_ends_the_wait() -> None:
    stage = Stage(an_operation(), failing(99)).waiting()
    assert stage.raise_event("cancel", {}).run_until_waiting()["status"] == "cancelled"
    assert (stage.now, stage.output["status"]) == (NOON, "cancelled")


def test_cancelling_during_an_attempt_lets_it_end_first() -> None:
    stage = Stage(an_operation(), failing(0))
    stage.turn()
    stage.turn()
    stage.inbox.insert(0, history.Raised("cancel", "{}"))
    assert stage.run()["status"] == "succeeded"


def test_a_cancel_that_comes_with_the_start_lets_the_first_attempt_end() -> None:
    stage = Stage(an_operation(), failing(9))
    assert stage.raise_event("cancel", {}).run()["status"] == "cancelled"
    assert stage.made("attempt") == 1


def test_retry_now_ends_the_wait_for_the_attempt_that_it_names() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    assert stage.raise_event("retry_now", {"attempt": 2}).run_until_waiting()["status"] == "succeeded"
    assert stage.now == NOON


def in_an_hour() -> Stage:
    stage = Stage(an_operation(start_at=NOON + timedelta(hours=1), deadline_at=None), failing(0))
    assert stage.run_until_waiting()["status"] == "scheduled"
    return stage


def test_a_later_start_is_waited_for() -> None:
    stage = in_an_hour()
    assert (stage.entity_calls, stage.activities) == (0, [])
    document = stage.run()
    assert stage.now == NOON + timedelta(hours=1)
    assert (document["status"], document["start_at"]) == ("succeeded", "2026-11-21T13:00:00Z")


def test_a_start_that_has_passed_is_not_waited_for() -> None:
    stage = Stage(an_operation(start_at=NOON), failing(0))
    assert stage.run()["status"] == "succeeded"
    assert (stage.now, stage.timers) == (NOON, [])


def test_a_scheduled_operation_is_cancelled_before_it_begins() -> None:
    stage = in_an_hour()
    assert stage.raise_event("cancel", {"by": "ada"}).run_until_waiting()["status"] == "cancelled"
    assert (stage.now, stage.activities) == (NOON, [])


def test_a_scheduled_operation_is_started_now() -> None:
    stage = in_an_hour()
    document = stage.raise_event("retry_now", {"attempt": 1, "by": "ada"}).run_until_waiting()
    assert (document["attempt_count"], document["actions"][0]["by"]) == (1, "ada")
    assert stage.now == NOON


DEBOUNCE: Final = Debounce(entity="e1", key="reindex", seconds=10.0, accepted_at=NOON)


def request_of(name: str, seconds_later: float) -> dict[str, Any]:
    accepted_at = NOON + timedelta(seconds=seconds_later)
    return DebounceRequest(operation_id=name, accepted_at=accepted_at, seconds=10.0).to_json()


def debounced(series: Series | None = None) -> Stage:
    parts = {"debounce": DEBOUNCE.to_json()}
    operation = an_operation(start_at=NOON + timedelta(seconds=10), deadline_at=None, parts=parts)
    stage = Stage(operation, failing(0))
    stage.states["debounce"] = None if series is None else series.to_json()
    stage.run_until_waiting()
    return stage


def waiting_before(seconds: float) -> Series:
    at = NOON - timedelta(seconds=seconds)
    return Series(operation_id="op-before", accepted_at=at, due_at=at + timedelta(seconds=10), began_at=at)


def test_an_operation_with_a_debounce_key_begins_when_nothing_else_has_come() -> None:
    stage = debounced()
    assert stage.custom_status["status"] == "scheduled"
    document = stage.run()
    assert stage.now == NOON + timedelta(seconds=10)
    assert (document["status"], document["debounce_key"], "replaced_by" in document) == (
        "succeeded",
        "reindex",
        False,
    )
    assert [name for name, _ in stage.calls["debounce"]] == ["arrive", "begin"]


def test_an_operation_tells_the_one_that_it_replaces() -> None:
    stage = debounced(waiting_before(4))
    assert stage.sent == [("op-before", "replaced", request_of(stage.operation.operation_id, 0))]


def test_a_replaced_operation_ends_as_cancelled_and_says_by_what() -> None:
    stage = debounced()
    document = stage.raise_event("replaced", request_of("op-later", 3)).run()
    assert (document["status"], document["replaced_by"]) == ("cancelled", "op-later")
    assert (stage.now, stage.activities) == (NOON, [])


def test_one_that_no_event_reached_learns_at_the_end_of_its_wait_that_it_was_replaced() -> None:
    stage = debounced()
    stage.states["debounce"] = waiting_before(-3).to_json()
    document = stage.run()
    assert (document["status"], document["replaced_by"]) == ("cancelled", "op-before")
    assert stage.activities == []


def test_one_that_was_replaced_before_it_joined_ends_at_once() -> None:
    stage = debounced(waiting_before(-3))
    assert (stage.output["replaced_by"], stage.now) == ("op-before", NOON)


def test_a_series_at_its_bound_begins_at_once() -> None:
    stage = debounced(replace(waiting_before(9), began_at=NOON - timedelta(seconds=100)))
    assert (stage.output["status"], stage.output["start_at"]) == ("succeeded", to_rfc3339(NOON))
    assert [name for name, _ in stage.calls["debounce"]] == ["arrive"]


def test_an_event_that_replaces_nothing_does_not_end_the_wait() -> None:
    stage = debounced()
    stage.raise_event("replaced", request_of("op-earlier", -3))
    assert stage.run_until_waiting()["status"] == "scheduled"
    assert stage.raise_event("replaced", {"by": "me"}).run_until_waiting()["status"] == "scheduled"
    assert stage.raise_event("replaced", request_of("op-later", 3)).run()["replaced_by"] == "op-later"


def test_a_debounced_operation_is_started_now_and_what_comes_later_is_new() -> None:
    stage = debounced()
    assert stage.raise_event("retry_now", {"attempt": 1, "by": "ada"}).run()["status"] == "succeeded"
    assert (stage.now, stage.states["debounce"]["is_over"]) == (NOON, True)


def test_a_debounced_operation_that_is_cancelled_leaves() -> None:
    stage = debounced()
    document = stage.raise_event("cancel", {"by": "ada"}).run()
    assert (document["status"], "replaced_by" in document) == ("cancelled", False)
    assert [name for name, _ in stage.calls["debounce"]] == ["arrive", "withdraw"]
    assert stage.states["debounce"]["is_over"] is True


def test_a_paused_operation_that_is_replaced_ends() -> None:
    stage = debounced()
    assert stage.raise_event("pause", {"by": "ada"}).run_until_waiting()["status"] == "paused"
    assert stage.raise_event("replaced", request_of("op-later", 3)).run()["replaced_by"] == "op-later"


def test_an_operation_whose_feature_was_taken_out_is_left_to_a_person_and_sends_nothing() -> None:
    stage = Stage(an_operation(parts={"taken_out": {"key": "k"}}), failing(0))
    document = stage.run()
    assert (document["status"], document["dead_letter"]["reason"]) == ("dead_lettered", "ValidationFailed")
    assert "the feature taken_out, which this app does not have" in document["dead_letter"]["detail"]
    assert [name for name, _ in stage.activities if name == "attempt"] == []


def test_an_operation_whose_debounce_key_cannot_be_asked_for_is_left_to_a_person() -> None:
    stage = debounced()
    stage.states["debounce"] = {"series": "of another kind"}
    document = stage.run()
    assert (document["dead_letter"]["reason"], document["dead_letter"]["category"]) == (
        "RetriesExhausted",
        "transient",
    )
    assert document["dead_letter"]["detail"].startswith("nothing was sent: its debounce key")


def paused(answer: Activities | None = None, **pause: Any) -> Stage:
    stage = Stage(an_operation(), answer or failing(1)).waiting()
    assert stage.raise_event("pause", {"by": "ada", **pause}).run_until_waiting()["status"] == "paused"
    return stage


def paused_at(stage: Stage) -> Any:
    return stage.custom_status["actions"][-1]["at"]


def test_a_pause_holds_a_wait_until_it_is_resumed() -> None:
    stage = paused(reason="the supplier moves")
    (action,) = stage.custom_status["actions"]
    assert (action["action"], action["by"], action["reason"]) == ("pause", "ada", "the supplier moves")
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "grace"})
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    document = stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 2)
    assert [each["action"] for each in document["actions"]] == ["pause", "resume"]


@pytest.mark.parametrize("data", [None, [], {}, "stop", {"for_seconds": "soon"}])
def test_a_pause_in_any_form_is_resumed(data: Any) -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    assert stage.raise_event("pause", data).run_until_waiting()["status"] == "paused"
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "grace"})
    assert stage.run()["status"] == "succeeded"


def test_a_pause_that_is_longer_than_the_wait_is_followed_by_the_attempt_at_once() -> None:
    stage = paused(for_seconds=600)
    assert stage.custom_status["next_attempt_at"] == "2026-11-21T12:10:00Z"
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=600)


def test_a_pause_during_an_attempt_begins_after_it() -> None:
    stage = Stage(an_operation(), failing(1))
    stage.turn()
    stage.turn()
    stage.inbox.insert(0, history.Raised("pause", "{}"))
    assert stage.run_until_waiting()["status"] == "paused"
    assert stage.made("attempt") == 1


def test_a_resume_of_an_earlier_pause_does_not_end_this_one() -> None:
    stage = paused()
    stage.raise_event("resume", {"paused_at": "2026-11-21T11:00:00Z", "by": "ada"})
    assert stage.run_until_waiting()["status"] == "paused"


def test_a_pause_that_came_while_it_was_paused_is_not_a_second_one() -> None:
    stage = paused()
    stage.raise_event("pause", {"by": "grace", "asked_at": "2026-11-21T12:00:00Z"})
    assert stage.run_until_waiting()["status"] == "paused"
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "ada"})
    assert stage.run()["status"] == "succeeded"


def test_a_pause_that_is_delivered_again_after_its_end_does_nothing() -> None:
    stage = paused(for_seconds=5, asked_at="2026-11-21T12:00:00Z")
    stage._fire_next_timer()
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    stage.raise_event("pause", {"by": "ada", "for_seconds": 5, "asked_at": "2026-11-21T12:00:00Z"})
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    stage.raise_event("pause", {"by": "ada", "asked_at": "2026-11-21T12:00:06Z"})
    assert stage.run_until_waiting()["status"] == "paused"


def test_a_pause_that_does_not_say_when_it_was_asked_for_holds_again() -> None:
    stage = paused(for_seconds=5)
    stage._fire_next_timer()
    assert stage.run_until_waiting()["status"] == "waiting_retry"
    assert stage.raise_event("pause", {"by": "ada"}).run_until_waiting()["status"] == "paused"


def test_a_wait_that_was_paused_beyond_its_end_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Any] = []
    monkeypatch.setattr(run, "report", facts.append)
    paused(for_seconds=600).run()
    assert [fact.late_seconds for fact in facts if isinstance(fact, WaitEnded)] == [0.0]


def test_a_paused_operation_is_cancelled() -> None:
    stage = paused()
    assert stage.raise_event("cancel", {"by": "ada"}).run_until_waiting()["status"] == "cancelled"
    assert stage.made("attempt") == 1


def test_the_deadline_goes_on_during_a_pause() -> None:
    document = paused(failing(99), for_seconds=3600).run()
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert document["deadline_at"] == "2026-11-21T13:00:00Z"


def test_the_deadline_stops_during_a_pause_that_says_so() -> None:
    stage = paused(for_seconds=3600, stops_deadline=True)
    assert stage.run()["deadline_at"] == "2026-11-21T14:00:00Z"


CHANGE: Final = {
    "retry": {"max_attempts": 3, "initial_seconds": 1.0},
    "deadline_seconds": 60.0,
    "priority": "high",
}


def test_what_a_resume_changes_applies_and_is_kept() -> None:
    stage = paused(failing(99))
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "grace", "change": CHANGE})
    shown = stage.run_until_waiting()
    assert (shown["deadline_at"], shown["priority"]) == ("2026-11-21T12:01:00Z", "high")
    document = stage.run()
    assert (document["dead_letter"]["detail"][:22], document["priority"]) == (
        "attempt 3 of 3 failed:",
        "high",
    )
    assert [each["next_delay_seconds"] for each in document["attempts"]] == [10.0, 1.0, None]
    _, resumed = document["actions"]
    assert resumed["before"] == {
        "retry": {"max_attempts": 5, "initial_seconds": 10.0},
        "deadline_seconds": 3600.0,
        "priority": "normal",
    }
    assert (resumed["by"], resumed["after"]) == ("grace", CHANGE)


def test_a_change_at_once_pauses_and_resumes() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    stage.raise_event("pause", {"by": "ada", "at_once": True, "reason": "it is back", "change": CHANGE})
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["deadline_at"]) == ("waiting_retry", "2026-11-21T12:01:00Z")
    assert [(each["action"], each["reason"]) for each in shown["actions"]] == [
        ("pause", "it is back"),
        ("resume", "it is back"),
    ]
    assert stage.run()["status"] == "succeeded"


@pytest.mark.parametrize("change", [None, 7, {"retry": {"max_attempts": "many"}}, {"priority": "first"}, {}])
def test_a_change_in_an_odd_form_changes_nothing(change: Any) -> None:
    stage = paused()
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "grace", "change": change})
    document = stage.run()
    assert (document["status"], document["deadline_at"]) == ("succeeded", "2026-11-21T13:00:00Z")
    assert "priority" not in document


def test_a_pause_in_an_odd_form_has_no_end_of_its_own() -> None:
    assert paused(for_seconds="soon", reason=7).custom_status["next_attempt_at"] is None


def test_how_late_a_wait_ends_is_reported_unless_somebody_ends_it_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts: list[Any] = []
    monkeypatch.setattr(run, "report", facts.append)
    Stage(an_operation(), failing(2)).waiting().raise_event("retry_now", {"attempt": 2}).run()
    assert [fact.late_seconds for fact in facts if isinstance(fact, WaitEnded)] == [None, 0.0]


def test_who_ended_a_wait_and_who_cancelled_is_shown() -> None:
    stage = Stage(an_operation(), failing(99)).waiting()
    shown = stage.raise_event("retry_now", {"attempt": 2, "by": "ada"}).run_until_waiting()
    assert [(each["action"], each["by"]) for each in shown["actions"]] == [("retry_now", "ada")]
    document = stage.raise_event("cancel", {"by": "grace"}).run_until_waiting()
    assert [(each["action"], each["by"]) for each in document["actions"]] == [
        ("retry_now", "ada"),
        ("cancel", "grace"),
    ]


@pytest.mark.parametrize("data", [None, [], {}])
def test_an_event_that_does_not_say_who_sent_it_cancels_all_the_same(data: Any) -> None:
    stage = Stage(an_operation(), failing(99)).waiting()
    document = stage.raise_event("cancel", data).run_until_waiting()
    (action,) = document["actions"]
    assert (document["status"], action["action"], action["by"]) == ("cancelled", "cancel", None)


@pytest.mark.parametrize("by", [None, 7])
def test_what_nobody_known_did_is_shown_without_a_name(by: Any) -> None:
    stage = Stage(an_operation(), failing(99)).waiting()
    assert stage.raise_event("cancel", {"by": by}).run_until_waiting()["actions"][0]["by"] is None


def test_retry_now_for_an_earlier_wait_does_not_end_this_one() -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    stage.raise_event("retry_now", {"attempt": 1})
    assert stage.run_until_waiting()["status"] == "waiting_retry"


def test_the_record_is_kept_as_long_as_the_dependency_says() -> None:
    stage = Stage(an_operation(ttl_seconds=60.0, keeps_record=True), failing(0))
    stage.run()
    assert stage.signals[-1] == ("expire", NOON + timedelta(seconds=60))
    stage.operate("idempotency_record", "expire", {"now": "2026-11-21T12:01:00Z"})
    assert stage.states["idempotency_record"] is None


def unlimited() -> dict[str, Any]:
    policy = RetryPolicy(strategy="fixed", initial_seconds=1.0, jitter="none", max_attempts=-1)
    return {
        "policy": policy,
        "timeouts": Timeouts(deadline_seconds=1e6),
        "deadline_at": NOON + timedelta(days=10),
    }


@pytest.mark.parametrize("attempts", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_late_attempt_costs_what_an_early_one_costs(attempts: int) -> None:
    few = Stage(an_operation(**unlimited()), failing(39))
    many = Stage(an_operation(**unlimited()), failing(attempts - 1))
    few.run()
    document = many.run()
    assert document["attempt_count"] == attempts
    assert [attempt["number"] for attempt in document["attempts"]] == list(range(attempts - 19, attempts + 1))
    assert many.longest_history == few.longest_history
    assert many.executions == -(-attempts // LAPS_PER_HISTORY)


def test_what_is_kept_for_ever_does_not_grow() -> None:
    endless = unlimited() | {"timeouts": Timeouts(deadline_seconds=0), "deadline_at": None}
    few, many = Stage(an_operation(**endless), failing(25)), Stage(an_operation(**endless), failing(59))
    few.run()
    document = many.run()
    assert (document["attempt_count"], document["deadline_at"]) == (60, None)
    assert many.longest_history == few.longest_history


@pytest.mark.parametrize("attempts_before", range(LAPS_PER_HISTORY - 1, LAPS_PER_HISTORY + 2))
def test_a_cancel_is_not_lost_when_the_history_begins_anew(attempts_before: int) -> None:
    stage = Stage(an_operation(**unlimited()), failing(99))

    def cancel_with_the_timer(playing: Stage) -> None:
        fired = any(isinstance(event, history.Fired) for event in playing.inbox)
        if fired and playing.made("attempt") == attempts_before:
            playing.raise_event("cancel", {})

    stage.before_turn = cancel_with_the_timer
    assert stage.run()["status"] == "cancelled"


def test_the_custom_status_fits_whatever_errors_say() -> None:
    def answer(name: str, given: dict[str, Any]) -> Any:
        if name != "attempt":
            return "dl-1"
        return outcome(given["attempt"], category=Category.TRANSIENT, error="\u00e4" * 300)

    stage = Stage(an_operation(**unlimited()), answer)
    largest = 0

    def measure(playing: Stage) -> None:
        nonlocal largest
        largest = max(largest, len(str(playing.custom_status).encode("utf-16-le")))
        if playing.made("attempt") == 25:
            playing.raise_event("cancel", {})

    stage.before_turn = measure
    stage.run()
    assert 4_000 < largest < 16_384


def test_events_are_committed_with_the_result_before_the_operation_succeeds() -> None:
    event = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}
    stage = Stage(an_operation(**followed_by(event)), committing())
    document = stage.run()
    shown = {"event_id": "op-test.1.1", "type": "charge.completed", "state": "pending"}
    assert document["events"] == [shown]
    assert stage.activities[-1][0] == "commit"
    assert stage.activities[-1][1]["parts"] == {"outbox": {"on_success": [event]}}
    assert stage.activities[-1][1]["result"] == document["result"]


def asking(**events: Any) -> dict[str, Any]:
    return {"parts": {"outbox": {name: [{"type": name, "queue": "events"}] for name in events}}}


def test_a_dead_letter_begins_the_sending_of_its_events() -> None:
    stage = Stage(an_operation(**asking(on_failure=1)), failing(99))
    document = stage.run()
    run_id = f"{an_operation().run_id}.failed"
    assert document["status"] == "dead_lettered"
    assert document["events"] == [
        {"event_id": f"{run_id}.1", "type": "on_failure", "state": "pending"},
    ]
    ((_, instance_id, given),) = stage.children
    assert (instance_id, given) == (f"outbox-{run_id}", {"operation_id": run_id})


def test_a_success_costs_no_commit_for_the_events_of_a_failure() -> None:
    stage = Stage(an_operation(**asking(on_failure=1, on_recovered=1)), failing(3))
    document = stage.run()
    assert (document["status"], document["events"], stage.made("commit")) == ("succeeded", [], 0)
    assert "parts" not in stage.activities[0][1]["operation"]


@pytest.mark.parametrize(("failures", "more"), [(4, {}), (0, {"replay_of": "dl-1"})])
def test_a_success_after_trouble_commits_the_events_that_say_so(failures: int, more: dict[str, Any]) -> None:
    stage = Stage(an_operation(**asking(on_recovered=1), **more), failing(failures))
    document = stage.run()
    assert [event["type"] for event in document["events"]] == ["on_recovered"]
    assert stage.activities[-1][1]["is_recovered"] is True


def test_the_outbox_is_that_of_the_run_that_was_committed() -> None:
    event = {"type": "t", "queue": "events", "data": None}
    stage = Stage(an_operation(**followed_by(event)), committing(run_id="op-test.7"))
    (shown,) = stage.run()["events"]
    assert shown["event_id"] == "op-test.7.1"
    assert stage.activities[-1][1]["life"] == an_operation().life.to_json()
    ((_, instance_id, given),) = stage.children
    assert (instance_id, given) == ("outbox-op-test.7", {"operation_id": "op-test.7"})


def test_an_operation_goes_on_in_the_run_of_the_start_that_came_first() -> None:
    def answer(name: str, given: dict[str, Any]) -> Any:
        answered = failing(25)(name, given)
        return answered | {"run": 7} if given["attempt"] == 1 else answered

    stage = Stage(an_operation(**unlimited(), keeps_record=True), answer)
    stage.run()
    runs = [given["operation"]["run"] for _, given in stage.activities]
    assert runs == [an_operation().run, *25 * [7]]
    assert stage.states["idempotency_record"]["run"] == 7


def test_a_large_operation_is_sent_to_attempts_in_the_run_of_another_start() -> None:
    stage = Stage(LARGE, lambda name, given: failing(1)(name, given) | {"run": 7})
    stage.run()
    (first, second) = (given for _, given in stage.activities)
    assert "operation" not in first
    assert second["operation"]["run"] == 7


def test_attempts_do_not_carry_the_events() -> None:
    event = {"type": "t", "queue": "events", "data": "x" * 100}
    stage = Stage(an_operation(**followed_by(event)), committing())
    stage.run()
    assert "parts" not in stage.activities[0][1]["operation"]


def test_writes_that_can_never_be_made_are_a_dead_letter() -> None:
    event = {"type": "t", "queue": "events", "data": None}
    stage = Stage(an_operation(**followed_by(event)), committing(rejected="PropertyNameInvalid: x"))
    document = stage.run()
    assert document["status"] == "dead_lettered"
    assert document["dead_letter"]["reason"] == "RejectedByHandler"


def committing(**answered: Any) -> Activities:
    return first("commit", repeat({"run_id": "op-test.1", "rejected": None, **answered}), failing(0))


@pytest.mark.parametrize("data", [None, "now", [], {}, {"attempt": "2"}])
def test_an_event_of_another_form_changes_nothing(data: Any) -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    assert stage.raise_event("retry_now", data).run_until_waiting()["status"] == "waiting_retry"
    assert stage.run()["status"] == "succeeded"


def test_a_mistake_of_our_own_is_left_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrators.run.after", Mock(side_effect=KeyError("no such rule")))
    stage = Stage(an_operation(), failing(1))
    document = stage.run()
    assert document["status"] == "dead_lettered"
    assert document["dead_letter"] == {
        "id": "dl-1",
        "category": "ambiguous",
        "reason": "AmbiguousOutcome",
        "detail": "the app itself failed: KeyError: 'no such rule'",
    }
    assert stage.made("attempt") == 1


LARGE = an_operation(
    deadline_in=None,
    policy=RetryPolicy(strategy="fixed", initial_seconds=1.0, jitter="none", max_attempts=-1),
    request={"method": "POST", "path": "/charges", "json": "x" * CONTENT_BYTES},
)


def test_attempts_of_a_large_operation_say_where_it_is() -> None:
    stage = Stage(LARGE, failing(LAPS_PER_HISTORY))
    assert stage.run()["attempt_count"] == LAPS_PER_HISTORY + 1
    assert stage.executions == 2, "it continued as new, with the id of its input"
    for name, given in stage.activities:
        assert (name, "operation" in given) == ("attempt", False)
        assert (given["operation_id"], given["input_id"]) == ("op-test", "start-1")


def test_an_attempt_that_did_not_find_a_large_operation_gets_it() -> None:
    def answer(name: str, given: dict[str, Any]) -> Any:
        if "input_id" in given:
            return RuntimeError("another operation is there")
        return failing(0)(name, given)

    stage = Stage(LARGE, answer)
    assert stage.run()["status"] == "succeeded"
    assert ["input_id" in given for _, given in stage.activities] == [True, False]
    assert stage.activities[-1][1]["operation"]["request"] == LARGE.request


@pytest.mark.shows("P10")
def test_an_operation_that_nobody_could_try_before_its_deadline_is_tried_once() -> None:
    stage = Stage(an_operation(deadline_at=NOON - timedelta(minutes=4)), failing(9))
    document = stage.run()
    assert (document["attempt_count"], stage.made("attempt")) == (1, 1)
    assert [given["is_owed"] for name, given in stage.activities if name == "attempt"] == [True]
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert "nothing here worked on the operation before its deadline" in document["dead_letter"]["detail"]


def test_an_operation_that_nobody_could_try_before_its_deadline_may_still_succeed() -> None:
    stage = Stage(an_operation(deadline_at=NOON - timedelta(minutes=4)), failing(0))
    assert stage.run()["status"] == "succeeded"


@pytest.mark.parametrize(
    ("resume", "status"), [({}, "dead_lettered"), ({"deadline_seconds": 60}, "succeeded")]
)
def test_a_pause_over_the_deadline_keeps_no_first_attempt(resume: dict[str, Any], status: str) -> None:
    begin, end = NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)
    stage = Stage(an_operation(start_at=begin, deadline_at=end), failing(0)).waiting()
    assert stage.raise_event("pause", {"by": "ada"}).run_until_waiting()["status"] == "paused"
    stage.now = NOON + timedelta(minutes=5)
    stage.raise_event("resume", {"paused_at": paused_at(stage), "by": "ada", "change": resume})
    document = stage.run()
    assert (document["status"], stage.made("attempt")) == (status, int(status == "succeeded"))


def test_a_retry_that_nobody_made_before_the_deadline_is_not_made_and_says_why() -> None:
    stage = Stage(an_operation(deadline_at=NOON + timedelta(minutes=1)), failing(9)).waiting()
    stage.now = NOON + timedelta(minutes=5)
    document = stage.run()
    assert stage.made("attempt") == 1
    assert document["dead_letter"]["reason"] == "DeadlineExceeded"
    assert "for 290 s nothing here worked on the operation" in document["dead_letter"]["detail"]
