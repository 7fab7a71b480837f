from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.names import Category, OperationState, Priority
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.operations.waits import Change, Resume, waits_of
from durable_retry.rules.retry.history import History, PastAction, PastAttempt, PastWait, WaitKind
from durable_retry.rules.retry.policy import RetryPolicy
from tests.support.builders import NOON, an_operation
from tests.support.mistakes import pointers_of


def attempt(number: int, at: float, status_code: int | None = 503, **more: Any) -> PastAttempt:
    failed = PastAttempt(
        number=number,
        started_at=NOON + timedelta(seconds=at),
        duration_ms=500.0,
        category=Category.TRANSIENT,
        status_code=status_code,
        next_delay_seconds=2.0,
        delay_reasons=("fixed 2 s",),
    )
    return replace(failed, **more)


def document(
    state: OperationState, *attempts: PastAttempt, handler: str | None = None, **history: Any
) -> dict[str, Any]:
    past = History(attempts=attempts, attempt_count=len(attempts), **history)
    operation = an_operation(handler=handler)
    status = OperationStatus(operation=operation, state=state, history=past, updated_at=NOON)
    stored = status.to_json()
    return stored | {"waits": [wait.to_json() for wait in waits_of(stored)]}


HELD = PastWait(
    before_attempt=2,
    kind=WaitKind.CIRCUIT,
    began_at=NOON + timedelta(seconds=3),
    until=NOON + timedelta(seconds=33),
    delay_reasons=("payments answers 503: no upstream, since 2026-11-21T12:00:00Z", "staggered by 1 s"),
)


def test_the_pause_after_an_attempt_is_a_wait_like_any_other_in_its_place() -> None:
    failed = attempt(1, 0, error="no upstream")
    (pause, held) = document(OperationState.WAITING_CIRCUIT, failed, waits=(HELD,))["waits"]
    assert (pause["kind"], pause["before_attempt"]) == ("retry", 2)
    assert pause["began_at"] == "2026-11-21T12:00:00.500000Z"
    assert pause["until"] == "2026-11-21T12:00:02.500000Z"
    assert pause["delay_reasons"] == [
        "payments answers 503: no upstream, since 2026-11-21T12:00:00Z",
        "fixed 2 s",
    ]
    assert held == HELD.to_json()


def test_an_operation_that_did_not_wait_has_no_waits() -> None:
    done = attempt(1, 0, 200, category=None, next_delay_seconds=None, delay_reasons=())
    assert document(OperationState.SUCCEEDED, done)["waits"] == []


@pytest.mark.parametrize(
    ("last", "handler", "why"),
    [
        (attempt(3, 180), None, "payments answers 503, since 2026-11-21T12:02:00Z"),
        (attempt(3, 180, 500), None, "payments answers 500, since 2026-11-21T12:03:00Z"),
        (attempt(3, 180, None), None, "payments fails, since 2026-11-21T12:03:00Z"),
        (
            attempt(3, 180, None, error="ReadTimeout"),
            None,
            "payments fails: ReadTimeout, since 2026-11-21T12:03:00Z",
        ),
        (attempt(3, 180, None, error="boom"), "charge", "charge fails: boom, since 2026-11-21T12:03:00Z"),
        (
            attempt(3, 180, 429, category=Category.THROTTLED),
            None,
            "payments answers 429, this operation waits until 2026-11-21T12:03:02Z",
        ),
        (
            attempt(3, 180, None, category=Category.THROTTLED),
            "charge",
            "charge fails, this operation waits until 2026-11-21T12:03:02Z",
        ),
    ],
)
def test_an_operation_waits_because_of_what_failed_last_and_since_that_failed_so(
    last: PastAttempt, handler: str | None, why: str
) -> None:
    before = (attempt(1, 0, 500), attempt(2, 120))
    shown = document(OperationState.WAITING_RETRY, *before, last, handler=handler)
    assert shown["waits"][-1]["delay_reasons"][0] == why


def paused(*actions: PastAction, until: datetime | None = None, start_at: datetime | None = None) -> Any:
    history = History(attempts=(attempt(1, 0),), attempt_count=1, actions=actions)
    operation = an_operation(start_at=start_at)
    state, at = OperationState.PAUSED, NOON
    status = OperationStatus(
        operation=operation, state=state, history=history, updated_at=at, next_attempt_at=until
    )
    return [wait.to_json() for wait in waits_of(status.to_json())]


PAUSE = PastAction(action="pause", at=NOON + timedelta(seconds=1), by="ada", reason="the supplier moves")


