"""What follows an attempt, or the refusal to let one start.

    overdue              before an attempt: DeadLetter when the deadline passed
    after_attempt        Done, Wait or DeadLetter
    after_own_failure    our own side failed, before the call or during it: Wait or DeadLetter
    while_blocked        the circuit or the retry budget lets no attempt start: Wait or DeadLetter

`engine.retry.loop` combines them. The same arguments give the same decision: time comes in as `now`, draws
come from a hash.

A `DelayConstraint` is one thing that delays the next attempt. Two rules about the deadline: an attempt that
is due now may start while any time is left. A wait is only worth it when the attempt after it has at least
the time to connect: it ends by `latest_start`, or does not begin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, assert_never

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.base.text import cut_text, seconds_text
from durable_retry.engine.circuit.retry_budget import BudgetPostponed
from durable_retry.engine.circuit.snapshot import RECHECK, Refused, release_at
from durable_retry.engine.limits import SlotPostponed
from durable_retry.engine.retry.backoff import backoff
from durable_retry.engine.retry.history import AttemptOutcome, AttemptRecord, History, WaitKind
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts


class Retryable(Protocol):
    """What the rules need of an operation, or of an event of the outbox.

    Attributes:
        operation_id: Seeds every draw, so that a replay draws the same.
        dependency: Named in texts.
        policy: Strategy, attempts, jitter and `Retry-After`.
        timeouts: `connect_seconds` must fit between a wait and the deadline.
        deadline_at: After this nothing more is tried; None means no deadline.
        handler: The Python handler that it runs; None for a request.
    """

    @property
    def operation_id(self) -> str: ...  # noqa: D102 - described above, like those below
    @property
    def dependency(self) -> str: ...  # noqa: D102
    @property
    def policy(self) -> RetryPolicy: ...  # noqa: D102
    @property
    def timeouts(self) -> Timeouts: ...  # noqa: D102
    @property
    def deadline_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def handler(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded.

    Attributes:
        result: As in `AttemptOutcome`.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Another attempt is due later.

    Attributes:
        until: When, never before now and never after the deadline.
        delay_seconds: From now until then.
        reasons: Why then, each a few words, in the order in which they were weighed.
        kind: What blocks the attempt; None for the pause before a retry.
    """

    until: datetime
    delay_seconds: float
    reasons: tuple[str, ...]
    kind: WaitKind | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The operation will not succeed without a person.

    Attributes:
        category: Of the last failure, or `deadline_exceeded`.
        reason: Why it needs a person.
        detail: One or two sentences for a person.
    """

    category: Category
    reason: DeadLetterReason
    detail: str


type Decision = Done | Wait | DeadLetter


_OWN_PACE: Final = RetryPolicy(initial_seconds=1.0, factor=2.0, max_seconds=300.0, jitter="equal")

_SOON: Final = timedelta(milliseconds=1)

_WITHOUT_RECHECK: Final = 2
"""The last form of histories in which a blocked attempt asks again at once when its instant has passed."""


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


@dataclass(frozen=True, slots=True)
class _AppliedPolicy:
    """The policy that decides about a failure, and the number of the failed attempt by it.

    Attributes:
        policy: The operation's, or that of the handler's step that failed.
        seed: Of its draws.
        attempt: Number of the failed attempt by this policy, from 1.
        name: For texts: `attempt`, or the step's.
    """

    policy: RetryPolicy
    seed: str
    attempt: int
    name: str


def _applied_policy(operation: Retryable, history: History, outcome: AttemptOutcome) -> _AppliedPolicy:
    """Return the policy that decides about a failure: that of the failed step, or else the operation's.

    Attempts that ended by a step with a policy of its own do not count for the operation's.
    """
    if (step := outcome.step) is not None:
        seed = f"{operation.operation_id}/{step.step}"
        return _AppliedPolicy(step.policy, seed, step.attempt, f"step {step.step}: attempt")
    number = outcome.number - (history.step_failures or 0)
    return _AppliedPolicy(operation.policy, operation.operation_id, number, "attempt")


def backoff_constraint(applied: _AppliedPolicy, history: History, now: datetime) -> DelayConstraint:
    """Return the policy's backoff after a counted attempt."""
    previous = history.previous_delay_seconds if applied.attempt > 1 else None
    wait = backoff(applied.policy, applied.seed, applied.attempt, previous)
    return DelayConstraint(now + timedelta(seconds=wait.delay_seconds), wait.reasons)


def own_failure_constraint(operation: Retryable, history: History, now: datetime) -> DelayConstraint:
    """Return the backoff after a failure of our own side, with a count and a pace of its own.

    The operation's policy is made for its dependency: a quick one would use up the bound on our own failures
    within seconds of an outage.
    """
    wait = backoff(_OWN_PACE, f"{operation.operation_id}/own", history.own_failures + 1)
    uncounted = f"attempt {history.next_attempt} failed on this side and is not counted"
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
    most = policy.max_retry_after_seconds
    if hint.delay_seconds <= most:
        return [DelayConstraint(now + timedelta(seconds=hint.delay_seconds), (wish, *hint.notes))]
    clamped = f"clamped to {seconds_text(most)} by max_retry_after_seconds"
    return [DelayConstraint(now + timedelta(seconds=most), (wish, *hint.notes, clamped))]


def _asks_again_at(operation: Retryable, now: datetime) -> datetime:
    """Return when a blocked attempt asks again whose instant has passed by this clock, not by the worker's.

    At most the last useful start before the deadline: a difference of clocks must not end the operation.
    """
    if operation.deadline_at is None:
        return now + RECHECK
    return min(now + RECHECK, latest_start(operation.deadline_at, operation.timeouts))


