"""What follows an attempt, or the refusal to let one start.

    overdue              before an attempt: DeadLetter when the deadline passed
    after_attempt        Done, Wait or DeadLetter
    after_own_failure    our own side failed, before the call or during it: Wait or DeadLetter
    while_blocked        the circuit or the retry budget lets no attempt start: Wait or DeadLetter

`rules.retry.loop` combines the last three. The same arguments give the same decision: time comes in as
`now`, draws come from a hash.

A `DelayConstraint` is one thing that delays the next attempt. Three rules about the deadline: an attempt that
is due now may start while any time is left. A wait is only worth it when the attempt after it has at least
the time to connect: it ends by `latest_start`, or does not begin. An operation that could not be tried before
its deadline is tried once after it, so that an outage of our own side does not end it. A pause does.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.base.text import cut_text, seconds_text
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.retry.constraints import (
    DelayConstraint,
    Retryable,
    _applied_policy,
    _AppliedPolicy,
    backoff_constraint,
    budget_constraint,
    circuit_constraint,
    is_over,
    latest_start,
    limit_constraint,
    own_failure_constraint,
    reasons_of,
    retry_after_constraint,
)
from durable_retry.rules.retry.history import AttemptOutcome, History, PastAttempt, WaitKind, kind_after
from durable_retry.rules.retry.slots import SlotPostponed


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded."""

    result: Any = None  # as in `AttemptOutcome`


