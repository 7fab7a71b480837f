"""When the next attempt may start at the earliest, by each thing that delays it, and at the latest.

Two rules about the deadline. An attempt that is due now may start while any time is left. A wait is only
worth it when the attempt after it has at least the time to connect: it ends by `latest_start`, or does not
begin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from durable_retry.engine.base.text import seconds_text
from durable_retry.engine.circuit.retry_budget import BudgetPostponed
from durable_retry.engine.circuit.snapshot import Refused, release_at
from durable_retry.engine.retry.backoff import backoff
from durable_retry.engine.retry.decision import Retryable
from durable_retry.engine.retry.history import AttemptOutcome, History
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts

_OWN_PACE: Final = RetryPolicy(initial_seconds=1.0, factor=2.0, max_seconds=300.0, jitter="equal")

_SOON: Final = timedelta(milliseconds=1)


def deadline_of(created_at: datetime, deadline_seconds: float) -> datetime | None:
    """Return the instant after which nothing is tried; 0 seconds means none."""
    return None if deadline_seconds == 0 else created_at + timedelta(seconds=deadline_seconds)


def is_over(deadline_at: datetime | None, now: datetime) -> bool:
    """Whether no time is left; never, without a deadline."""
    return deadline_at is not None and now >= deadline_at


def latest_start(deadline_at: datetime, timeouts: Timeouts) -> datetime:
    """Return the last instant to which waiting makes sense: the time to connect must fit behind it."""
    return deadline_at - timedelta(seconds=min(timeouts.connect_seconds, timeouts.attempt_seconds))


def seconds_left(deadline_at: datetime | None, now: datetime) -> float | None:
    """Return the seconds until the deadline, 0 when it is over; None without one."""
    return None if deadline_at is None else max(0.0, (deadline_at - now).total_seconds())


def attempt_seconds(timeouts: Timeouts, deadline_at: datetime | None, now: datetime) -> float:
    """Return the seconds that one attempt has, all of it: its own timeout, cut by the deadline."""
    left = seconds_left(deadline_at, now)
    return timeouts.attempt_seconds if left is None else min(timeouts.attempt_seconds, left)


@dataclass(frozen=True, slots=True)
class DelayConstraint:
    """No attempt before `at`, for these reasons."""

    at: datetime
    reasons: tuple[str, ...]


def reasons_of(constraints: Iterable[DelayConstraint]) -> tuple[str, ...]:
    """Return the reasons of all constraints in their order."""
    return tuple(reason for constraint in constraints for reason in constraint.reasons)


def backoff_constraint(
    operation: Retryable, history: History, outcome: AttemptOutcome, now: datetime
) -> DelayConstraint:
    """Return the policy's backoff after a counted attempt."""
    wait = backoff(operation.policy, operation.operation_id, outcome.number, history.previous_delay_seconds)
    return DelayConstraint(now + timedelta(seconds=wait.delay_seconds), wait.reasons)


def own_failure_constraint(operation: Retryable, history: History, now: datetime) -> DelayConstraint:
    """Return the backoff after a failure of our own side, with a count and a pace of its own.

    The operation's policy is made for its dependency: a quick one would use up the bound on our own failures
    within seconds of an outage.
    """
    wait = backoff(_OWN_PACE, f"{operation.operation_id}/own", history.own_failures + 1)
    uncounted = f"attempt {history.next_attempt} never left this side and is not counted"
    return DelayConstraint(now + timedelta(seconds=wait.delay_seconds), (uncounted, *wait.reasons))


def retry_after_constraint(
    operation: Retryable, outcome: AttemptOutcome, now: datetime
) -> list[DelayConstraint]:
    """Return the wait that the dependency asked for, within what the policy lets it ask for."""
    hint, policy = outcome.retry_hint, operation.policy
    if hint is None:
        return []
    if not hint.is_usable:
        return [DelayConstraint(now, hint.notes)]
    wish = f"{hint.source} {seconds_text(hint.delay_seconds)}"
    if not policy.respect_retry_after:
        return [DelayConstraint(now, (f"{wish} is not respected",))]
    most = policy.max_retry_after_seconds
    if hint.delay_seconds <= most:
        return [DelayConstraint(now + timedelta(seconds=hint.delay_seconds), (wish, *hint.notes))]
    clamped = f"clamped to {seconds_text(most)} by max_retry_after_seconds"
    return [DelayConstraint(now + timedelta(seconds=most), (wish, *hint.notes, clamped))]


def circuit_constraint(operation: Retryable, refused: Refused, now: datetime) -> DelayConstraint:
    """Return this operation's place in the release after the circuit lets calls through again.

    Those who wait are spread over the time after that instant, so that they do not come as one herd. A place
    behind the deadline is moved forward. A break that ended while the refusal was on its way still spreads.
    """
    reopens_at = max(refused.base, now + _SOON)
    place = release_at(operation.operation_id, reopens_at, refused.waiting)
    if operation.deadline_at is not None:
        place = max(reopens_at, min(place, latest_start(operation.deadline_at, operation.timeouts)))
    reopens = f"circuit lets attempts through in {seconds_text((reopens_at - now).total_seconds())}"
    staggered = f"staggered by {seconds_text((place - reopens_at).total_seconds())}"
    why = (refused.reason,) if refused.reason else ()
    return DelayConstraint(place, (*why, reopens, staggered))


def budget_constraint(operation: Retryable, postponed: BudgetPostponed) -> DelayConstraint:
    """Return this retry's turn by the retry budget."""
    then = "this retry has its turn then" if postponed.reserved else "it asks again then"
    return DelayConstraint(postponed.until, (f"the retry budget of {operation.dependency} is spent; {then}",))
