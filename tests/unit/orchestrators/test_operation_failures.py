import json
from datetime import timedelta
from itertools import repeat
from typing import Any

import pytest

from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.rules.retry.policy import RetryPolicy
from orchestrators.batch import batch
from tests.support.builders import NOON, Activities, an_operation, failing, first, outcome
from tests.support.feature_parts import followed_by
from tests.support.stage import Stage

EVENT = {"type": "charge.completed", "queue": "charge-events", "data": {}}


def refusing(what: str, times: int, attempts_failing: int = 0) -> Activities:
    """Return activities of which one fails so many times."""
    return first(what, repeat(ConnectionError("storage is away"), times), failing(attempts_failing))


def committing(times: int, **changes: Any) -> Stage:
    return Stage(an_operation(**followed_by(EVENT), **changes), refusing("commit", times))


def test_a_commit_that_fails_is_shown_as_a_failure_of_our_own_and_tried_again() -> None:
    stage = committing(2)
    shown = stage.run_until_waiting()
    assert shown["status"] == "waiting_retry"
    (wait,) = shown["waits"]
    assert (wait["kind"], wait["until"]) == ("own_failure", "2026-11-21T12:00:02Z")
    assert wait["delay_reasons"] == ["its commit failed 1 time in a row: ConnectionError: storage is away"]
    document = stage.run()
    assert (document["status"], document["attempt_count"], stage.made("commit")) == ("succeeded", 1, 3)


