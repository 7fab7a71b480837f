"""What happens next: the one place where that is decided.

An orchestrator uses these functions:

    overdue(operation, history, now)                   before one: DeadLetter, or None while there is time
    decide(operation, history, outcome, circuit, now)  after one: Done, RetryAt, WaitForCircuit or DeadLetter
    record(history, outcome, decision)                 the history to go on with
    postpone(operation, hold, now)                     a retry that is due but held up: RetryAt or DeadLetter

The same arguments give the same decision: time comes in as `now`, draws come from a hash.
"""

from datetime import datetime, timedelta
from typing import Final

from engine.deadline import is_over, latest_start
from engine.decision import (
    CLOSED,
    CircuitView,
    DeadLetter,
    Decision,
    Done,
    Hold,
    RetryAt,
    WaitForCircuit,
)
from engine.instants import to_rfc3339
from engine.lower_bound import asked_by, pace_of, reasons_of, told_by_circuit
from engine.operation import AttemptOutcome, AttemptRecord, History, OperationInput
from engine.vocabulary import Category, DeadLetterReason
from engine.wording import cut_text, seconds_text

__all__ = [
    "CLOSED",
    "CircuitView",
    "DeadLetter",
    "Decision",
    "Done",
    "Hold",
    "RetryAt",
    "WaitForCircuit",
    "decide",
    "overdue",
    "postpone",
    "record",
]

RECHECK_SECONDS: Final = 15.0
"""How soon a circuit is asked again that does not know when it will let an attempt through."""

_DETAIL_CHARS: Final = 500
_ERROR_CHARS: Final = 1_000


def overdue(operation: OperationInput, history: History, now: datetime) -> DeadLetter | None:
    """Tell whether it is too late for an attempt: at the very start, and after a wait.

    Args:
        operation: The operation, with its policy, timeouts and deadline.
        history: What it has been through.
        now: The present, aware UTC; the orchestrator's replay-safe one.

    Returns:
        None while there is time.
    """
    if not is_over(operation.deadline_at, now):
        return None
    return _too_late(operation, f"the deadline passed before attempt {history.next_attempt} could start")


def decide(
    operation: OperationInput,
    history: History,
    outcome: AttemptOutcome,
    circuit: CircuitView,
    now: datetime,
) -> Decision:
    """Decide what follows an attempt.

    Args:
        operation: The operation, with its policy, timeouts and deadline.
        history: What it had been through before this attempt.
        outcome: What the attempt gave.
        circuit: The dependency's circuit as last seen.
        now: The present, aware UTC; the orchestrator's replay-safe one.
    """
    match outcome.category:
        case None:
            return Done()
        case Category.CIRCUIT_OPEN:
            return _wait_for_circuit(operation, circuit, now, outcome)
        case Category.DEADLINE_EXCEEDED:
            return _too_late(operation, f"no time was left for attempt {outcome.number}")
        case Category.TRANSIENT | Category.THROTTLED as category:
            return _exhausted(operation, outcome, category) or _retry(
                operation, history, outcome, circuit, now
            )
        case _ as category:
            return _refused(operation, outcome, category)


def record(history: History, outcome: AttemptOutcome, decision: Decision) -> History:
    """Add an attempt, and what was decided after it, to the history.

    An attempt that the circuit refused, or that never left this side, is noted but not counted.
    """
    if outcome.category is Category.CIRCUIT_OPEN:
        return history.with_circuit_wait()
    if not outcome.counted:
        return history.with_own_failure()
    retry = decision if isinstance(decision, RetryAt) else None
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


def postpone(operation: OperationInput, hold: Hold, now: datetime) -> RetryAt | DeadLetter:
    """Decide about a retry that is due but has to wait its turn, as the retry budget says."""
    if (late := _misses_deadline(operation, hold.until)) is not None:
        return _too_late(operation, f"{late}; {hold.reason}")
    return RetryAt(hold.until, (hold.until - now).total_seconds(), (hold.reason,))


def _exhausted(operation: OperationInput, outcome: AttemptOutcome, category: Category) -> DeadLetter | None:
    if not outcome.counted or operation.policy.allows_another(outcome.number):
        return None
    told = f"attempt {outcome.number} of {operation.policy.max_attempts} failed: {_failure(outcome)}"
    return _dead_letter(category, DeadLetterReason.RETRIES_EXHAUSTED, told)


