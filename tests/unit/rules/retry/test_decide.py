from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from durable_retry.base.names import Category, DeadLetterReason, OperationState
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused, release_seconds, throttled
from durable_retry.rules.retry.constraints import attempt_seconds
from durable_retry.rules.retry.decide import (
    MAX_OWN_FAILURES,
    DeadLetter,
    Done,
    Wait,
    after_attempt,
    overdue,
    record,
    while_blocked,
)
from durable_retry.rules.retry.history import AttemptOutcome, History, PastAction, StepFailure, WaitKind
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from durable_retry.rules.retry.retry_after import RetryHint
from tests.support import builders
from tests.support.builders import NOON, a_history, a_record, after, an_outcome
from tests.support.narrowing import existing, of_type

an_operation = partial(builders.an_operation, policy=RetryPolicy(jitter="none"))

OPEN_FOR_20_S = Refused(base=after(20), waiting=0, until=after(20), reason="failure ratio 0.8 over 20 calls")


def retry_of(**changes: Any) -> Wait:
    return of_type(Wait, after_attempt(an_operation(), History(), an_outcome(**changes), NOON))


def test_a_success_is_done() -> None:
    assert after_attempt(an_operation(), History(), an_outcome(None), NOON) == Done()


def test_a_transient_failure_is_retried_after_the_backoff() -> None:
    assert retry_of() == Wait(after(2), 2.0, ("exponential 2 s",))


def test_the_backoff_grows_with_the_attempts() -> None:
    decision = after_attempt(an_operation(), a_history(2), an_outcome(number=3), NOON)
    assert decision == Wait(after(8), 8.0, ("exponential 8 s",))


def test_the_reasons_name_the_jitter() -> None:
    operation = an_operation(policy=RetryPolicy())
    decision = of_type(Wait, after_attempt(operation, History(), an_outcome(), NOON))
    assert decision.reasons == ("exponential 2 s", "full jitter")
    assert 0 <= decision.delay_seconds <= 2


def test_the_last_attempt_is_dead_lettered() -> None:
    decision = after_attempt(an_operation(), a_history(4), an_outcome(number=5, error="HTTP 503"), NOON)
    assert decision == DeadLetter(
        Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, "attempt 5 of 5 failed: status 503, HTTP 503"
    )


