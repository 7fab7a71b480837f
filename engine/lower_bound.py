"""The lower bounds that one decision merges: pace, the dependency's wish, its circuit, and other holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.backoff import backoff
from engine.circuit.release import release_at
from engine.deadline import latest_start
from engine.decision import CircuitView
from engine.operation import AttemptOutcome, History, OperationInput
from engine.wording import seconds_text


@dataclass(frozen=True, slots=True)
class LowerBound:
    """No attempt before `at`, and what to tell about it."""

    at: datetime
    reasons: tuple[str, ...]


def reasons_of(bounds: Iterable[LowerBound]) -> tuple[str, ...]:
    """List the reasons of all bounds in their order."""
    return tuple(reason for bound in bounds for reason in bound.reasons)


def pace_of(
    operation: OperationInput, history: History, outcome: AttemptOutcome, now: datetime
) -> LowerBound:
    """Back off from the dependency by counted attempts, and from our own trouble by its own count."""
    policy = operation.policy
    if outcome.counted:
        wait = backoff(policy, operation.operation_id, outcome.number, history.previous_delay_seconds)
        return LowerBound(now + timedelta(seconds=wait.delay_seconds), wait.reasons)
    own = backoff(policy, f"{operation.operation_id}/own", history.own_failures + 1)
    told = f"attempt {outcome.number} never left this side and is not counted"
    return LowerBound(now + timedelta(seconds=own.delay_seconds), (told, *own.reasons))


def asked_by(operation: OperationInput, outcome: AttemptOutcome, now: datetime) -> list[LowerBound]:
    """Give the dependency's own wish for a wait, within what the policy lets it ask for."""
    hint, policy = outcome.retry_hint, operation.policy
    if hint is None:
        return []
    if not hint.is_usable:
        return [LowerBound(now, hint.notes)]
    told = f"{hint.source} {seconds_text(hint.delay_seconds)}"
    if not policy.respect_retry_after:
        return [LowerBound(now, (f"{told} is not respected",))]
    most = policy.max_retry_after_seconds
    if hint.delay_seconds <= most:
        return [LowerBound(now + timedelta(seconds=hint.delay_seconds), (told, *hint.notes))]
    clamped = f"clamped to {seconds_text(most)} by max_retry_after_seconds"
    return [LowerBound(now + timedelta(seconds=most), (told, *hint.notes, clamped))]


def told_by_circuit(operation: OperationInput, circuit: CircuitView, now: datetime) -> list[LowerBound]:
    """Give what the circuit adds, spread over the waiting operations so that they do not come as one herd."""
    if not circuit.refuses or circuit.retry_at is None or circuit.retry_at <= now:
        return []
    return [_released(operation, circuit.waiting, circuit.retry_at, now)]


def _released(operation: OperationInput, waiting: int, until: datetime, now: datetime) -> LowerBound:
    """Take this operation's place after `until`, moved forward when the deadline comes before it."""
    place = release_at(operation.operation_id, until, waiting)
    if operation.deadline_at is not None:
        place = max(until, min(place, latest_start(operation.deadline_at, operation.timeouts)))
    told = f"circuit lets attempts through in {seconds_text((until - now).total_seconds())}"
    return LowerBound(place, (told, f"staggered by {seconds_text((place - until).total_seconds())}"))