def test_the_present_pause_is_the_last_wait_with_who_asked_for_it_and_why() -> None:
    (_, wait) = paused(PAUSE, until=NOON + timedelta(hours=1))
    assert wait == {
        "before_attempt": 2,
        "kind": "pause",
        "began_at": "2026-11-21T12:00:01Z",
        "until": "2026-11-21T13:00:00Z",
        "times": 1,
        "delay_reasons": ["paused by ada: the supplier moves"],
    }


def test_a_pause_until_somebody_resumes_has_no_end_and_says_what_is_known() -> None:
    (_, wait) = paused(PAUSE, replace(PAUSE, action="resume"), replace(PAUSE, by=None, reason=None))
    assert ("until" in wait, wait["delay_reasons"]) == (False, ["paused"])
    assert PastWait.from_json(wait).to_answer()["until"] is None


def test_a_pause_that_is_over_leaves_the_present_wait_the_last() -> None:
    actions = (PAUSE, replace(PAUSE, action="resume"))
    waits = document(OperationState.WAITING_RETRY, attempt(1, 0), actions=actions)["waits"]
    assert [wait["kind"] for wait in waits] == ["retry"]


def test_what_begins_later_waits_from_its_submission_on() -> None:
    operation = an_operation(start_at=NOON + timedelta(hours=1))
    for state in (OperationState.PENDING, OperationState.SUCCEEDED):
        status = OperationStatus(operation=operation, state=state, history=History(), updated_at=NOON)
        (wait,) = waits_of(status.to_json())
        assert (wait.before_attempt, wait.kind, wait.began_at, wait.until) == (
            1,
            WaitKind.START,
            operation.created_at,
            operation.start_at,
        )
        assert wait.delay_reasons == ("it begins at 2026-11-21T13:00:00Z, as submitted",)
    past = replace(operation, start_at=NOON - timedelta(hours=1))
    status = OperationStatus(operation=past, state=state, history=History(), updated_at=NOON)
    assert waits_of(status.to_json()) == ()


def test_what_may_be_replaced_waits_for_a_later_one_of_its_debounce_key() -> None:
    status = OperationStatus(
        operation=an_operation(),
        state=OperationState.SCHEDULED,
        history=History(),
        updated_at=NOON,
        next_attempt_at=NOON + timedelta(seconds=5),
    )
    (wait,) = waits_of(status.to_json() | {"debounce_key": "c-7"})
    assert (wait.kind, wait.until) == (WaitKind.START, status.next_attempt_at)
    assert wait.delay_reasons[0].startswith("a later one of its debounce key may replace it until ")


def change(body: dict[str, Any], present: RetryPolicy, limits: RetryPolicy | None = None) -> Change:
    return validated(Resume, body).change(limits or RetryPolicy(), present)


def test_a_resume_without_a_change_says_nothing() -> None:
    assert Change.of({"change": {}}) == Change()
    assert Change().applied(an_operation(), NOON) == an_operation()


def test_a_change_is_read_as_it_was_written() -> None:
    body = {"retry": {"max_attempts": 3}, "deadline_seconds": 0, "priority": "normal"}
    made = change(body, RetryPolicy())
    assert Change.of({"change": made.to_json()}) == made
    changed = made.applied(an_operation(priority=Priority.HIGH), NOON)
    assert (changed.policy.max_attempts, changed.deadline_at, changed.priority) == (3, None, None)
    assert made.told(changed) == body


def test_what_the_dependency_does_not_allow_is_refused_with_its_place() -> None:
    pointers = pointers_of(
        change, {"retry": {"max_attempts": 6, "respect_retry_after": False}}, RetryPolicy()
    )
    assert pointers == ["/retry/max_attempts", "/retry/respect_retry_after"]


def test_what_was_beyond_the_limits_before_is_no_mistake_of_a_change() -> None:
    present, limits = RetryPolicy(max_attempts=9), RetryPolicy(max_attempts=5)
    made = change({"retry": {"initial_seconds": 1.0}}, present, limits)
    assert made.policy(present) == RetryPolicy(max_attempts=9, initial_seconds=1.0)
    with pytest.raises(InvalidInputError):
        change({"retry": {"max_attempts": 8}}, present, limits)


def test_a_preset_is_told_as_all_that_it_says() -> None:
    made = change({"retry": {"preset": "none"}}, RetryPolicy())
    told = made.told(made.applied(an_operation(), NOON))["retry"]
    assert (told["max_attempts"], told["on_exhausted"]) == (1, "dead_letter")


def test_a_long_schedule_is_told_in_two_words() -> None:
    made = change({"retry": {"strategy": "schedule", "schedule_seconds": [1.0] * 11}}, RetryPolicy())
    told = made.told(made.applied(an_operation(), NOON))["retry"]
    assert told == {"strategy": "schedule", "schedule_seconds": "11 waits"}
