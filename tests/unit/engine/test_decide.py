from datetime import timedelta
from typing import Any

import pytest

from engine.circuit.release import spread_seconds
from engine.decide import (
    CLOSED,
    RECHECK_SECONDS,
    CircuitView,
    DeadLetter,
    Decision,
    Done,
    RetryAt,
    WaitForCircuit,
    decide,
    overdue,
    record,
)
from engine.operation import History, OperationInput
from engine.policy import RetryPolicy, Timeouts
from engine.retry_after import RetryHint
from engine.vocabulary import Category, DeadLetterReason
from tests.engine_samples import NOON, a_history, a_record, after, an_operation, an_outcome

OPEN_FOR_20_S = CircuitView(refuses=True, retry_at=after(20), reason="failure ratio 0.8 over 20 calls")
FORCED_OPEN = CircuitView(refuses=True, reason="forced open by ops")


def retry_of(**changes: Any) -> RetryAt:
    decision = decide(an_operation(), History(), an_outcome(**changes), CLOSED, NOON)
    assert isinstance(decision, RetryAt)
    return decision


def refused(operation: OperationInput, circuit: CircuitView) -> Decision:
    return decide(operation, History(), an_outcome(Category.CIRCUIT_OPEN), circuit, NOON)


def test_a_success_is_done() -> None:
    assert decide(an_operation(), History(), an_outcome(None), CLOSED, NOON) == Done()


def test_a_transient_failure_is_retried_after_the_backoff() -> None:
    assert retry_of() == RetryAt(after(2), 2.0, ("exponential 2 s",))


def test_the_backoff_grows_with_the_attempts() -> None:
    decision = decide(an_operation(), a_history(2), an_outcome(number=3), CLOSED, NOON)
    assert decision == RetryAt(after(8), 8.0, ("exponential 8 s",))


def test_the_reasons_name_the_jitter() -> None:
    operation = an_operation(policy=RetryPolicy())
    decision = decide(operation, History(), an_outcome(), CLOSED, NOON)
    assert isinstance(decision, RetryAt)
    assert decision.reasons == ("exponential 2 s", "full jitter")
    assert 0 <= decision.delay_seconds <= 2


def test_the_last_attempt_is_dead_lettered() -> None:
    decision = decide(an_operation(), a_history(4), an_outcome(number=5, error="HTTP 503"), CLOSED, NOON)
    assert decision == DeadLetter(
        Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, "attempt 5 of 5 failed: status 503, HTTP 503"
    )


