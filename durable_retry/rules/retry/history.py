"""The attempts and waits of one operation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from durable_retry.base.answers import left_out
from durable_retry.base.json_forms import NOT_STORED, JsonShape
from durable_retry.base.names import PAUSE_EVENT, RESUME_EVENT, Category, OperationState
from durable_retry.rules.retry.classify import is_4xx, is_refusal
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.rules.retry.retry_after import RetryHint

KEPT_WAITS: Final = 5
"""How many of the latest waits travel with an operation."""


class WaitKind(StrEnum):
    """Why an operation waits."""

    RETRY = "retry"  # the pause after a failed attempt
    THROTTLE = "throttle"  # the dependency asked for a pause, of this operation or of everybody
    CIRCUIT = "circuit"
    FREEZE = "freeze"  # every dependency is held
    RETRY_BUDGET = "retry_budget"
    LIMIT = "limit"
    OWN_FAILURE = "own_failure"
    ORDER = "order"
    ACCEPTED = "accepted"  # the dependency works on the request, and is asked how it goes
    LOOKUP = "lookup"  # the dependency is asked whether an attempt happened
    FALLBACK = "fallback"  # no wait: another dependency is asked in place of one
    START = "start"  # it is to begin later
    PAUSE = "pause"  # somebody, or the policy, paused it

    @property
    def state(self) -> OperationState:
        return _STATES.get(self, OperationState.WAITING_RETRY)


_STATES: Final = {
    WaitKind.THROTTLE: OperationState.WAITING_THROTTLE,
    WaitKind.CIRCUIT: OperationState.WAITING_CIRCUIT,
    WaitKind.FREEZE: OperationState.WAITING_CIRCUIT,
    WaitKind.ORDER: OperationState.WAITING_ORDER,
    WaitKind.ACCEPTED: OperationState.RUNNING,
    WaitKind.START: OperationState.SCHEDULED,
    WaitKind.PAUSE: OperationState.PAUSED,
}


def kind_after(category: Category | None) -> WaitKind:
    return WaitKind.THROTTLE if category is Category.THROTTLED else WaitKind.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWait(JsonShape):
    """One item of a status document's `waits`: all the waits of one kind in a row before one attempt.

    Attributes:
        before_attempt: The number of the attempt that had to wait, from 1.
        kind: What blocked it.
        began_at: When the first of them began.
        until: When the last of them was to end; None for a pause until somebody resumes the operation.
        times: How many there were, at least 1.
        delay_reasons: Why the last of them was that long, each a few words.
    """

    before_attempt: int
    kind: WaitKind
    began_at: datetime
    until: datetime | None = None
    times: int = 1
    delay_reasons: tuple[str, ...] = ()


def with_wait(waits: tuple[PastWait, ...], wait: PastWait) -> tuple[PastWait, ...]:
    """Add a wait to those before it; one of the same kind joins the last, and the oldest are dropped."""
    last = waits[-1] if waits else None
    if last is None or (last.before_attempt, last.kind) != (wait.before_attempt, wait.kind):
        return (*waits, wait)[-KEPT_WAITS:]
    return (*waits[:-1], replace(wait, began_at=last.began_at, times=last.times + wait.times))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailure(JsonShape):
    """The failure of a handler's step that has a policy of its own."""

    step: str
    attempt: int  # number of the step's attempt that failed, from 1
    policy: RetryPolicy  # decides in place of the operation's


_PAUSING: Final = frozenset({PAUSE_EVENT, RESUME_EVENT})

