"""The retry loop as a state machine: a result comes in, the next state and what to do go out.

    attempt ──> Done
            ──> DeadLetter
            ──> Wait ──────────────────────────────> attempt
            ──> RequestProbe ──> Permitted ────────> attempt at once
                             ──> Refused ──> Wait ─> attempt
            ──> RequestSlot ───> Slot ─────────────> attempt at once
                             ──> SlotPostponed ────> Wait ─> attempt

An orchestrator carries the actions out: `operation` one after the other, `outbox` in rounds over many
deliveries. Nothing here waits, reads a clock or calls anything.

An attempt needs admission: of the retry budget first, then of the circuit, then of the dependency's limits.
The worker decides from its cached snapshot and its share of the limits. What blocks an attempt goes back to
the orchestration, which waits, or asks the circuit's entity for a probe or the limiter's entity for a slot.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, assert_never, cast

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import Category
from durable_retry.base.text import seconds_text
from durable_retry.rules.circuit.messages import PermitMessage
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import ALL_PROBES_UNDER_WAY, RECHECK, Permitted, Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ProbeRequest
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission, held_admission
from durable_retry.rules.retry.constraints import Retryable, latest_start
from durable_retry.rules.retry.decide import (
    Decision,
    Wait,
    after_attempt,
    after_own_failure,
    kind_of_refusal,
    record,
    while_blocked,
)
from durable_retry.rules.retry.history import AttemptOutcome, Conflict, History, PastWait, WaitKind, end_of
from durable_retry.rules.retry.slots import (
    DOOR_SECONDS,
    LEASE_MARGIN_SECONDS,
    NeedsSlot,
    Slot,
    SlotPostponed,
    SlotRequest,
    is_valid,
)

TRANSPORT_SECONDS: Final = 15.0
"""Added to an attempt's time limit for a probe's lease: the way from the permit to the call, and back."""

_QUEUES_GROW: Final = 2
"""A lease gets this many times the time for which the attempt was queued before it was blocked, since it is
queued once more. An attempt that begins later asks again (`AdmissionState.at_begin`)."""


@dataclass(frozen=True, slots=True)
class NeedsProbe(JsonShape):
    """The circuit is half-open, and only its entity decides who probes; the settings go with the request."""

    settings: CircuitSettings
    limit_key: str | None = None  # whose circuit it is; None for that of the dependency
    kind: Literal["needs_probe"] = "needs_probe"


type Blocked = Refused | NeedsProbe | BudgetPostponed | NeedsSlot
"""What blocks an attempt; a blocked attempt is not counted."""


def lease_seconds_of(operation: Retryable, margin_seconds: float, on_its_way: timedelta) -> float:
    """Return the lease of an attempt that was on its way for so long when it was blocked."""
    queued_seconds = _QUEUES_GROW * on_its_way.total_seconds()
    return operation.timeouts.attempt_seconds + margin_seconds + queued_seconds


def probe_message(
    operation: Retryable,
    attempt: int,
    settings: CircuitSettings,
    now: datetime,
    *,
    on_its_way: timedelta = timedelta(),
) -> PermitMessage:
    """Return the request to the circuit's entity for a probe's permit, by the worker's settings."""
    lease_seconds = lease_seconds_of(operation, TRANSPORT_SECONDS, on_its_way)
    return PermitMessage(ProbeRequest(operation.operation_id, attempt, now, lease_seconds), settings)


def lease_id_of(operation: Retryable, attempt: int) -> str:
    """Return the name of an attempt's lease and place at a limiter."""
    return f"{operation.run_id}:{attempt}"


def slot_request(
    operation: Retryable,
    attempt: int,
    admission: AdmissionState,
    needed: NeedsSlot,
    now: datetime,
    *,
    on_its_way: timedelta = timedelta(),
) -> SlotRequest:
    """Return the request to the entity `call_limiter` for a slot, by the worker's limits."""
    deadline_at, timeouts = operation.deadline_at, operation.timeouts
    latest = None if deadline_at is None else (latest_start(deadline_at, timeouts) - now).total_seconds()
    return SlotRequest(
        lease_id=lease_id_of(operation, attempt),
        lease_seconds=lease_seconds_of(operation, LEASE_MARGIN_SECONDS, on_its_way),
        settings=needed.settings,
        asked_at=now,
        due_at=admission.slot_since or now,
        reserved=is_valid(admission.turn_at, now),
        has_waited=admission.has_place,
        latest_seconds=latest,
        priority=operation.priority,
        limit_key=operation.limit_key,
        freed=needed.freed,
    )