def _refused(operation: OperationInput, outcome: AttemptOutcome, category: Category) -> DeadLetter:
    """End what must not be sent again."""
    if category is Category.AMBIGUOUS:
        told = f"the request may have taken effect, so it is not sent again: {_failure(outcome)}"
        return _dead_letter(category, DeadLetterReason.AMBIGUOUS_OUTCOME, told)
    by_handler = operation.handler is not None
    reason = DeadLetterReason.REJECTED_BY_HANDLER if by_handler else DeadLetterReason.REJECTED_BY_DEPENDENCY
    return _dead_letter(category, reason, _failure(outcome))


def _retry(
    operation: OperationInput,
    history: History,
    outcome: AttemptOutcome,
    circuit: CircuitView,
    now: datetime,
) -> RetryAt | DeadLetter:
    """Merge every lower bound into one instant: the latest wins, and all of them are told."""
    bounds = [
        pace_of(operation, history, outcome, now),
        *asked_by(operation, outcome, now),
        *told_by_circuit(operation, circuit, now),
    ]
    at = max(bound.at for bound in bounds)
    if (late := _misses_deadline(operation, at)) is not None:
        return _too_late(operation, f"{late}; attempt {outcome.number} failed: {_failure(outcome)}")
    return RetryAt(at, (at - now).total_seconds(), reasons_of(bounds))


def _wait_for_circuit(
    operation: OperationInput,
    circuit: CircuitView,
    now: datetime,
    outcome: AttemptOutcome,
) -> WaitForCircuit | DeadLetter:
    """Wait until the circuit may let an attempt through; an instant past the deadline is not waited for."""
    why = (circuit.reason,) if circuit.reason else ()
    bounds = [*asked_by(operation, outcome, now), *told_by_circuit(operation, circuit, now)]
    if not bounds:
        return _recheck(operation, now, why)
    at = max(bound.at for bound in bounds)
    if (late := _misses_deadline(operation, at)) is not None:
        return _too_late(operation, f"{late}; the circuit of {operation.dependency} refuses attempts")
    return WaitForCircuit(at, (at - now).total_seconds(), (*why, *reasons_of(bounds)))


def _recheck(operation: OperationInput, now: datetime, why: tuple[str, ...]) -> WaitForCircuit | DeadLetter:
    """Ask a circuit again that names no instant; the last time just before the deadline."""
    until = now + timedelta(seconds=RECHECK_SECONDS)
    if operation.deadline_at is not None:
        until = min(until, latest_start(operation.deadline_at, operation.timeouts))
    if until <= now:
        told = (
            f"the circuit of {operation.dependency} refuses attempts, and the time left is too short to wait"
        )
        return _too_late(operation, told)
    wait = until - now
    told = f"circuit names no time, asked again in {seconds_text(wait.total_seconds())}"
    return WaitForCircuit(until, wait.total_seconds(), (*why, told))


def _misses_deadline(operation: OperationInput, at: datetime) -> str | None:
    """Tell why an attempt at that instant would be too late; None when it is not."""
    if operation.deadline_at is None or at <= latest_start(operation.deadline_at, operation.timeouts):
        return None
    needs = seconds_text(operation.timeouts.connect_seconds)
    return (
        f"the next attempt, at {to_rfc3339(at)}, would have less than {needs} to connect before the deadline"
    )


def _failure(outcome: AttemptOutcome) -> str:
    status = "" if outcome.status_code is None else f"status {outcome.status_code}"
    return ", ".join(part for part in (status, outcome.error) if part) or f"{outcome.category}"


def _too_late(operation: OperationInput, detail: str) -> DeadLetter:
    limit = "" if operation.deadline_at is None else f" (deadline {to_rfc3339(operation.deadline_at)})"
    return _dead_letter(
        Category.DEADLINE_EXCEEDED,
        DeadLetterReason.DEADLINE_EXCEEDED,
        cut_text(detail, _DETAIL_CHARS) + limit,
    )


def _dead_letter(category: Category, reason: DeadLetterReason, detail: str) -> DeadLetter:
    return DeadLetter(category, reason, cut_text(detail, _DETAIL_CHARS + 60))