KEPT_ACTIONS: Final = 5
"""How many of the latest actions travel with an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAction(JsonShape):
    """One item of a status document's `actions`: what a person did to the operation.

    Attributes:
        action: `cancel`, `retry_now`, `try`, `pause` or `resume`.
        at: When it took effect.
        by: Name of the person or of the key, or `the policy`; None when it is not known.
        reason: In the words of whoever did it; None when there are none.
    """

    action: str
    at: datetime
    by: str | None = None
    reason: str | None = None
    before: Annotated[
        Mapping[str, Any] | None, left_out("What it changed, as it was. Left out where it changed nothing.")
    ] = None
    after: Annotated[Mapping[str, Any] | None, left_out("The same, as it is since.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetail(JsonShape):
    """What a person needs to understand a failed attempt, beside its line.

    Attributes:
        step: The step of a handler that failed; None where it was none.
        body: The beginning of the answer's body, where it says more than the line; None otherwise.
        traceback: Where the handler failed, the last calls last; None where a request was sent.
    """

    step: str | None = None
    body: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(JsonShape):
    """Why a success was not committed: a row was not as an `update` of the handler wants it.

    Attributes:
        detail: What is different, as a clause: `status is 'Paid', not 'Pending'`.
    """

    table: str
    partition_key: str
    row_key: str
    detail: str

    def __str__(self) -> str:
        return f"Conflict: row {self.row_key!r} of {self.table}: {self.detail}"


_PATIENT_FAILURES: Final = 10
"""Failures of our own side after which the wait is the longest; further ones have room below the bound."""

KEPT_ATTEMPTS: Final = 20
"""How many of the latest attempts travel with an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome(JsonShape):
    """The outcome of one attempt, as the activities `attempt` and `publish` return it."""

    number: int  # the number of the attempt, from 1
    started_at: datetime  # when the call began
    duration_ms: float
    category: Category | None = None  # None for success
    status_code: int | None = None  # the status code of the answer; None when there was none
    error: str | None = None  # exception or answer as one line for a person; never a secret; None for success
    # The wait that the dependency or the handler asked for; None when it did not.
    retry_hint: RetryHint | None = None
    # How long the hint pauses the dependency, if that is longer than one operation may wait; else None.
    pause_seconds: float | None = None
    # For success, `{"status_code", "headers", "json" | "body"}` or a handler's `{"value"}`.
    result: Any = None
    # False when our side failed: the attempt never left it (no free connection, no configuration), or its
    # credential is refused. It is made again under the same number and costs no attempt.
    counted: bool = True
    # What failed, if it was a step with a policy of its own; else None.
    step: StepFailure | None = None
    # More of a failure; None for success, and where the line says all.
    failure: FailureDetail | None = None
    # The name of this execution, when it sent nothing and may have left its marker; else None.
    unsent: str | None = None
    # The run of another start of its life, which came first: the operation goes on under that number. None
    # where it met none.
    run: int | None = None
    # Whether it certainly had no effect, where no answer says so: nothing of the request left, or the handler
    # means so by `Rejected`, or `classify` by the name of what it raised. None where it may have had one.
    did_nothing: bool | None = None
    # Whether what it calls is not configured or registered where it ran, which a deploy may change; None for
    # not.
    missing: bool | None = None
    # Until when an earlier execution of it may answer, so that this one sent nothing; None where none may.
    may_answer_until: datetime | None = None
    # Whether a later run has overtaken it, or a step of it stays begun, so that no other attempt may follow;
    # None for not.
    is_stopped: bool | None = None
    # How its end became known, where the attempt did not say it; None where it did.
    known_by: str | None = None
    # The version of the app that made it; None where `APP_VERSION` is not set.
    app_version: str | None = None
    # The fallback that it went to; None where that is the dependency which the operation was submitted to.
    dependency: str | None = None
    gave_slot_back: bool = False  # whether its worker gave the slot of it back as it began
    # Whether a handler failed by a mistake in its code, which shows nothing of the dependency. Not stored:
    # only the worker's report to the circuit needs it.
    is_our_bug: Annotated[bool, NOT_STORED] = False
    # Whether the dependency's `classify` says its category. Not stored either.
    is_ruled: Annotated[bool, NOT_STORED] = False
    # Whether what failed is a step at another dependency, or our own side, or the deadline was too near, so
    # that it shows nothing of the operation's own dependency. Not stored either.
    is_elsewhere: Annotated[bool, NOT_STORED] = False

    @property
    def is_own_failure(self) -> bool:
        """Whether it failed by our own side, in a way that ends the operation after many in a row."""
        return not (self.counted or self.missing or self.may_answer_until)

    @property
    def refuses_credential(self) -> bool:
        """Whether the dependency refuses the app's own credential: a failure of our side."""
        return self.category is Category.UNAUTHORIZED and not self.counted

    @property
    def never_left(self) -> bool:
        """Whether the attempt never left our side."""
        return not (self.counted or self.refuses_credential)

    def may_have_acted(self, handler: str | None) -> bool:
        """Whether the dependency may have done something, or may do so yet."""
        is_clear = self.never_left or self.is_clear_refusal(handler)
        return self.may_answer_until is not None or not is_clear

    def is_clear_refusal(self, handler: str | None) -> bool:
        """Whether the dependency has certainly done nothing."""
        if handler is not None:
            # An answer, or an exception of a library, says nothing of what the handler did before.
            return self.did_nothing is True
        if self.status_code is not None and self.category is not None and is_4xx(self.status_code):
            return is_refusal(self.status_code)
        return self.did_nothing is True or self.category in _REFUSALS