def circuit_constraint(operation: Retryable, refused: Refused, now: datetime, form: int) -> DelayConstraint:
    """Return this operation's place in the release after the circuit lets calls through again.

    Those who wait are spread over the time after that instant, so that they do not come as one herd. A place
    behind the deadline is moved forward. A break that ended while the refusal was on its way still spreads.
    """
    reopens_at = max(refused.base, now + _SOON)
    if form > _WITHOUT_RECHECK and refused.base <= now:
        reopens_at = max(reopens_at, _asks_again_at(operation, now))
    place = release_at(operation.operation_id, reopens_at, refused.waiting)
    if operation.deadline_at is not None:
        place = max(reopens_at, min(place, latest_start(operation.deadline_at, operation.timeouts)))
    reopens = f"circuit lets attempts through in {seconds_text((reopens_at - now).total_seconds())}"
    staggered = f"staggered by {seconds_text((place - reopens_at).total_seconds())}"
    why = (refused.reason,) if refused.reason else ()
    return DelayConstraint(place, (*why, reopens, staggered))


def budget_constraint(
    operation: Retryable, postponed: BudgetPostponed, now: datetime, form: int
) -> DelayConstraint:
    """Return this retry's turn by the retry budget; one that has it already goes without asking again."""
    then = "this retry has its turn then" if postponed.reserved else "it asks again then"
    at = postponed.until
    if form > _WITHOUT_RECHECK and not postponed.reserved and at <= now:
        at = max(at, _asks_again_at(operation, now))
    return DelayConstraint(at, (f"the retry budget of {operation.dependency} is spent; {then}",))


def limit_constraint(operation: Retryable, postponed: SlotPostponed, now: datetime) -> DelayConstraint:
    """Return this attempt's turn by the limits of its dependency."""
    reached = f"the limit of {operation.dependency} is reached: {postponed.reason}"
    return DelayConstraint(now + timedelta(seconds=postponed.seconds), (reached,))


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
            applied = _applied_policy(operation, history, outcome)
            if not applied.policy.allows_another(applied.attempt):
                return _exhausted(applied, outcome, category)
            return _retry(operation, history, outcome, now, applied)
        case _ as category:
            return _refused(operation, outcome, category)


def after_own_failure(operation: Retryable, history: History, error: str, now: datetime) -> Wait | DeadLetter:
    """Decide what follows a failure of our own side: the attempt is made again under its number.

    The call never left, or nobody knows whether it did: a worker killed during a call leaves no outcome.

    Args:
        operation: With its deadline.
        history: Before this failure; its `own_failures` in a row make the wait grow.
        error: One line for a person.
        now: Aware UTC; the orchestrator's replay-safe time.
    """
    failures = history.own_failures + 1
    if failures >= MAX_OWN_FAILURES:
        detail = f"attempt {history.next_attempt} failed on this side {failures} times in a row: {error}"
        return _dead_letter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, detail)
    constraint = own_failure_constraint(operation, history, now)
    return _wait(operation, [constraint], now, f"attempt {history.next_attempt} failed: {error}")


def while_blocked(
    operation: Retryable, blocked: Refused | BudgetPostponed | SlotPostponed, now: datetime, form: int
) -> Wait | DeadLetter:
    """Decide about an attempt that is due and may not start yet; no attempt is counted.

    The worker names an instant by its own clock. If that has passed here, the clocks differ, and the worker
    would refuse again at once: so the attempt waits for `RECHECK`, except in histories before form 3.

    Args:
        operation: With its deadline.
        blocked: What blocks it: its circuit, its retry budget, or a limit of its dependency.
        now: Aware UTC; the orchestrator's replay-safe time.
        form: Of the history, see `engine.base.names.FORM`.
    """
    match blocked:
        case Refused():
            constraint = circuit_constraint(operation, blocked, now, form)
            refusal = f"the circuit of {operation.dependency} refuses attempts"
            return _wait(operation, [constraint], now, refusal, kind=WaitKind.CIRCUIT)
        case BudgetPostponed():
            constraint = budget_constraint(operation, blocked, now, form)
            spent = "; ".join(constraint.reasons)
            return _wait(operation, [constraint], now, spent, kind=WaitKind.RETRY_BUDGET)
        case SlotPostponed():
            constraint = limit_constraint(operation, blocked, now)
            reached = "; ".join(constraint.reasons)
            return _wait(operation, [constraint], now, reached, kind=WaitKind.LIMIT)
        case _ as never:
            assert_never(never)


def record(history: History, outcome: AttemptOutcome, decision: Decision) -> History:
    """Add an attempt and the decision after it; one that never left our side is noted and not counted."""
    if not outcome.counted:
        return history.with_own_failure()
    retry = decision if isinstance(decision, Wait) else None
    counted = history if outcome.step is None else history.with_step_failure()
    return counted.with_attempt(
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


def _exhausted(applied: _AppliedPolicy, outcome: AttemptOutcome, category: Category) -> DeadLetter:
    detail = f"{applied.name} {applied.attempt} of {applied.policy.max_attempts} failed: {_failure(outcome)}"
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
    operation: Retryable, history: History, outcome: AttemptOutcome, now: datetime, applied: _AppliedPolicy
) -> Wait | DeadLetter:
    constraints = [
        backoff_constraint(applied, history, now),
        *retry_after_constraint(applied.policy, outcome, now),
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