@dataclass(frozen=True, slots=True)
class Wait:
    """Another attempt is due later."""

    until: datetime  # when, never before now and never after the deadline
    delay_seconds: float  # from now until then
    reasons: tuple[str, ...]  # why then, each a few words, in the order in which they were weighed
    kind: WaitKind = WaitKind.RETRY
    stops_deadline: bool = False  # whether the time of the wait is added to the deadline


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The operation will not succeed without a person."""

    category: Category  # the category of the last failure, or `deadline_exceeded`
    reason: DeadLetterReason  # why it needs a person
    detail: str  # one or two sentences for a person
    asked: tuple[DelayConstraint, ...] = ()  # until when the dependency asked to wait, if it is held


type Decision = Done | Wait | DeadLetter

MAX_OWN_FAILURES: Final = 20
"""Failures of our own side in a row after which a person must look: about fifty minutes of trying."""

_SHORTLY: Final = timedelta(seconds=1)

_DETAIL_CHARS: Final = 500
_ERROR_CHARS: Final = 1_000

LATE_AFTER: Final = timedelta(seconds=15)
"""Timers are up to 2 s late, more while a host is idle. A longer delay is the fault of our own side."""


def is_owed(operation: Retryable, history: History) -> bool:
    """Whether the next attempt is made although the deadline has passed: the app itself made none before.

    An operation that a person had paused when the deadline passed was not kept waiting by the app.
    """
    return history.attempt_count == history.own_failures == 0 and not history.was_paused(
        operation.deadline_at
    )


def overdue(
    operation: Retryable, history: History, due_at: datetime | None, now: datetime
) -> DeadLetter | None:
    """Return the dead letter of an operation whose deadline passed before its next attempt, else None.

    The first attempt is made in spite of that, see `is_owed`.
    """
    if not is_over(operation.deadline_at, now) or is_owed(operation, history):
        return None
    late = ": it was paused" if history.was_paused(operation.deadline_at) else _held_up(due_at, now)
    return too_late(operation, f"the deadline passed before attempt {history.next_attempt} could start{late}")


def _held_up(due_at: datetime | None, at: datetime) -> str:
    if due_at is None or at - due_at < LATE_AFTER:
        return ""
    late = seconds_text((at - due_at).total_seconds())
    return f": it was due at {to_rfc3339(due_at)}, and for {late} nothing here worked on the operation"


def after_attempt(
    operation: Retryable,
    history: History,
    outcome: AttemptOutcome,
    now: datetime,
    due_at: datetime | None = None,
    *,
    is_probe: bool = False,
) -> Decision:
    """Decide what follows an attempt that was due at `due_at`, None for at once.

    An outcome that is not counted never left our side, or its credential was refused. An operation ends after
    `MAX_OWN_FAILURES` refusals of its credential, unless they were probes: other operations may succeed.
    """
    match outcome.category:
        case None:
            return Done(outcome.result)
        case Category.DEADLINE_EXCEEDED:
            late = f"no time was left for attempt {outcome.number}{_held_up(due_at, outcome.started_at)}"
            return too_late(operation, outcome.error or late if outcome.counted else late)
        case Category.TRANSIENT | Category.THROTTLED | Category.AMBIGUOUS | Category.UNAUTHORIZED if (
            not outcome.counted
        ):
            return _after_uncounted(operation, history, outcome, now, is_probe=is_probe)
        case Category.TRANSIENT | Category.THROTTLED as category:
            applied = _applied_policy(operation, history, outcome)
            return _retry_or_give_up(operation, outcome, category, now, applied)
        case _ as category:
            return _dead_letter_of_refused(operation, outcome, category)


def after_own_failure(operation: Retryable, history: History, error: str, now: datetime) -> Wait | DeadLetter:
    """Decide what follows a failure of our own side: the attempt is made again under its number.

    The call never left, or nobody knows whether it did: a worker killed during a call leaves no outcome. The
    `own_failures` in a row of the history before it make the wait grow.
    """
    failures = history.own_failures + 1
    if failures >= MAX_OWN_FAILURES:
        detail = f"attempt {history.next_attempt} failed on this side {failures} times in a row: {error}"
        return _dead_letter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, detail)
    return _wait_for_own_side(operation, history, error, now)


def _after_uncounted(
    operation: Retryable, history: History, outcome: AttemptOutcome, now: datetime, *, is_probe: bool
) -> Wait | DeadLetter:
    """Decide what follows an attempt that is made again under its number.

    There is no bound on the waits for a missing handler or dependency. The wait for an earlier execution of
    the attempt ends when no answer can come from it any more.
    """
    why = _failure_text(outcome)
    if outcome.refuses_credential:
        if not is_probe and history.own_failures + 1 >= MAX_OWN_FAILURES:
            return _dead_letter_of_refused(operation, outcome, Category.UNAUTHORIZED)
        return _wait_for_own_side(operation, history, f"the credential is refused: {why}", now)
    if outcome.is_own_failure:
        return after_own_failure(operation, history, why, now)
    constraint, until = own_failure_constraint(operation, history, why, now), outcome.may_answer_until
    if until is not None:
        constraint = replace(constraint, at=min(constraint.at, max(until, now + _SHORTLY)))
    decision = _wait_or_give_up(operation, [constraint], now, why, kind=WaitKind.OWN_FAILURE)
    if isinstance(decision, DeadLetter) and until is not None:
        return _dead_letter_of_refused(operation, outcome, Category.AMBIGUOUS)
    return decision


def _wait_for_own_side(
    operation: Retryable, history: History, error: str, now: datetime
) -> Wait | DeadLetter:
    constraint = own_failure_constraint(operation, history, error, now)
    failed = f"attempt {history.next_attempt} failed on this side: {error}"
    return _wait_or_give_up(operation, [constraint], now, failed, kind=WaitKind.OWN_FAILURE)


def while_blocked(
    operation: Retryable, blocked: Refused | BudgetPostponed | SlotPostponed, now: datetime
) -> Wait | DeadLetter:
    """Decide about an attempt that is due and may not start yet; no attempt is counted.

    The worker names an instant by its own clock. If that has passed here, the clocks differ, and the worker
    would refuse again at once: so the attempt waits for `RECHECK`.
    """
    match blocked:
        case Refused():
            constraint = circuit_constraint(operation, blocked, now)
            refusal = f"the circuit of {operation.dependency} refuses attempts"
            if blocked.throttled:
                refusal = f"{operation.dependency} asked for a pause"
            if blocked.frozen:
                refusal = blocked.reason
            kind, stops = kind_of_refusal(blocked), blocked.stops_deadline is True
            return _wait_or_give_up(operation, [constraint], now, refusal, kind=kind, stops_deadline=stops)
        case BudgetPostponed():
            constraint = budget_constraint(operation, blocked, now)
            spent = "; ".join(constraint.reasons)
            return _wait_or_give_up(operation, [constraint], now, spent, kind=WaitKind.RETRY_BUDGET)
        case SlotPostponed():
            constraint = limit_constraint(operation, blocked, now)
            reached = "; ".join(constraint.reasons)
            return _wait_or_give_up(operation, [constraint], now, reached, kind=WaitKind.LIMIT)
        case _ as never:
            assert_never(never)


def kind_of_refusal(refused: Refused) -> WaitKind:
    """Return why a refused attempt waits: for the end of a pause, of a freeze, or for the circuit."""
    if refused.frozen:
        return WaitKind.FREEZE
    return WaitKind.THROTTLE if refused.throttled else WaitKind.CIRCUIT


def record(
    history: History, outcome: AttemptOutcome, decision: Decision, *, is_probe: bool = False
) -> History:
    """Add an attempt and the decision after it; one that failed by our own side is noted and not counted."""
    if not outcome.counted:
        is_spared = is_probe and outcome.refuses_credential
        return history.with_own_failure(is_bounded=outcome.is_own_failure, is_spared=is_spared)
    retry = decision if isinstance(decision, Wait) else None
    counted = history if outcome.step is None else history.with_step_failure()
    reasons = () if outcome.known_by is None else (outcome.known_by,)
    return counted.with_attempt(
        PastAttempt(
            number=outcome.number,
            started_at=outcome.started_at,
            duration_ms=outcome.duration_ms,
            category=outcome.category,
            status_code=outcome.status_code,
            error=None if outcome.error is None else cut_text(outcome.error, _ERROR_CHARS),
            next_delay_seconds=None if retry is None else round(retry.delay_seconds, 3),
            delay_reasons=reasons if retry is None else retry.reasons,
            app_version=outcome.app_version,
            dependency=outcome.dependency,
        ),
        outcome.failure,
    )


def _dead_letter_of_refused(operation: Retryable, outcome: AttemptOutcome, category: Category) -> DeadLetter:
    if category is Category.AMBIGUOUS:
        detail = f"the request may have taken effect, so it is not sent again: {_failure_text(outcome)}"
        return _dead_letter(category, DeadLetterReason.AMBIGUOUS_OUTCOME, detail)
    by_handler = operation.handler is not None and outcome.status_code is None
    reason = DeadLetterReason.REJECTED_BY_HANDLER if by_handler else DeadLetterReason.REJECTED_BY_DEPENDENCY
    return _dead_letter(category, reason, _failure_text(outcome))


def _retry_or_give_up(
    operation: Retryable, outcome: AttemptOutcome, category: Category, now: datetime, applied: _AppliedPolicy
) -> Wait | DeadLetter:
    asked, why = tuple(retry_after_constraint(applied.policy, outcome, now)), _failure_text(outcome)
    if not applied.policy.allows_another(applied.attempt):
        tried = f"{applied.name} {applied.attempt} of {applied.policy.max_attempts} failed: {why}"
        return replace(_dead_letter(category, DeadLetterReason.RETRIES_EXHAUSTED, tried), asked=asked)
    failed = f"attempt {outcome.number} failed: {why}"
    if is_over(operation.deadline_at, outcome.started_at):  # The attempt was owed.
        failed = f"nothing here worked on the operation before its deadline; {failed}"
    constraints = [backoff_constraint(applied, now), *asked]
    decision = _wait_or_give_up(operation, constraints, now, failed, kind=kind_after(category))
    return replace(decision, asked=asked) if isinstance(decision, DeadLetter) else decision


def _wait_or_give_up(
    operation: Retryable,
    constraints: list[DelayConstraint],
    now: datetime,
    why: str,
    kind: WaitKind = WaitKind.RETRY,
    *,
    stops_deadline: bool = False,
) -> Wait | DeadLetter:
    """Wait for the latest of all constraints, unless the attempt after the wait would miss the deadline."""
    until = max(constraint.at for constraint in constraints)
    deadline_at = None if stops_deadline else operation.deadline_at
    if deadline_at is not None and until > latest_start(deadline_at, operation.timeouts):
        needed = seconds_text(operation.timeouts.connect_seconds)
        late = f"the next attempt, at {to_rfc3339(until)}, would have less than {needed} to connect"
        return too_late(operation, f"{late} before the deadline; {why}")
    return Wait(until, (until - now).total_seconds(), reasons_of(constraints), kind, stops_deadline)


def _failure_text(outcome: AttemptOutcome) -> str:
    status = "" if outcome.status_code is None else f"status {outcome.status_code}"
    return ", ".join(part for part in (status, outcome.error) if part) or f"{outcome.category}"


def too_late(operation: Retryable, detail: str) -> DeadLetter:
    """Return the dead letter of an operation whose deadline passed."""
    limit = "" if operation.deadline_at is None else f" (deadline {to_rfc3339(operation.deadline_at)})"
    return _dead_letter(
        Category.DEADLINE_EXCEEDED,
        DeadLetterReason.DEADLINE_EXCEEDED,
        cut_text(detail, _DETAIL_CHARS) + limit,
    )


def _dead_letter(category: Category, reason: DeadLetterReason, detail: str) -> DeadLetter:
    return DeadLetter(category, reason, cut_text(detail, _DETAIL_CHARS + 60))
