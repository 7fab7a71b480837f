from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import GONE, Category
from durable_retry.features.debounce.rules import Debounce
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.facts import ActedOn
from durable_retry.rules.retry.retry_after import RetryHint
from orchestrators import holding
from tests.support.builders import NOON, after, an_operation, failing, first, outcome
from tests.support.stage import HOLDING, Stage, held, resume


def numbers(stage: Stage) -> list[tuple[int, int | None]]:
    """Return the number of each attempt, and how many before it did not count."""
    return [(each["attempt"], each.get("forgiven")) for name, each in stage.activities if name == "attempt"]


def test_its_policy_pauses_what_has_no_attempts_left() -> None:
    stage = held(failing(2))
    (action,) = stage.custom_status["actions"]
    assert (action["action"], action["by"]) == ("pause", "the policy")
    assert action["reason"].startswith("RetriesExhausted: attempt 2 of 2 failed: status 503")
    assert stage.custom_status["next_attempt_at"] == "2026-11-21T13:00:10Z"
    assert stage.made("dead_letter") == 0


def test_it_is_a_dead_letter_when_nobody_came() -> None:
    stage = held(failing(99))
    document = stage.run()
    assert (document["status"], document["attempt_count"]) == ("dead_lettered", 2)
    assert document["dead_letter"]["reason"] == "RetriesExhausted"
    assert [each["action"] for each in document["actions"]] == ["pause"]
    assert stage.now == after(10) + timedelta(hours=1)


def test_a_week_is_the_longest_hold_where_none_is_written() -> None:
    stage = held(failing(99), policy=replace(HOLDING, hold_seconds=None))
    assert stage.custom_status["next_attempt_at"] == "2026-11-28T12:00:10Z"


def test_resumed_it_has_all_its_attempts_and_all_its_time_again() -> None:
    stage = held(failing(3))
    stage.now += timedelta(minutes=50)
    resume(stage)
    document = stage.run()
    assert (document["status"], document["attempt_count"]) == ("succeeded", 4)
    assert numbers(stage) == [(1, None), (2, None), (3, 2), (4, 2)]
    assert document["deadline_at"] == "2026-11-21T13:50:10Z"
    assert [(each["action"], each["by"]) for each in document["actions"]] == [
        ("pause", "the policy"),
        ("resume", "ada"),
    ]


def test_it_is_held_again_when_they_are_used_up() -> None:
    stage = held(failing(99))
    resume(stage)
    stage.run_until_attempt(4)
    assert stage.custom_status["status"] == "paused"
    assert [each["action"] for each in stage.custom_status["actions"]] == ["pause", "resume", "pause"]
    assert stage.custom_status["actions"][-1]["reason"].startswith("RetriesExhausted: attempt 2 of 2 failed")


def test_what_has_no_time_left_is_held_and_has_it_again() -> None:
    stage = held(failing(1), deadline_in=5)
    assert stage.custom_status["actions"][-1]["reason"].startswith("DeadlineExceeded: ")
    resume(stage)
    document = stage.run()
    assert (document["status"], document["deadline_at"]) == ("succeeded", "2026-11-21T13:00:00Z")


@pytest.mark.parametrize("deadline_in", [None, 40], ids=["no attempts", "no time"])
def test_resumed_it_heeds_what_the_dependency_asked_for_unless_it_is_to_be_sent_now(
    deadline_in: int | None,
) -> None:
    policy = replace(HOLDING, max_attempts=1 if deadline_in is None else 2)
    refused = outcome(1, category=Category.TRANSIENT, status_code=423, retry_hint=RetryHint(90))

    def resumed() -> Stage:
        stage = held(first("attempt", [refused], failing(0)), policy=policy, deadline_in=deadline_in)
        resume(stage, change={"deadline_seconds": 3600.0})
        stage.turn()
        return stage

    stage = resumed()
    assert stage.custom_status["status"] == "waiting_retry"
    assert stage.custom_status["waits"][-1]["delay_reasons"] == ["Retry-After 90 s"]
    assert stage.run()["status"] == "succeeded"
    assert stage.now == after(90)
    stage = resumed()
    assert stage.raise_event("retry_now", {"attempt": 2, "by": "ada"}).run()["status"] == "succeeded"
    assert stage.now < after(90)


def test_a_circuit_that_held_it_up_to_its_deadline_counts_it_no_more_once_it_begins_anew() -> None:
    refused = Refused(base=after(60), waiting=0, until=after(60), reason="the circuit is open")
    answers = ({"stopped": refused.to_json()} for _ in range(1))
    stage = held(first("attempt", answers, failing(0)), deadline_in=30)
    resume(stage)
    assert stage.run()["status"] == "succeeded"
    assert [call for call in stage.calls["circuit_breaker"] if call[0] == GONE] == [
        (GONE, {"was_waiting": True, "was_promised": False})
    ]


@pytest.mark.parametrize("category", [Category.MALFORMED, Category.AMBIGUOUS, Category.BUSINESS_RULE])
def test_what_is_refused_or_unknown_is_not_held(category: Category) -> None:
    document = Stage(an_operation(policy=HOLDING), failing(1, category, 422)).run()
    assert document["status"] == "dead_lettered"
    assert "actions" not in document


def test_it_is_cancelled_while_it_is_held() -> None:
    stage = held(failing(99))
    document = stage.raise_event("cancel", {"by": "ada"}).run()
    assert (document["status"], stage.made("dead_letter")) == ("cancelled", 0)
    assert [each["action"] for each in document["actions"]] == ["pause", "cancel"]


def test_what_somebody_cancelled_during_its_last_attempt_is_not_held() -> None:
    stage = Stage(an_operation(policy=replace(HOLDING, max_attempts=1)), failing(99))
    stage.turn()
    stage.raise_event("cancel", {"by": "ada"})
    stage.inbox.reverse()
    document = stage.run()
    assert [each["action"] for each in document["actions"]] == ["cancel"]


def test_a_change_at_once_that_came_late_ends_the_hold() -> None:
    stage = held(failing(2))
    stage.raise_event("pause", {"by": "ada", "at_once": True, "change": {"deadline_seconds": 60.0}})
    document = stage.run()
    assert (document["status"], document["deadline_at"]) == ("succeeded", "2026-11-21T12:01:10Z")


def test_what_cannot_begin_is_held_and_asks_again() -> None:
    debounce = Debounce(entity="e1", key="reindex", seconds=10.0, accepted_at=NOON)
    stage = Stage(an_operation(policy=HOLDING, parts={"debounce": debounce.to_json()}), failing(0))
    stage.states["debounce"] = {"series": "of another kind"}
    while (stage.custom_status or {}).get("status") != "paused":
        if not stage.inbox:
            stage._fire_next_timer()
        stage.turn()
    stage.states["debounce"] = None
    resume(stage)
    assert stage.run()["status"] == "succeeded"
    assert numbers(stage) == [(1, None)]


def test_that_it_is_held_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Any] = []
    monkeypatch.setattr(holding, "report", facts.append)
    held(failing(99)).run()
    (fact,) = facts
    assert isinstance(fact, ActedOn)
    assert (fact.action, fact.by, fact.document["status"]) == ("pause", "the policy", "paused")


def test_without_the_feature_it_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrators.run.features", tuple)
    assert Stage(an_operation(policy=HOLDING), failing(99)).run()["status"] == "dead_lettered"