@dataclass(frozen=True, slots=True)
class BlockedStep:
    """A step of a handler at another dependency, and what blocks it there."""

    dependency: str
    blocked: Blocked


def kind_of_block(blocked: Blocked | BlockedStep) -> WaitKind:
    """Return why a blocked attempt waits, or will wait if the entity that it asks refuses."""
    match blocked:
        case BlockedStep():
            return kind_of_block(blocked.blocked)
        case Refused():
            return kind_of_refusal(blocked)
        case NeedsProbe():
            return WaitKind.CIRCUIT
        case BudgetPostponed():
            return WaitKind.RETRY_BUDGET
        case NeedsSlot():
            return WaitKind.LIMIT
        case _ as never:
            assert_never(never)


@dataclass(frozen=True, slots=True)
class RetryState(JsonShape):
    """Where the retry loop of one call stands between two attempts."""

    history: History = field(default_factory=History)  # the attempts and waits so far
    # What the call has reached in the admission of its next attempt.
    admission: AdmissionState = field(default_factory=AdmissionState)
    due_at: datetime | None = None  # when the next attempt is due, aware UTC; None means at once
    # The same of a step of the next attempt, at another dependency; None when none was blocked.
    step: StepAdmission | None = None

    @property
    def may_have_acted(self) -> bool:
        """Whether the call may have taken effect: a handler that a step holds up has begun."""
        return self.history.may_have_acted is True or self.step is not None

    def with_canary(self, step_at: str | None) -> "RetryState":
        """Return the state in which the next attempt passes the circuit of its dependency, or of a step's."""
        admission = replace(self.admission_at(step_at), is_canary=True)
        if step_at is None:
            return replace(self, admission=admission)
        return replace(self, step=StepAdmission(step_at, admission))

    def admissions(self, dependency: str) -> tuple[tuple[str, AdmissionState], ...]:
        """Return the admission at each dependency: its own, which is the argument, and the step's."""
        own = ((dependency, self.admission),)
        return own if self.step is None else (*own, (self.step.dependency, self.step.admission))

    def with_nothing_held(self) -> "RetryState":
        """Return the state in which no limiter, circuit or budget expects it."""
        step = self.step
        if step is not None:
            step = replace(step, admission=step.admission.with_nothing_held())
        return replace(self, admission=self.admission.with_nothing_held(), step=step)

    def needed_slot(self, dependency: Any, own: str, freed: Any) -> "NeedsSlot | BlockedStep | None":
        """Return the slot of a dependency that the next attempt, or its step, waits for; None for none.

        Args:
            own: The dependency of the call.
            freed: As in `SlotRequest`.
        """
        held = next((held for at, held in self.admissions(own) if at == dependency), AdmissionState())
        if held.limits is None or not held.has_place:
            return None
        needed = NeedsSlot(held.limits, freed)
        return needed if dependency == own else BlockedStep(dependency, needed)

    def admission_at(self, step_at: str | None) -> AdmissionState:
        """Return the admission at a step's dependency; None means the operation's own dependency."""
        if step_at is None:
            return self.admission
        return held_admission(self.step, step_at)


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The activity failed instead of answering; whether the call left is not known here."""

    error: str  # one line for a person


@dataclass(frozen=True, slots=True)
class RequestProbe:
    """Send the message to the circuit's entity and continue with its answer."""

    message: PermitMessage
    limit_key: str | None = None  # whose circuit it is; None for that of the dependency


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Send the request to the entity `call_limiter` and continue with its answer."""

    request: SlotRequest


@dataclass(frozen=True, slots=True)
class AttemptNow:
    """Make the attempt at once: the probe or the slot was granted, and its lease runs."""


type LapResult = AttemptOutcome | WorkerFailed | Blocked | Permitted | Slot | SlotPostponed
"""What an attempt gave, what blocked it, or the answer of an entity: a permit for a probe, a slot or none."""

type Action = Decision | RequestProbe | RequestSlot | AttemptNow


def _uncounted(
    state: RetryState, action: Action, now: datetime, outcome: AttemptOutcome | None = None
) -> AdmissionState:
    """Return what an uncounted attempt keeps: its token of the retry budget, its first due time, markers."""
    admission = state.admission
    unsent = None if outcome is None else outcome.unsent
    markers = admission.unsent if unsent is None else (*(admission.unsent or ()), unsent)
    # Where the handler or dependency is missing, the retry budget was not asked for a token.
    has_asked = admission.promised_at is not None or outcome is None or not outcome.missing
    is_retry = has_asked and state.history.next_attempt > 1
    return AdmissionState(
        waiting=_is_counted_waiting(admission),
        promised_at=(action.until if isinstance(action, Wait) else now) if is_retry else None,
        circuit_key=admission.circuit_key,
        slot_since=admission.slot_since,
        unsent=markers,
    )


def _is_counted_waiting(admission: AdmissionState) -> bool:
    """Whether the circuit still counts the operation as waiting: a probe or a canary was not released."""
    return admission.waiting and admission.is_probe


def after(
    operation: Retryable,
    state: RetryState,
    result: LapResult,
    now: datetime,
    *,
    step_at: str | None = None,
    on_its_way: timedelta = timedelta(),
) -> tuple[RetryState, Action]:
    """Return the state after a result, of an attempt or of the circuit's entity, and what to do now.

    Args:
        step_at: The dependency of the step that the result is about; None when it is about the attempt.
        on_its_way: How long after it was asked for the result came.
    """
    if step_at is None:
        moved, action = _after(operation, state, result, now, on_its_way)
        has_ended = isinstance(result, AttemptOutcome | WorkerFailed)  # then no step is blocked any more
        return moved if has_ended else replace(moved, step=state.step), action
    at_step = replace(state, admission=state.admission_at(step_at))
    at_dependency = replace(operation, dependency=step_at)
    moved, action = _after(at_dependency, at_step, result, now, on_its_way)
    blocked_step = StepAdmission(step_at, moved.admission)
    return replace(moved, admission=_uncounted(state, action, now), step=blocked_step), action


def after_conflict(
    operation: Retryable, state: RetryState, conflict: Conflict, now: datetime
) -> tuple[RetryState, Decision]:
    """Return the state after a success that was not committed: its attempt counts as one that failed."""
    *before, last = state.history.attempts
    failed = AttemptOutcome(
        number=last.number,
        started_at=last.started_at,
        duration_ms=last.duration_ms,
        category=Category.TRANSIENT,
        error=str(conflict),
        dependency=last.dependency,
        app_version=last.app_version,
    )
    history = replace(state.history, attempts=tuple(before), attempt_count=last.number - 1, conflict=conflict)
    moved, action = after(operation, replace(state, history=history), failed, now)
    return moved, cast("Decision", action)  # After an outcome it is one.


def _after(
    operation: Retryable, state: RetryState, result: LapResult, now: datetime, on_its_way: timedelta
) -> tuple[RetryState, Action]:
    match result:
        case AttemptOutcome():
            is_probe = state.admission.is_probe or (state.step is not None and state.step.admission.is_probe)
            decision = after_attempt(operation, state.history, result, now, state.due_at, is_probe=is_probe)
            recorded = _with_late_turn(decision, result, now)
            history = record(_with_late_start(state, result), result, recorded, is_probe=is_probe)
            history = _with_bypassed(history, state, result)
            if result.may_have_acted(operation.handler):
                history = history.with_unclear_end()
            admission = AdmissionState(waiting=_is_counted_waiting(state.admission))
            if not result.counted:
                admission = _uncounted(state, decision, now, result)
                history = _with_wait(history, decision, now)
            return _state_with_decision(history, admission, decision)
        case WorkerFailed():
            decision = after_own_failure(operation, state.history, result.error, now)
            history = _with_wait(state.history.with_own_failure().with_unclear_end(), decision, now)
            return _state_with_decision(history, _uncounted(state, decision, now), decision)
        case NeedsProbe() | NeedsSlot():
            # The slot that it had was given back after the attempt's answer.
            admission, attempt = replace(state.admission, slot=None), state.history.next_attempt
            action: Action
            if isinstance(result, NeedsProbe):
                message = probe_message(operation, attempt, result.settings, now, on_its_way=on_its_way)
                admission = replace(admission, circuit_key=result.limit_key or admission.circuit_key)
                action = RequestProbe(message, result.limit_key)
            else:
                admission = admission.at_limiter(result.settings, now)
                request = slot_request(operation, attempt, admission, result, now, on_its_way=on_its_way)
                ends_at = now + timedelta(seconds=request.lease_seconds)
                admission, action = replace(admission, slot_ends_at=ends_at), RequestSlot(request)
            return replace(state, admission=admission), action
        case Permitted():
            return RetryState(state.history, replace(state.admission, permit=result), now), AttemptNow()
        case Slot():
            return RetryState(state.history, state.admission.with_slot(result, now), now), AttemptNow()
        case Refused() | BudgetPostponed() | SlotPostponed():
            return _after_refusal(operation, state, result, now)
        case _ as never:
            assert_never(never)


def before_turn(state: RetryState, now: datetime) -> Wait | None:
    """Return the wait of an attempt that was woken before its turn; None when it may start."""
    admissions = (state.admission, *(() if state.step is None else (state.step.admission,)))
    door = timedelta(seconds=DOOR_SECONDS)
    slots = [turn_at - door for admission in admissions if (turn_at := admission.turn_at) is not None]
    tokens = [promised_at for admission in admissions if (promised_at := admission.promised_at) is not None]
    at = max((*slots, *tokens), default=now)
    if at <= now + _EARLY_TOLERANCE:
        return None
    kind = WaitKind.RETRY_BUDGET if at in tokens else WaitKind.LIMIT
    return Wait(at, (at - now).total_seconds(), (_HAS_ITS_TURN,), kind)


_HAS_ITS_TURN: Final = "it has its turn then"
_EARLY_TOLERANCE: Final = timedelta(seconds=0.5)


def _with_bypassed(history: History, state: RetryState, outcome: AttemptOutcome) -> History:
    if not outcome.counted:
        return history
    at_step = () if state.step is None else state.step.admission.bypassed
    for reason in dict.fromkeys((*state.admission.bypassed, *at_step)):
        history = history.with_first_reason(reason)
    return history


SHOWN_LATE_AFTER: Final = timedelta(seconds=2)
"""Timers of a busy host are up to 2 s late; a longer delay is one of our own side."""


def _with_late_turn(decision: Decision, outcome: AttemptOutcome, now: datetime) -> Decision:
    """Return a decision; where our own side was late, its first reason says how long after its attempt."""
    late = now - end_of(outcome)
    if not isinstance(decision, Wait) or late <= SHOWN_LATE_AFTER:
        return decision
    return replace(decision, reasons=(f"{_nothing_worked(late)} after it", *decision.reasons))


def _with_late_start(state: RetryState, outcome: AttemptOutcome) -> History:
    """Return the history before an attempt, with how late it began where our own side held it up."""
    due_at = _due_at(state)
    if due_at is None or (late := outcome.started_at - due_at) <= SHOWN_LATE_AFTER:
        return state.history
    wait = PastWait(
        before_attempt=outcome.number,
        kind=WaitKind.OWN_FAILURE,
        began_at=due_at,
        until=outcome.started_at,
        delay_reasons=(_nothing_worked(late),),
    )
    return state.history.with_wait(wait)


def _due_at(state: RetryState) -> datetime | None:
    """Return when the next attempt was due: the end of the last one, plus its pause.

    Where the decision about that pause came late, the attempt shows it (`_with_late_turn`); then the pause
    counts from the decision.
    """
    history = state.history
    if state.due_at is None or not history.attempts or history.is_next_blocked:
        return state.due_at
    last = history.attempts[-1]
    planned_at = end_of(last) + timedelta(seconds=last.next_delay_seconds or 0)
    return planned_at if state.due_at - planned_at <= SHOWN_LATE_AFTER else state.due_at


def _nothing_worked(late: timedelta) -> str:
    return f"for {seconds_text(late.total_seconds())} nothing here worked on the operation"


def lease_expired(now: datetime) -> Refused:
    """Return the refusal of a probe whose lease expired on the way to the worker: another may have begun."""
    again_at = now + RECHECK
    return Refused(base=again_at, waiting=0, until=again_at, reason=ALL_PROBES_UNDER_WAY)


def _after_refusal(
    operation: Retryable, state: RetryState, blocked: Refused | BudgetPostponed | SlotPostponed, now: datetime
) -> tuple[RetryState, Action]:
    decision = while_blocked(operation, blocked, now)
    comes_at = decision.until if isinstance(decision, Wait) else None
    # A probe that waits for a slot keeps its permit: its circuit lets no other probe meanwhile.
    held = state.admission if isinstance(blocked, SlotPostponed) else state.admission.without_lease()
    admission = held.after_refusal(blocked, now, comes_at)
    history = state.history.with_circuit_wait() if isinstance(blocked, Refused) else state.history
    return _state_with_decision(_with_wait(history, decision, now), admission, decision)


def _state_with_decision(
    history: History, admission: AdmissionState, decision: Decision
) -> tuple[RetryState, Decision]:
    due_at = decision.until if isinstance(decision, Wait) else None
    if due_at is not None and admission.due_at is None:
        admission = replace(admission, due_at=due_at)
    return RetryState(history, admission, due_at), decision


def _with_wait(history: History, decision: Decision, now: datetime) -> History:
    """Return the history with a wait that no attempt records; a counted attempt records the wait after it."""
    if not isinstance(decision, Wait):
        return history
    return history.with_wait(
        PastWait(
            before_attempt=history.next_attempt,
            kind=decision.kind,
            began_at=now,
            until=decision.until,
            delay_reasons=decision.reasons,
        )
    )
