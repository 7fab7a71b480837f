"""What follows an attempt, or the refusal to let one start.

    overdue              before an attempt: DeadLetter when the deadline passed
    after_attempt        Done, Wait or DeadLetter
    after_own_failure    the call never left our side: Wait or DeadLetter
    while_blocked        the circuit or the retry budget lets no attempt start: Wait or DeadLetter

`engine.retry.loop` combines them. The same arguments give the same decision: time comes in as `now`, draws
come from a hash.
"""

from datetime import datetime
from typing import Final, assert_never

from durable_retry.engine.base.enums import Category, DeadLetterReason
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.text import cut_text, seconds_text
from durable_retry.engine.circuit.retry_budget import BudgetPostponed
from durable_retry.engine.circuit.snapshot import Refused
from durable_retry.engine.retry.decision import DeadLetter, Decision, Done, Retryable, Wait
from durable_retry.engine.retry.delay_constraints import (
    DelayConstraint,
    backoff_constraint,
    budget_constraint,
    circuit_constraint,
    is_over,
    latest_start,
    own_failure_constraint,
    reasons_of,
    retry_after_constraint,
)
from durable_retry.engine.retry.history import AttemptOutcome, AttemptRecord, History, WaitKind

MAX_OWN_FAILURES: Final = 20
"""Failures of our own side in a row after which a person must look: about fifty minutes of trying."""

_DETAIL_CHARS: Final = 500
_ERROR_CHARS: Final = 1_000


def overdue(operation: Retryable, history: History, now: datetime) -> DeadLetter | None:
    """Return the dead letter of an operation whose deadline passed before its next attempt, else None."""
    if not is_over(operation.deadline_at, now):
        return None
    return _too_late(operation, f"the deadline passed before attempt {history.next_attempt} could start")


def after_attempt(operation: Retryable, history: History, outcome: AttemptOutcome, now: datetime) -> Decision:
    """Decide what follows an attempt.

    Args:
        operation: With its policy, timeouts and deadline.
        history: Before this attempt.
        outcome: Of the attempt; one that is not counted never left our side.
        now: Aware UTC; the orchestrator's replay-safe time.
    """
    match outcome.category:
        case None:
            return Done(outcome.result)
        case Category.DEADLINE_EXCEEDED:
            return _too_late(operation, f"no time was left for attempt {outcome.number}")
        case Category.TRANSIENT | Category.THROTTLED if not outcome.counted:
            return after_own_failure(operation, history, _failure(outcome), now)
        case Category.TRANSIENT | Category.THROTTLED as category:
            if not operation.policy.allows_another(outcome.number):
                return _exhausted(operation, outcome, category)
            return _retry(operation, history, outcome, now)
        case _ as category:
            return _refused(operation, outcome, category)


def after_own_failure(operation: Retryable, history: History, error: str, now: datetime) -> Wait | DeadLetter:
    """Decide what follows when the call never left our side: the attempt is made again under its number.

    Args:
        operation: With its deadline.
        history: Before this failure; its `own_failures` in a row make the wait grow.
        error: One line for a person.
        now: Aware UTC; the orchestrator's replay-safe time.
    """
    failures = history.own_failures + 1
    if failures >= MAX_OWN_FAILURES:
        detail = f"attempt {history.next_attempt} never left this side {failures} times in a row: {error}"
        return _dead_letter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, detail)
    constraint = own_failure_constraint(operation, history, now)
    return _wait(operation, [constraint], now, f"attempt {history.next_attempt} failed: {error}")


def while_blocked(
    operation: Retryable, blocked: Refused | BudgetPostponed, now: datetime
) -> Wait | DeadLetter:
    """Decide about an attempt that is due and may not start yet; no attempt is counted.

    Args:
        operation: With its deadline.
        blocked: What blocks it: its circuit or its retry budget.
        now: Aware UTC; the orchestrator's replay-safe time.
    """
    match blocked:
        case Refused():
            constraint = circuit_constraint(operation, blocked, now)
            refusal = f"the circuit of {operation.dependency} refuses attempts"
            return _wait(operation, [constraint], now, refusal, kind=WaitKind.CIRCUIT)
        case BudgetPostponed():
            constraint = budget_constraint(operation, blocked)
            spent = "; ".join(constraint.reasons)
            return _wait(operation, [constraint], now, spent, kind=WaitKind.RETRY_BUDGET)
        case _ as never:
            assert_never(never)