_REFUSALS: Final = frozenset(
    {
        Category.MALFORMED,
        Category.UNAUTHORIZED,
        Category.NOT_FOUND,
        Category.BUSINESS_RULE,
        Category.THROTTLED,
    }
)
"""Categories of answers by which a dependency says that it did nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt(JsonShape):
    """One item of a status document's `attempts`.

    Attributes:
        number: From 1.
        started_at: When the call began.
        category: None for success.
        status_code: The status code of the answer; None when there was none.
        error: One line for a person; None for success.
        next_delay_seconds: The wait decided after it; None when nothing follows.
        delay_reasons: Why that wait, in the order in which they were weighed.
    """

    number: int
    started_at: datetime
    duration_ms: float
    category: Category | None = None
    status_code: int | None = None
    error: str | None = None
    next_delay_seconds: float | None = None
    delay_reasons: tuple[str, ...] = ()
    app_version: Annotated[str | None, left_out("The app's version. Left out without `APP_VERSION`.")] = None
    dependency: Annotated[
        str | None,
        left_out("The fallback that it went to. Left out where that is the operation's dependency."),
    ] = None


def end_of(attempt: AttemptOutcome | PastAttempt) -> datetime:
    """Return when an attempt ended, by the clock of its worker."""
    return attempt.started_at + timedelta(milliseconds=attempt.duration_ms)


def duration_until(attempt: AttemptOutcome, instant: datetime) -> float:
    """Return the milliseconds of an attempt that ends at an instant."""
    return round((instant - attempt.started_at) / timedelta(milliseconds=1), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class History(JsonShape):
    """What happened to an operation, bounded: it is carried over when the orchestration continues as new."""

    attempts: tuple[PastAttempt, ...] = ()  # the latest attempts, at most `KEPT_ATTEMPTS`, oldest first
    attempt_count: int = 0  # counted attempts in all
    own_failures: int = 0  # attempts in a row that failed by our own side; they cost no attempt
    circuit_waits: int = 0  # waits for the circuit so far; they cost no attempt
    # The latest waits for anything but a retry's own delay, at most `KEPT_WAITS`, oldest first.
    waits: tuple[PastWait, ...] = ()
    # Attempts that ended by a step with a policy of its own: they use up nothing of the operation's; None for
    # none.
    step_failures: int | None = None
    # Attempts before somebody let the exhausted operation go on: the policy does not count them; else None.
    forgiven: int | None = None
    # Whether an attempt so far ended without a clear refusal, so that the dependency may have acted; None for
    # not.
    may_have_acted: bool | None = None
    # The latest actions of people, at most `KEPT_ACTIONS`, oldest first; None for none.
    actions: tuple[PastAction, ...] | None = None

    # More of the latest attempt's failure.
    failure: FailureDetail | None = None
    # Why the latest success that could not be committed was refused; None for none.
    conflict: Conflict | None = None

    def evidence(self) -> dict[str, Any]:
        """Return what a dead letter keeps, as JSON: `attempts`, and `failure` where there is one."""
        written = self.to_json()
        return {name: written[name] for name in ("attempts", "failure") if name in written}

    @property
    def next_attempt(self) -> int:
        """The number of the attempt to make next, from 1."""
        return self.attempt_count + 1

    @property
    def is_next_blocked(self) -> bool:
        """Whether the next attempt was put off by something else than the pause after the last one."""
        return any(wait.before_attempt == self.next_attempt for wait in self.waits)

    def was_paused(self, at: datetime | None) -> bool:
        """Whether somebody had paused the operation at an instant; None is no instant."""
        steps = (action for action in reversed(self.actions or ()) if action.action in _PAUSING)
        return at is not None and next((step.action for step in steps if step.at <= at), None) == PAUSE_EVENT

    def with_attempt(self, record: PastAttempt, failure: FailureDetail | None = None) -> Self:
        """Add a counted attempt; beyond `KEPT_ATTEMPTS` the oldest is dropped."""
        kept = (*self.attempts, record)[-KEPT_ATTEMPTS:]
        return replace(self, attempts=kept, attempt_count=record.number, own_failures=0, failure=failure)

    def with_first_reason(self, reason: str) -> Self:
        """Put a reason in front of those of the latest attempt."""
        *before, last = self.attempts
        return replace(self, attempts=(*before, replace(last, delay_reasons=(reason, *last.delay_reasons))))

    def with_unclear_end(self) -> Self:
        """Note that an attempt ended without a clear refusal."""
        return self if self.may_have_acted else replace(self, may_have_acted=True)

    def with_step_failure(self) -> Self:
        """Note that the latest attempt ended by a step with a policy of its own."""
        return replace(self, step_failures=(self.step_failures or 0) + 1)

    def forgiven_so_far(self) -> Self:
        """Return the history of an operation that has all its attempts again."""
        return replace(self, own_failures=0, step_failures=None, forgiven=self.attempt_count or None)

    def with_action(self, action: PastAction) -> Self:
        """Note what a person did; beyond `KEPT_ACTIONS` the oldest is dropped."""
        return replace(self, actions=(*(self.actions or ()), action)[-KEPT_ACTIONS:])

    def with_own_failure(self, *, is_bounded: bool = True, is_spared: bool = False) -> Self:
        """Add an attempt that failed by our own side.

        Args:
            is_bounded: Whether it counts for the bound; otherwise it only makes the next wait longer.
            is_spared: Whether it neither counts for the bound nor makes a wait longer.
        """
        own_failures = self.own_failures + 1
        if is_spared:
            own_failures = max(self.own_failures, 1)
        elif not is_bounded:
            own_failures = max(self.own_failures, min(own_failures, _PATIENT_FAILURES))
        return replace(self, own_failures=own_failures)

    def with_circuit_wait(self) -> Self:
        return replace(self, circuit_waits=self.circuit_waits + 1)

    def with_wait(self, wait: PastWait) -> Self:
        """Add what blocked an attempt, and for how long."""
        return replace(self, waits=with_wait(self.waits, wait))