@pytest.mark.shows("P11")
def test_a_commit_that_never_succeeds_ends_as_a_dead_letter_that_says_what_took_effect() -> None:
    stage = committing(10**6)
    document = stage.run()
    assert stage.made("commit") == MAX_OWN_FAILURES
    letter = document["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("AmbiguousOutcome", "ambiguous")
    assert letter["detail"].startswith(
        "attempt 1 succeeded and has taken effect, and is not committed: its commit failed 20 times in a row"
    )
    entry = next(given for name, given in stage.activities if name == "dead_letter")
    assert entry["operation"]["acted_before"] is True


def test_what_storage_refuses_for_good_says_what_took_effect() -> None:
    rejected = {"run_id": "op-test.1", "events": [], "rejected": "InvalidInput: no such thing"}
    activities = first("commit", repeat(rejected), failing(0))
    letter = Stage(an_operation(**followed_by(EVENT)), activities).run()["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("RejectedByHandler", "malformed")
    assert letter["detail"] == (
        "attempt 1 succeeded and has taken effect, and is not committed: InvalidInput: no such thing"
    )


CONFLICT = {"table": "Orders", "partition_key": "p", "row_key": "o-1", "detail": "it was changed"}


def conflicting(times: int, *, sent_once: bool = False, **changes: Any) -> Stage:
    """Return an operation of a handler whose first commits meet a row that is not as it wants it."""
    left, result = [times], {"value": 1, "writes": [{"mode": "update"}], "sent_once": sent_once}

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "commit":
            left[0] -= 1
            return {"run_id": "op-test.1"} | ({"conflict": CONFLICT} if left[0] >= 0 else {})
        if name == "dead_letter":
            return "dl-1"
        return outcome(given["attempt"], result=result, app_version="2.1")

    return Stage(an_operation(handler="pay", **changes), answer)


def test_a_conflict_runs_the_handler_again_which_sees_it() -> None:
    stage = conflicting(1)
    document = stage.run()
    calls = [given for name, given in stage.activities if name == "attempt"]
    assert [call.get("conflict") for call in calls] == [None, CONFLICT]
    assert calls[1]["acted_before"] is True
    assert (document["status"], document["attempt_count"]) == ("succeeded", 2)
    conflicted, succeeded = document["attempts"]
    assert conflicted["error"] == "Conflict: row 'o-1' of Orders: it was changed"
    assert (conflicted["category"], succeeded["category"]) == ("transient", None)
    assert (conflicted["app_version"], succeeded["app_version"]) == ("2.1", "2.1")
    assert conflicted["next_delay_seconds"] is not None
    assert document["result"] == {"value": 1}


def test_a_conflict_outlives_the_history_in_which_it_was() -> None:
    stage = conflicting(7, policy=RetryPolicy(max_attempts=9))
    assert stage.run()["status"] == "succeeded"
    calls = [given for name, given in stage.activities if name == "attempt"]
    assert [call.get("conflict") for call in calls] == [None, *[CONFLICT] * 7]


def test_conflicts_use_up_the_attempts_of_the_policy() -> None:
    stage = conflicting(99)
    letter = stage.run()["dead_letter"]
    assert (letter["reason"], stage.made("commit")) == ("RetriesExhausted", 5)
    assert letter["detail"] == "attempt 5 of 5 failed: Conflict: row 'o-1' of Orders: it was changed"


def test_a_handler_that_sent_what_is_sent_once_does_not_run_again_after_a_conflict() -> None:
    stage = conflicting(1, sent_once=True)
    letter = stage.run()["dead_letter"]
    assert (letter["reason"], stage.made("attempt")) == ("RejectedByHandler", 1)
    assert letter["detail"] == (
        "attempt 1 succeeded and has taken effect, and is not committed: "
        "Conflict: row 'o-1' of Orders: it was changed"
    )


def test_a_cancel_ends_a_commit_that_fails() -> None:
    stage = committing(10**6).waiting()
    document = stage.raise_event("cancel", {"by": "ada"}).run()
    assert (document["status"], document["may_have_acted"], stage.made("commit")) == ("cancelled", True, 2)
    assert document["actions"][-1]["by"] == "ada"


def test_a_commit_that_fails_once_is_tried_again_before_a_cancel_ends_it() -> None:
    """The one that failed may have committed."""
    stage = committing(1).waiting()
    assert stage.raise_event("cancel", {"by": "ada"}).run()["status"] == "succeeded"
    assert stage.now == NOON


def test_retry_now_ends_the_wait_of_a_commit_that_fails() -> None:
    stage = committing(1).waiting()
    stage.raise_event("retry_now", {"attempt": 2, "by": None})
    assert stage.run_until_waiting()["status"] == "succeeded"
    assert stage.now == NOON


@pytest.mark.parametrize(
    ("failures", "status"), [(4, "succeeded"), (5, "dead_lettered")], ids=["half a minute", "longer"]
)
def test_a_deadline_ends_a_commit_that_fails_for_longer_than_a_moment(failures: int, status: str) -> None:
    stage = committing(failures, deadline_at=NOON + timedelta(seconds=10))
    assert stage.run()["status"] == status
    assert stage.made("commit") == 5


@pytest.mark.parametrize("failures", [1, MAX_OWN_FAILURES - 1])
def test_a_dead_letter_that_cannot_be_stored_is_shown_and_stored_later(failures: int) -> None:
    stage = Stage(an_operation(), refusing("dead_letter", failures, attempts_failing=99))
    document = stage.run()
    assert (document["status"], document["dead_letter"]["id"]) == ("dead_lettered", "dl-1")
    assert [wait["kind"] for wait in document["waits"]] == ["own_failure"]
    assert document["waits"][0]["times"] == failures


def test_a_dead_letter_that_can_never_be_stored_fails_the_orchestration_where_upkeep_finds_it() -> None:
    stage = Stage(an_operation(), refusing("dead_letter", 10**6, attempts_failing=99))
    with pytest.raises(AssertionError, match=r"the storing of its dead letter failed 20 times in a row.*"):
        stage.run()
    assert stage.made("dead_letter") == MAX_OWN_FAILURES
    assert "it says RetriesExhausted: attempt 5 of 5 failed" in (stage.failure or "")


def test_a_cancel_ends_the_storing_of_a_dead_letter() -> None:
    stage = Stage(an_operation(), refusing("dead_letter", 10**6, attempts_failing=99))
    while not stage.made("dead_letter"):
        stage.run_until_attempt(stage.made("attempt") + 1)
    assert stage.raise_event("cancel", {}).run()["status"] == "cancelled"
    assert stage.made("dead_letter") == 2


def test_the_storing_of_a_dead_letter_is_tried_again_before_a_cancel_ends_it() -> None:
    """Else a cancelled operation would have an open dead letter, where it was stored all the same."""
    stage = Stage(an_operation(), refusing("dead_letter", 1, attempts_failing=99))
    while not stage.made("dead_letter"):
        stage.run_until_attempt(stage.made("attempt") + 1)
    document = stage.raise_event("cancel", {}).run()
    assert (document["status"], document["dead_letter"]["id"]) == ("dead_lettered", "dl-1")


def test_what_no_operation_waits_for_is_bounded_too() -> None:
    stage = Stage(an_operation(), refusing("batch_close", 10**6), batch)
    stage._begin(json.dumps({"batch_id": "b-1", "progress": {"total": 0, "max_concurrency": 1}}))
    with pytest.raises(AssertionError, match="batch_close failed 20 times in a row: ConnectionError"):
        stage.run()
    assert stage.made("batch_close") == MAX_OWN_FAILURES