def record(history: History, outcome: AttemptOutcome, decision: Decision) -> History:
    """Add an attempt and the decision after it; one that never left our side is noted and not counted."""
    if not outcome.counted:
        return history.with_own_failure()
    retry = decision if isinstance(decision, Wait) else None
    return history.with_attempt(
        AttemptRecord(
            number=outcome.number,
            started_at=outcome.started_at,
            duration_ms=outcome.duration_ms,
            category=outcome.category,
            status_code=outcome.status_code,
            error=None if outcome.error is None else cut_text(outcome.error, _ERROR_CHARS),
            next_delay_seconds=None if retry is None else round(retry.delay_seconds, 3),
            delay_reasons=() if retry is None else retry.reasons,
        )
    )


def _exhausted(operation: Retryable, outcome: AttemptOutcome, category: Category) -> DeadLetter:
    detail = f"attempt {outcome.number} of {operation.policy.max_attempts} failed: {_failure(outcome)}"
    return _dead_letter(category, DeadLetterReason.RETRIES_EXHAUSTED, detail)


def _refused(operation: Retryable, outcome: AttemptOutcome, category: Category) -> DeadLetter:
    """End what must not be sent again."""
    if category is Category.AMBIGUOUS:
        detail = f"the request may have taken effect, so it is not sent again: {_failure(outcome)}"
        return _dead_letter(category, DeadLetterReason.AMBIGUOUS_OUTCOME, detail)
    by_handler = operation.handler is not None
    reason = DeadLetterReason.REJECTED_BY_HANDLER if by_handler else DeadLetterReason.REJECTED_BY_DEPENDENCY
    return _dead_letter(category, reason, _failure(outcome))


def _retry(
    operation: Retryable, history: History, outcome: AttemptOutcome, now: datetime
) -> Wait | DeadLetter:
    constraints = [
        backoff_constraint(operation, history, outcome, now),
        *retry_after_constraint(operation, outcome, now),
    ]
    return _wait(operation, constraints, now, f"attempt {outcome.number} failed: {_failure(outcome)}")


def _wait(
    operation: Retryable,
    constraints: list[DelayConstraint],
    now: datetime,
    why: str,
    kind: WaitKind | None = None,
) -> Wait | DeadLetter:
    """Wait for the latest of all constraints, unless the attempt after the wait would miss the deadline."""
    until = max(constraint.at for constraint in constraints)
    if operation.deadline_at is not None and until > latest_start(operation.deadline_at, operation.timeouts):
        needed = seconds_text(operation.timeouts.connect_seconds)
        late = f"the next attempt, at {to_rfc3339(until)}, would have less than {needed} to connect"
        return _too_late(operation, f"{late} before the deadline; {why}")
    return Wait(until, (until - now).total_seconds(), reasons_of(constraints), kind)


def _failure(outcome: AttemptOutcome) -> str:
    status = "" if outcome.status_code is None else f"status {outcome.status_code}"
    return ", ".join(part for part in (status, outcome.error) if part) or f"{outcome.category}"


def _too_late(operation: Retryable, detail: str) -> DeadLetter:
    limit = "" if operation.deadline_at is None else f" (deadline {to_rfc3339(operation.deadline_at)})"
    return _dead_letter(
        Category.DEADLINE_EXCEEDED,
        DeadLetterReason.DEADLINE_EXCEEDED,
        cut_text(detail, _DETAIL_CHARS) + limit,
    )


def _dead_letter(category: Category, reason: DeadLetterReason, detail: str) -> DeadLetter:
    return DeadLetter(category, reason, cut_text(detail, _DETAIL_CHARS + 60))