def test_a_throttled_operation_out_of_attempts_keeps_its_category() -> None:
    decision = after_attempt(an_operation(), a_history(4), an_outcome(Category.THROTTLED, number=5), NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.category is Category.THROTTLED


def test_a_throttled_operation_waits_for_the_end_of_a_pause() -> None:
    decision = of_type(Wait, after_attempt(an_operation(), History(), an_outcome(Category.THROTTLED), NOON))
    assert decision.kind is WaitKind.THROTTLE


def test_what_a_throttling_pause_would_hold_beyond_its_deadline_is_dead_lettered() -> None:
    operation = an_operation(deadline_at=after(20))
    decision = of_type(DeadLetter, while_blocked(operation, throttled("op-test", after(30), 0, "429"), NOON))
    assert decision.detail.partition("; ")[2].startswith("payments asked for a pause")


def test_a_wait_for_an_open_circuit_says_how_the_dependency_fails_and_since_when() -> None:
    refusal = replace(
        OPEN_FOR_20_S, failure="answers 503: upstream connect error, since 2026-11-21T11:56:00Z"
    )
    decision = of_type(Wait, while_blocked(an_operation(), refusal, NOON))
    assert decision.reasons[:3] == (
        "payments answers 503: upstream connect error, since 2026-11-21T11:56:00Z",
        "failure ratio 0.8 over 20 calls",
        "circuit lets attempts through at 2026-11-21T12:00:20Z",
    )


def test_a_wait_for_the_end_of_a_pause_says_what_asked_for_it_and_until_when() -> None:
    decision = while_blocked(an_operation(), throttled("op-test", after(1_020), 0, "429"), NOON)
    assert isinstance(decision, Wait)
    assert decision.reasons == ("paused by 429 until 2026-11-21T12:17:00Z", "staggered by 0.812 s")


def test_unlimited_attempts_go_on() -> None:
    operation = an_operation(policy=RetryPolicy(max_attempts=-1, jitter="none"))
    decision = after_attempt(operation, a_history(3), an_outcome(number=10**9), NOON)
    assert decision == Wait(after(60), 60.0, ("exponential 60 s",))


@pytest.mark.parametrize("category", ["malformed", "unauthorized", "not_found", "business_rule"])
def test_a_refusal_is_never_retried(category: str) -> None:
    decision = after_attempt(an_operation(), History(), an_outcome(Category(category)), NOON)
    assert decision == DeadLetter(Category(category), DeadLetterReason.REJECTED_BY_DEPENDENCY, "status 503")


def test_a_handlers_refusal_names_the_handler() -> None:
    operation = an_operation(handler="ship-order", request=None)
    outcome = an_outcome(Category.BUSINESS_RULE, status_code=None, error="Rejected: no stock")
    decision = after_attempt(operation, History(), outcome, NOON)
    assert decision == DeadLetter(
        Category.BUSINESS_RULE, DeadLetterReason.REJECTED_BY_HANDLER, "Rejected: no stock"
    )


def test_an_answer_that_a_handler_got_is_the_dependencys_refusal() -> None:
    operation = an_operation(handler="ship-order", request=None)
    outcome = an_outcome(Category.MALFORMED, status_code=422, error="HTTPStatusError: no such sku")
    decision = of_type(DeadLetter, after_attempt(operation, History(), outcome, NOON))
    assert decision.reason is DeadLetterReason.REJECTED_BY_DEPENDENCY


@pytest.mark.shows("D6")
def test_an_ambiguous_outcome_is_never_sent_again() -> None:
    outcome = an_outcome(Category.AMBIGUOUS, status_code=None)
    decision = after_attempt(an_operation(), History(), outcome, NOON)
    assert decision == DeadLetter(
        Category.AMBIGUOUS,
        DeadLetterReason.AMBIGUOUS_OUTCOME,
        "the request may have taken effect, so it is not sent again: ambiguous",
    )


def test_an_attempt_without_time_is_a_missed_deadline() -> None:
    outcome = an_outcome(Category.DEADLINE_EXCEEDED)
    decision = after_attempt(an_operation(deadline_in=None), History(), outcome, NOON)
    assert decision == DeadLetter(
        Category.DEADLINE_EXCEEDED, DeadLetterReason.DEADLINE_EXCEEDED, "no time was left for attempt 1"
    )


def test_retry_after_is_a_lower_bound() -> None:
    decision = retry_of(retry_hint=RetryHint(30))
    assert decision == Wait(after(30), 30.0, ("exponential 2 s", "Retry-After 30 s"))


def test_a_short_retry_after_does_not_shorten_the_backoff() -> None:
    assert retry_of(retry_hint=RetryHint(1)).delay_seconds == 2


def test_an_absurd_retry_after_is_clamped_and_said_so() -> None:
    decision = retry_of(retry_hint=RetryHint(86_400, notes=("a note",)))
    assert decision.delay_seconds == 300
    assert decision.reasons[1:] == (
        "Retry-After 86400 s",
        "a note",
        "clamped to 300 s by max_retry_after_seconds",
    )


@pytest.mark.parametrize(
    ("asked", "seconds", "reasons"),
    [
        (1_800, 1_800, ("Retry-After 1800 s",)),
        (7_200, 1_800, ("Retry-After 7200 s", "clamped to 1800 s by max_pause_seconds")),
    ],
)
def test_who_was_answered_waits_as_long_as_the_pause_that_the_answer_began(
    asked: float, seconds: float, reasons: tuple[str, ...]
) -> None:
    decision = retry_of(retry_hint=RetryHint(asked), pause_seconds=1_800.0)
    assert (decision.delay_seconds, decision.reasons[1:]) == (seconds, reasons)


def test_an_unreadable_retry_after_is_a_reason() -> None:
    decision = retry_of(retry_hint=RetryHint(0, "", ("Retry-After ignored",)))
    assert decision == Wait(after(2), 2.0, ("exponential 2 s", "Retry-After ignored"))


def test_a_policy_may_ignore_retry_after() -> None:
    operation = an_operation(policy=RetryPolicy(jitter="none", respect_retry_after=False))
    decision = after_attempt(operation, History(), an_outcome(retry_hint=RetryHint(30)), NOON)
    assert decision == Wait(after(2), 2.0, ("exponential 2 s", "Retry-After 30 s is not respected"))


def test_a_wait_that_leaves_just_the_time_to_connect_is_allowed() -> None:
    assert isinstance(after_attempt(an_operation(deadline_in=4), History(), an_outcome(), NOON), Wait)


def test_a_wait_that_leaves_less_is_a_missed_deadline_at_once() -> None:
    decision = after_attempt(an_operation(deadline_in=3.9), History(), an_outcome(), NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert decision.category is Category.DEADLINE_EXCEEDED
    assert "less than 2 s to connect" in decision.detail
    assert "attempt 1 failed: status 503" in decision.detail
    assert "2026-11-21T12:00:03.900000Z" in decision.detail


def test_an_attempt_that_never_left_costs_no_attempt() -> None:
    outcome = an_outcome(number=5, counted=False, status_code=None, error="PoolTimeout")
    decision = of_type(Wait, after_attempt(an_operation(), a_history(4), outcome, NOON))
    assert 0.5 <= decision.delay_seconds <= 1
    assert decision.reasons[0] == "attempt 5 failed on this side and is not counted: PoolTimeout"
    assert decision.kind is WaitKind.OWN_FAILURE
    assert record(a_history(4), outcome, decision) == a_history(4).with_own_failure()


def test_our_own_trouble_has_a_backoff_of_its_own() -> None:
    history = a_history(4).with_own_failure().with_own_failure()
    decision = after_attempt(an_operation(), history, an_outcome(number=5, counted=False), NOON)
    assert isinstance(decision, Wait)
    assert 2 <= decision.delay_seconds <= 4


@pytest.mark.shows("P11")
def test_failures_of_our_own_side_in_a_row_end_after_three_quarters_of_an_hour_as_a_dead_letter() -> None:
    operation = an_operation(deadline_in=None, policy=RetryPolicy(max_attempts=-1, initial_seconds=0.05))
    history, now = a_history(4), NOON
    while True:
        outcome = an_outcome(number=5, counted=False, status_code=None, error="the worker failed")
        decision = after_attempt(operation, history, outcome, now)
        if not isinstance(decision, Wait):
            break
        history = record(history, outcome, decision)
        now = decision.until
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert decision.detail == "attempt 5 failed on this side 20 times in a row: the worker failed"
    assert 1_800 <= (now - NOON).total_seconds() <= 3_600


def test_a_refused_attempt_waits_for_its_place_after_the_circuit_lets_calls_through() -> None:
    decision = of_type(Wait, while_blocked(an_operation(), OPEN_FOR_20_S, NOON))
    assert decision.kind is WaitKind.CIRCUIT
    assert after(20) <= decision.until <= after(20 + release_seconds(0))
    assert decision.delay_seconds == (decision.until - NOON).total_seconds()
    assert decision.reasons[:2] == (
        "failure ratio 0.8 over 20 calls",
        "circuit lets attempts through at 2026-11-21T12:00:20Z",
    )
    assert decision.reasons[2].startswith("staggered by ")


OVER = Refused(base=after(-1), waiting=100, until=after(-1), reason="")
SPENT = BudgetPostponed(after(-1), reserved=False)


def test_a_break_that_ended_while_the_refusal_was_on_its_way_still_spreads_those_who_wait() -> None:
    decision = of_type(Wait, while_blocked(an_operation(), OVER, NOON))
    assert after(2) < decision.until <= after(2 + release_seconds(100))
    assert len(decision.reasons) == 2


@pytest.mark.parametrize("blocked", [OVER, SPENT])
@pytest.mark.parametrize(("left", "wait"), [(None, 2), (60, 2), (3, 1)])
def test_clocks_that_differ_do_not_make_a_blocked_attempt_ask_without_a_wait(
    blocked: Refused | BudgetPostponed, left: float | None, wait: float
) -> None:
    decision = of_type(Wait, while_blocked(an_operation(deadline_in=left), blocked, NOON))
    assert decision.until >= after(wait)


def test_a_turn_that_is_reserved_is_taken_without_a_second_wait() -> None:
    decision = of_type(Wait, while_blocked(an_operation(), BudgetPostponed(after(-1), reserved=True), NOON))
    assert decision.until < NOON


@pytest.mark.parametrize(("left", "seconds"), [(None, 10.0), (60, 10.0), (3, 3.0), (0, 0.0), (-5, 0.0)])
def test_an_attempt_has_its_own_time_cut_by_the_deadline(left: float | None, seconds: float) -> None:
    deadline = None if left is None else after(left)
    assert attempt_seconds(Timeouts(attempt_seconds=10), deadline, NOON) == seconds


def test_a_place_in_the_release_moves_forward_to_make_the_deadline() -> None:
    crowded = Refused(base=after(20), waiting=1_000_000, until=after(20), reason="open")
    decision = of_type(Wait, while_blocked(an_operation(deadline_in=30), crowded, NOON))
    assert decision.until == after(28)


def test_a_circuit_that_reopens_after_the_deadline_is_not_waited_for() -> None:
    decision = of_type(DeadLetter, while_blocked(an_operation(deadline_in=21), OPEN_FOR_20_S, NOON))
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "the circuit of payments refuses attempts" in decision.detail


def test_what_is_held_with_everything_says_so_and_how_its_deadline_goes_on() -> None:
    held = Refused(after(600), 0, after(600), "held by ada: wrong amounts", frozen=True)
    decision = while_blocked(an_operation(deadline_in=60), replace(held, stops_deadline=True), NOON)
    assert isinstance(decision, Wait)
    assert (decision.kind, decision.kind.state) == (WaitKind.FREEZE, OperationState.WAITING_CIRCUIT)
    assert decision.reasons[:2] == ("held by ada: wrong amounts", "it asks again at 2026-11-21T12:10:00Z")
    late = of_type(DeadLetter, while_blocked(an_operation(deadline_in=60), held, NOON))
    assert "before the deadline; held by ada: wrong amounts" in late.detail


@pytest.mark.parametrize(
    ("reserved", "then"), [(True, "this retry has its turn then"), (False, "it asks again then")]
)
def test_a_postponed_retry_waits_for_its_turn_and_says_why(*, reserved: bool, then: str) -> None:
    decision = while_blocked(an_operation(), BudgetPostponed(after(9), reserved=reserved), NOON)
    reason = f"the retry budget of payments is spent; {then}"
    assert decision == Wait(after(9), 9.0, (reason,), WaitKind.RETRY_BUDGET)


def test_a_budget_that_others_may_use_is_not_called_spent() -> None:
    decision = while_blocked(an_operation(), BudgetPostponed(after(1), reserved=False, is_left=True), NOON)
    reason = "other workers may use what is left of the retry budget of payments; it asks again then"
    assert decision == Wait(after(1), 1.0, (reason,), WaitKind.RETRY_BUDGET)


def test_a_turn_after_the_deadline_is_not_waited_for() -> None:
    decision = while_blocked(an_operation(), BudgetPostponed(after(3_599), reserved=False), NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "the retry budget of payments is spent; it asks again then" in decision.detail


def test_an_attempt_is_not_overdue_while_any_time_is_left() -> None:
    assert overdue(an_operation(deadline_in=0.1), a_history(1), None, NOON) is None


def test_an_attempt_is_overdue_after_the_deadline() -> None:
    decision = existing(overdue(an_operation(deadline_in=0), a_history(2), NOON, NOON))
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert decision.detail == (
        "the deadline passed before attempt 3 could start (deadline 2026-11-21T12:00:00Z)"
    )


def test_an_operation_without_deadline_is_always_in_time() -> None:
    late = NOON + timedelta(days=4_000)
    assert overdue(an_operation(deadline_in=None), a_history(1), None, late) is None


def test_a_deadline_that_passed_while_nobody_worked_says_so() -> None:
    decision = existing(overdue(an_operation(deadline_in=0), a_history(2), NOON - timedelta(minutes=5), NOON))
    assert (
        "it was due at 2026-11-21T11:55:00Z, and for 300 s nothing here worked on the operation"
        in decision.detail
    )


def test_an_attempt_that_reached_its_worker_too_late_says_so() -> None:
    outcome = an_outcome(number=2, category=Category.DEADLINE_EXCEEDED, counted=False)
    due_at = outcome.started_at - timedelta(minutes=1)
    decision = after_attempt(an_operation(deadline_in=0), a_history(1), outcome, NOON, due_at)
    assert isinstance(decision, DeadLetter)
    assert "no time was left for attempt 2: it was due at" in decision.detail
    assert "for 60 s nothing here worked on the operation" in decision.detail


def test_an_operation_that_was_never_tried_is_not_given_up_by_its_deadline() -> None:
    late = an_operation(deadline_in=0)
    assert overdue(late, History(), None, NOON) is None
    assert overdue(late, History(own_failures=1), None, NOON) is not None


@pytest.mark.parametrize(
    ("pause_at", "resume_at", "is_kept"),
    [(-9, 9, False), (-9, None, False), (-9, 0, True), (-9, -1, True), (1, 9, True)],
)
def test_an_operation_that_was_paused_over_its_deadline_is_not_tried_after_it(
    pause_at: int, resume_at: int | None, *, is_kept: bool
) -> None:
    history = History().with_action(PastAction(action="pause", at=after(pause_at)))
    if resume_at is not None:
        history = history.with_action(PastAction(action="resume", at=after(resume_at)))
    history = history.with_action(PastAction(action="retry_now", at=after(20)))
    decision = overdue(an_operation(deadline_in=0), history, None, after(60))
    assert (decision is None) is is_kept
    assert is_kept or "the deadline passed before attempt 1 could start: it was paused" in str(decision)


def test_the_attempt_that_was_owed_is_the_last() -> None:
    decision = after_attempt(an_operation(deadline_in=-60), History(), an_outcome(), NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "nothing here worked on the operation before its deadline; attempt 1 failed" in decision.detail


def test_a_short_attempt_needs_no_more_than_its_own_time() -> None:
    operation = an_operation(deadline_in=3, timeouts=Timeouts(connect_seconds=2, attempt_seconds=1))
    assert isinstance(after_attempt(operation, History(), an_outcome(), NOON), Wait)


def test_the_history_has_the_wait_and_its_reasons() -> None:
    outcome = an_outcome(error="x" * 5_000, retry_hint=RetryHint(1.23456))
    decision = after_attempt(an_operation(), History(), outcome, NOON)
    written = record(History(), outcome, decision).attempts[-1]
    assert written.next_delay_seconds == 2
    assert written.delay_reasons == ("exponential 2 s", "Retry-After 1.235 s")
    assert written.error is not None
    assert len(written.error) == 1_000
    assert written.error.endswith("... (cut)")


def test_nothing_follows_the_last_attempt_in_the_history() -> None:
    outcome = an_outcome(None, status_code=200)
    history = record(History(), outcome, Done())
    assert history.attempts == (a_record(category=None, status_code=200),)
    assert history.attempt_count == 1


def a_step(attempt: int, **changes: Any) -> StepFailure:
    policy = RetryPolicy(strategy="fixed", initial_seconds=30.0, max_attempts=3, jitter="none")
    return StepFailure(step="charge", attempt=attempt, policy=replace(policy, **changes))


def test_a_step_with_a_policy_of_its_own_waits_as_that_says() -> None:
    decision = after_attempt(an_operation(), History(), an_outcome(step=a_step(1)), NOON)
    assert decision == Wait(after(30), 30.0, ("fixed 30 s",))


def test_a_step_ends_the_operation_when_its_own_attempts_are_used_up() -> None:
    decision = after_attempt(an_operation(), History(), an_outcome(error="HTTP 503", step=a_step(3)), NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.RETRIES_EXHAUSTED
    assert decision.detail == "step charge: attempt 3 of 3 failed: status 503, HTTP 503"


def test_a_step_with_more_attempts_than_the_operation_goes_on() -> None:
    failed = an_outcome(number=9, step=a_step(9, max_attempts=20))
    assert isinstance(after_attempt(an_operation(), a_history(8), failed, NOON), Wait)


def test_a_step_is_told_to_wait_within_its_own_policy() -> None:
    failed = an_outcome(step=a_step(1, max_retry_after_seconds=40.0), retry_hint=RetryHint(90.0))
    decision = of_type(Wait, after_attempt(an_operation(), History(), failed, NOON))
    assert decision.delay_seconds == 40.0


def test_what_a_steps_own_policy_used_up_costs_the_operation_no_attempt() -> None:
    operation, history = an_operation(), History()
    for number in (1, 2):
        failed = an_outcome(number=number, step=a_step(number))
        history = record(history, failed, after_attempt(operation, history, failed, NOON))
    assert (history.attempt_count, history.step_failures) == (2, 2)
    assert History.from_json(history.to_json()) == history
    decision = after_attempt(operation, history, an_outcome(number=3), NOON)
    assert decision == Wait(after(2), 2.0, ("exponential 2 s",))
    last = of_type(DeadLetter, after_attempt(operation, history, an_outcome(number=7), NOON))
    assert last.detail.startswith("attempt 5 of 5 failed")


def test_an_outcome_without_such_a_step_has_the_form_of_before() -> None:
    assert "step" not in an_outcome().to_json()
    assert "step_failures" not in History().to_json()
    failed = an_outcome(step=a_step(2))
    assert AttemptOutcome.from_json(failed.to_json()) == failed


MISSING = an_outcome(error="dependency payments is not configured here any more", counted=False, missing=True)
UNDER_WAY = an_outcome(
    Category.AMBIGUOUS, error="may answer until 13:00", counted=False, may_answer_until=after(3_600)
)


@pytest.mark.parametrize("outcome", [MISSING, UNDER_WAY], ids=["missing", "under way"])
@pytest.mark.shows("A20", "A21")
def test_what_is_still_to_come_is_waited_for_however_often_it_was_not_there(outcome: AttemptOutcome) -> None:
    history, now, seconds = History(), NOON, 0.0
    for _ in range(200):
        decision = of_type(Wait, after_attempt(an_operation(deadline_in=None), history, outcome, now))
        assert decision.kind is WaitKind.OWN_FAILURE
        assert str(outcome.error) in decision.reasons[0]
        history, now, seconds = record(history, outcome, decision), decision.until, decision.delay_seconds
    assert seconds >= (150 if outcome is MISSING else 1)
    own = an_outcome(error="its marker was not written", counted=False)
    assert isinstance(after_attempt(an_operation(deadline_in=None), history, own, now), Wait)
    assert (history.attempt_count, history.next_attempt) == (0, 1)


def test_what_is_missing_is_waited_for_until_the_deadline() -> None:
    decision = of_type(DeadLetter, after_attempt(an_operation(deadline_in=2), History(), MISSING, NOON))
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "is not configured here any more" in decision.detail


def test_what_may_still_answer_is_looked_for_when_it_can_answer_no_more() -> None:
    ends_soon = replace(UNDER_WAY, may_answer_until=after(7))
    decision = of_type(Wait, after_attempt(an_operation(), History(own_failures=9), ends_soon, NOON))
    assert decision.until == after(7)


def test_what_may_still_answer_when_the_deadline_passes_may_have_taken_effect() -> None:
    decision = of_type(DeadLetter, after_attempt(an_operation(deadline_in=2), History(), UNDER_WAY, NOON))
    assert decision.reason is DeadLetterReason.AMBIGUOUS_OUTCOME


REFUSED = an_outcome(Category.UNAUTHORIZED, status_code=401, error="revoked", counted=False)


def test_a_refused_credential_waits_as_a_failure_of_our_own_side_and_costs_no_attempt() -> None:
    decision = of_type(Wait, after_attempt(an_operation(), History(), REFUSED, NOON))
    assert decision.kind is WaitKind.OWN_FAILURE
    assert "not counted: the credential is refused: status 401, revoked" in decision.reasons[0]
    history = record(History(), REFUSED, decision)
    assert (history.attempt_count, history.own_failures) == (0, 1)


def test_the_deadline_bounds_the_wait_for_a_credential() -> None:
    soon = an_operation(deadline_at=after(1))
    decision = of_type(DeadLetter, after_attempt(soon, History(), REFUSED, NOON))
    assert (decision.category, decision.reason) == ("deadline_exceeded", DeadLetterReason.DEADLINE_EXCEEDED)


def test_an_operation_that_alone_is_refused_again_and_again_ends_and_a_probe_does_not() -> None:
    often = History(own_failures=MAX_OWN_FAILURES - 1)
    decision = of_type(DeadLetter, after_attempt(an_operation(), often, REFUSED, NOON))
    assert (decision.category, decision.reason) == ("unauthorized", DeadLetterReason.REJECTED_BY_DEPENDENCY)
    probe = of_type(Wait, after_attempt(an_operation(), often, REFUSED, NOON, is_probe=True))
    assert record(often, REFUSED, probe, is_probe=True).own_failures == MAX_OWN_FAILURES - 1
    assert record(History(), REFUSED, probe, is_probe=True).own_failures == 1
