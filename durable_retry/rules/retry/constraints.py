"""What bounds the instant of the next attempt, each with its reason."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import Priority
from durable_retry.base.text import cut_text, paused_text, seconds_text, time_text
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import RECHECK, Refused, release_at
from durable_retry.rules.retry.backoff import backoff
from durable_retry.rules.retry.history import AttemptOutcome, History
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts
from durable_retry.rules.retry.slots import SlotPostponed


def run_id_for(operation_id: str, run: int) -> str:
    """Return the name of a run, for its slots, its commit, its events and their orchestration."""
    return f"{operation_id}.{run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retryable(JsonShape):
    """What the rules of retrying need of an operation, or of an event of the outbox in its form."""

    operation_id: str  # `op-...`, derived from scope and key; also the orchestration's instance id
    run: int  # which run of its key it is, see `run_number`
    dependency: str  # the name in `dependencies.toml`; of a handler, the one that it names
    policy: RetryPolicy  # resolved at submit, so that editing the file never changes a running operation
    timeouts: Timeouts  # as `policy`; `deadline_seconds` is the operation's own
    deadline_at: datetime | None = None  # after this nothing more is tried; None means no deadline
    handler: str | None = None  # the Python handler to run; None for an HTTP request
    # Who goes first where operations wait; None is `normal`.
    priority: Priority | None = None
    # It uses the share of this key, such as a customer's, in the dependency's limits; None without a key.
    limit_key: str | None = None

    @property
    def run_id(self) -> str:
        """Names one run: an attempt of an earlier one may still hold a slot."""
        return run_id_for(self.operation_id, self.run)


_OWN_PACE: Final = RetryPolicy(initial_seconds=1.0, factor=2.0, max_seconds=300.0, jitter="equal")

REASON_ERROR_CHARS: Final = 160
"""Characters of an error in the reason of a wait."""

_SOON: Final = timedelta(milliseconds=1)


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
    return tuple(reason for constraint in constraints for reason in constraint.reasons)


@dataclass(frozen=True, slots=True)
class _AppliedPolicy:
    """The policy that decides about a failure, and the number of the failed attempt by it."""

    policy: RetryPolicy  # the operation's, or that of the handler's step that failed
    seed: str  # the seed of its draws
    attempt: int  # number of the failed attempt by this policy, from 1
    name: str  # for texts: `attempt`, or the step's


def _applied_policy(operation: Retryable, history: History, outcome: AttemptOutcome) -> _AppliedPolicy:
    """Return the policy that decides about a failure: that of the failed step, or else the operation's.

    Attempts that ended by a step with a policy of its own, or are forgiven, do not count for the operation's.
    """
    if (step := outcome.step) is not None:
        seed = f"{operation.operation_id}/{step.step}"
        return _AppliedPolicy(step.policy, seed, step.attempt, f"step {step.step}: attempt")
    number = outcome.number - (history.step_failures or 0) - (history.forgiven or 0)
    return _AppliedPolicy(operation.policy, operation.operation_id, number, "attempt")


def backoff_constraint(applied: _AppliedPolicy, now: datetime) -> DelayConstraint:
    """Return the policy's backoff after a counted attempt."""
    wait = backoff(applied.policy, applied.seed, applied.attempt)
    return DelayConstraint(now + timedelta(seconds=wait.delay_seconds), wait.reasons)


def own_failure_constraint(
    operation: Retryable, history: History, error: str, now: datetime
) -> DelayConstraint:
    """Return the backoff after a failure of our own side, with a count and a pace of its own.

    The operation's policy is made for its dependency: a quick one would use up the bound on our own failures
    within seconds of an outage.
    """
    wait = backoff(_OWN_PACE, f"{operation.operation_id}/own", history.own_failures + 1)
    short_error = cut_text(error, REASON_ERROR_CHARS)
    uncounted = f"attempt {history.next_attempt} failed on this side and is not counted: {short_error}"
    return DelayConstraint(now + timedelta(seconds=wait.delay_seconds), (uncounted, *wait.reasons))


def retry_after_constraint(
    policy: RetryPolicy, outcome: AttemptOutcome, now: datetime
) -> list[DelayConstraint]:
    """Return the wait that the dependency asked for, within what the policy lets it ask for."""
    hint = outcome.retry_hint
    if hint is None:
        return []
    if not hint.is_usable:
        return [DelayConstraint(now, hint.notes)]
    wish = f"{hint.source} {seconds_text(hint.delay_seconds)}"
    if not policy.respect_retry_after:
        return [DelayConstraint(now, (f"{wish} is not respected",))]
    most, setting = policy.max_retry_after_seconds, "max_retry_after_seconds"
    if outcome.pause_seconds is not None:
        most, setting = outcome.pause_seconds, "max_pause_seconds"
    if hint.delay_seconds <= most:
        return [DelayConstraint(now + timedelta(seconds=hint.delay_seconds), (wish, *hint.notes))]
    clamped = f"clamped to {seconds_text(most)} by {setting}"
    return [DelayConstraint(now + timedelta(seconds=most), (wish, *hint.notes, clamped))]


def _asks_again_at(operation: Retryable, now: datetime) -> datetime:
    """Return when a blocked attempt asks again, if its instant has passed by this clock, not by the worker's.

    That is not after the last useful start: a difference of clocks must not end the operation.
    """
    if operation.deadline_at is None:
        return now + RECHECK
    return min(now + RECHECK, latest_start(operation.deadline_at, operation.timeouts))


def circuit_constraint(operation: Retryable, refused: Refused, now: datetime) -> DelayConstraint:
    """Return this operation's place in the release after the circuit lets calls through again.

    Waiting operations are spread over the time after that instant, also if it passed while the refusal was on
    its way, so that they do not return all at once. A place after the deadline is moved forward.
    """
    reopens_at = max(refused.base, now + _SOON)
    if refused.base <= now:
        reopens_at = max(reopens_at, _asks_again_at(operation, now))
    place = release_at(operation.operation_id, reopens_at, refused.waiting)
    if operation.deadline_at is not None:
        place = max(reopens_at, min(place, latest_start(operation.deadline_at, operation.timeouts)))
    staggered = f"staggered by {seconds_text((place - reopens_at).total_seconds())}"
    if refused.throttled and refused.failure is not None:
        return DelayConstraint(place, (paused_text(refused.failure, reopens_at), staggered))
    reopens = "the pause ends" if refused.throttled else "circuit lets attempts through"
    reopens = "it asks again" if refused.frozen else reopens
    reopens += f" at {time_text(reopens_at)}"
    failing = "" if refused.failure is None else f"{operation.dependency} {refused.failure}"
    why = [text for text in (failing, refused.reason) if text]
    return DelayConstraint(place, (*why, reopens, staggered))


def budget_constraint(operation: Retryable, postponed: BudgetPostponed, now: datetime) -> DelayConstraint:
    """Return this retry's turn by the retry budget; one that has it already goes without asking again."""
    then = "this retry has its turn then" if postponed.reserved else "it asks again then"
    at = postponed.until
    if not postponed.reserved and at <= now:
        at = max(at, _asks_again_at(operation, now))
    budget = f"the retry budget of {operation.dependency}"
    reason = f"other workers may use what is left of {budget}" if postponed.is_left else f"{budget} is spent"
    return DelayConstraint(at, (f"{reason}; {then}",))


def limit_constraint(operation: Retryable, postponed: SlotPostponed, now: datetime) -> DelayConstraint:
    reached = f"the limit of {operation.dependency} is reached: {postponed.reason}"
    return DelayConstraint(now + timedelta(seconds=postponed.seconds), (reached,))