def test_a_throttled_operation_out_of_attempts_keeps_its_category() -> None:
    decision = decide(an_operation(), a_history(4), an_outcome(Category.THROTTLED, number=5), CLOSED, NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.category is Category.THROTTLED


def test_unlimited_attempts_go_on() -> None:
    operation = an_operation(policy=RetryPolicy(max_attempts=-1, jitter="none"))
    decision = decide(operation, a_history(3), an_outcome(number=10**9), CLOSED, NOON)
    assert decision == RetryAt(after(60), 60.0, ("exponential 60 s",))


@pytest.mark.parametrize("category", ["malformed", "unauthorized", "not_found", "business_rule"])
def test_a_refusal_is_never_retried(category: str) -> None:
    decision = decide(an_operation(), History(), an_outcome(Category(category)), CLOSED, NOON)
    assert decision == DeadLetter(Category(category), DeadLetterReason.REJECTED_BY_DEPENDENCY, "status 503")


def test_a_handlers_refusal_names_the_handler() -> None:
    operation = an_operation(handler="ship-order", request=None)
    outcome = an_outcome(Category.BUSINESS_RULE, status_code=None, error="Rejected: no stock")
    decision = decide(operation, History(), outcome, CLOSED, NOON)
    assert decision == DeadLetter(
        Category.BUSINESS_RULE, DeadLetterReason.REJECTED_BY_HANDLER, "Rejected: no stock"
    )


def test_an_ambiguous_outcome_is_never_sent_again() -> None:
    outcome = an_outcome(Category.AMBIGUOUS, status_code=None)
    decision = decide(an_operation(), History(), outcome, CLOSED, NOON)
    assert decision == DeadLetter(
        Category.AMBIGUOUS,
        DeadLetterReason.AMBIGUOUS_OUTCOME,
        "the request may have taken effect, so it is not sent again: ambiguous",
    )


def test_an_attempt_without_time_is_a_missed_deadline() -> None:
    outcome = an_outcome(Category.DEADLINE_EXCEEDED)
    decision = decide(an_operation(deadline_in=None), History(), outcome, CLOSED, NOON)
    assert decision == DeadLetter(
        Category.DEADLINE_EXCEEDED, DeadLetterReason.DEADLINE_EXCEEDED, "no time was left for attempt 1"
    )


def test_retry_after_is_a_lower_bound() -> None:
    decision = retry_of(retry_hint=RetryHint(30))
    assert decision == RetryAt(after(30), 30.0, ("exponential 2 s", "Retry-After 30 s"))


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


def test_an_unreadable_retry_after_is_told() -> None:
    decision = retry_of(retry_hint=RetryHint(0, "", ("Retry-After ignored",)))
    assert decision == RetryAt(after(2), 2.0, ("exponential 2 s", "Retry-After ignored"))


def test_a_policy_may_ignore_retry_after() -> None:
    operation = an_operation(policy=RetryPolicy(jitter="none", respect_retry_after=False))
    decision = decide(operation, History(), an_outcome(retry_hint=RetryHint(30)), CLOSED, NOON)
    assert decision == RetryAt(after(2), 2.0, ("exponential 2 s", "Retry-After 30 s is not respected"))


def test_a_retry_waits_for_the_circuit_and_takes_its_place_in_the_release() -> None:
    decision = decide(an_operation(), History(), an_outcome(), OPEN_FOR_20_S, NOON)
    assert isinstance(decision, RetryAt)
    assert 20 <= decision.delay_seconds <= 20 + spread_seconds(0)
    assert decision.reasons[1] == "circuit lets attempts through in 20 s"
    assert decision.reasons[2].startswith("staggered by ")


def test_what_the_circuit_said_about_the_past_counts_no_more() -> None:
    stale = CircuitView(refuses=True, retry_at=after(-1))
    assert decide(an_operation(), History(), an_outcome(), stale, NOON) == retry_of()


def test_a_place_in_the_release_moves_forward_to_make_the_deadline() -> None:
    crowded = CircuitView(refuses=True, retry_at=after(20), waiting=1_000_000)
    decision = decide(an_operation(deadline_in=30), History(), an_outcome(), crowded, NOON)
    assert isinstance(decision, RetryAt)
    assert decision.at == after(28)


def test_a_wait_that_leaves_just_the_time_to_connect_is_allowed() -> None:
    decision = decide(an_operation(deadline_in=4), History(), an_outcome(), CLOSED, NOON)
    assert isinstance(decision, RetryAt)


def test_a_wait_that_leaves_less_is_a_missed_deadline_at_once() -> None:
    decision = decide(an_operation(deadline_in=3.9), History(), an_outcome(), CLOSED, NOON)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert decision.category is Category.DEADLINE_EXCEEDED
    assert "less than 2 s to connect" in decision.detail
    assert "attempt 1 failed: status 503" in decision.detail
    assert "2026-11-21T12:00:03.900000Z" in decision.detail


def test_an_attempt_that_never_left_costs_no_attempt() -> None:
    outcome = an_outcome(number=5, counted=False, status_code=None, error="PoolTimeout")
    decision = decide(an_operation(), a_history(4), outcome, CLOSED, NOON)
    told = "attempt 5 never left this side and is not counted"
    assert decision == RetryAt(after(2), 2.0, (told, "exponential 2 s"))
    assert record(a_history(4), outcome, decision) == a_history(4).with_own_failure()


def test_our_own_trouble_has_a_backoff_of_its_own() -> None:
    history = a_history(4).with_own_failure().with_own_failure()
    decision = decide(an_operation(), history, an_outcome(number=5, counted=False), CLOSED, NOON)
    assert isinstance(decision, RetryAt)
    assert decision.delay_seconds == 8


def test_a_refused_attempt_waits_for_the_circuit_uncounted() -> None:
    outcome = an_outcome(Category.CIRCUIT_OPEN)
    decision = decide(an_operation(), a_history(1), outcome, OPEN_FOR_20_S, NOON)
    assert isinstance(decision, WaitForCircuit)
    assert after(20) <= decision.until <= after(20 + spread_seconds(0))
    assert decision.delay_seconds == (decision.until - NOON).total_seconds()
    assert decision.reasons[0] == "failure ratio 0.8 over 20 calls"
    assert record(a_history(1), outcome, decision) == a_history(1).with_circuit_wait()


def test_a_refusal_may_say_when_to_ask_again() -> None:
    outcome = an_outcome(Category.CIRCUIT_OPEN, retry_hint=RetryHint(5, "probe in flight"))
    decision = decide(an_operation(), History(), outcome, CLOSED, NOON)
    assert decision == WaitForCircuit(after(5), 5.0, ("probe in flight 5 s",))


def test_a_circuit_that_names_no_time_is_asked_again() -> None:
    decision = refused(an_operation(), FORCED_OPEN)
    told = ("forced open by ops", "circuit names no time, asked again in 15 s")
    assert decision == WaitForCircuit(after(RECHECK_SECONDS), RECHECK_SECONDS, told)


def test_the_last_question_to_the_circuit_comes_before_the_deadline() -> None:
    decision = refused(an_operation(deadline_in=10), FORCED_OPEN)
    assert isinstance(decision, WaitForCircuit)
    assert decision.until == after(8)


def test_a_circuit_that_names_no_time_is_waited_for_without_a_deadline() -> None:
    decision = refused(an_operation(deadline_in=None), FORCED_OPEN)
    assert isinstance(decision, WaitForCircuit)


def test_a_circuit_is_not_waited_for_when_no_time_is_left() -> None:
    decision = refused(an_operation(deadline_in=2), FORCED_OPEN)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED


def test_a_circuit_that_reopens_after_the_deadline_is_not_waited_for() -> None:
    decision = refused(an_operation(deadline_in=21), OPEN_FOR_20_S)
    assert isinstance(decision, DeadLetter)
    assert "the circuit of payments refuses attempts" in decision.detail


def test_an_attempt_is_not_overdue_while_any_time_is_left() -> None:
    assert overdue(an_operation(deadline_in=0.1), History(), NOON) is None


def test_an_attempt_is_overdue_after_the_deadline() -> None:
    decision = overdue(an_operation(deadline_in=0), a_history(2), NOON)
    assert decision is not None
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert decision.detail.startswith("the deadline passed before attempt 3 could start")


def test_an_operation_without_deadline_is_always_in_time() -> None:
    late = NOON + timedelta(days=4_000)
    assert overdue(an_operation(deadline_in=None), History(), late) is None


def test_a_short_attempt_needs_no_more_than_its_own_time() -> None:
    operation = an_operation(deadline_in=3, timeouts=Timeouts(connect_seconds=2, attempt_seconds=1))
    assert isinstance(decide(operation, History(), an_outcome(), CLOSED, NOON), RetryAt)


def test_the_history_tells_the_wait_and_its_reasons() -> None:
    outcome = an_outcome(error="x" * 5_000, retry_hint=RetryHint(1.23456))
    decision = decide(an_operation(), History(), outcome, CLOSED, NOON)
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
