"""The admission of an attempt to its dependency, and its report to the circuit."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from durable_retry.base.names import Category
from durable_retry.base.text import outcome_text, seconds_text
from durable_retry.circuit.cache import CircuitCache, enter_circuit, freeze_of, pause_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.calls import ERROR_CHARACTERS, CallEnd, CallHealth, call_health
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked, BlockedStep
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.runtime import clock

type AttemptFunction = Callable[[], Awaitable[AttemptOutcome]]


class StepBlockedError(Exception):
    """A step may not start yet; `step` says what blocks it."""

    def __init__(self, step: BlockedStep) -> None:
        super().__init__(f"a step at {step.dependency} may not start yet")
        self.step = step


async def attempt_if_admitted(
    hub: TaskHub,
    dependency: Dependency | None,
    operation: OperationInput,
    *,
    number: int,
    admission: AdmissionState,
    attempt: AttemptFunction,
) -> AttemptOutcome | Blocked:
    """Make an attempt if the retry budget and the circuit let it start, and report its end to the circuit.

    Args:
        dependency: What it calls; None when it is not configured any more: then the attempt says so.
    """
    if dependency is None:
        return await attempt()
    if admission.is_canary:
        return await pause_of(hub, dependency, operation) or await attempt()
    if not dependency.needs_admission:
        return await freeze_of(hub, dependency, operation) or await attempt()
    circuit, answer = await enter_circuit(hub, dependency, operation, number, admission)
    if not isinstance(answer, Permitted):
        return answer
    outcome = await _reported_outcome(circuit, answer, operation.policy, attempt)
    return replace(outcome, gave_slot_back=True) if answer.gave_slot_back else outcome


async def _reported_outcome(
    circuit: CircuitCache, permitted: Permitted, policy: RetryPolicy, attempt: AttemptFunction
) -> AttemptOutcome:
    try:
        outcome = await attempt()
    except BaseException:
        # Our own storage failed, or the host cancelled the activity: that says nothing about the dependency,
        # but the lease of a probe must be returned.
        await circuit.leave(permitted, CallEnd())
        raise
    pause = await report_to_circuit(circuit, permitted, policy, outcome)
    is_longer = outcome.category is not None and pause is not None and pause > policy.max_retry_after_seconds
    return replace(outcome, pause_seconds=pause) if is_longer else outcome


async def report_to_circuit(
    circuit: CircuitCache, permitted: Permitted, policy: RetryPolicy, outcome: AttemptOutcome
) -> float | None:
    """Report an attempt to its circuit; return for how many seconds it pauses the circuit, None for not."""
    if outcome.is_elsewhere:
        await circuit.leave(permitted, CallEnd())
        return None
    settings = circuit.settings
    pause = pause_requested_by(outcome, policy, settings.circuit)
    end = CallEnd(
        health=health_shown_by(outcome, of_key=settings.limit_key is not None),
        duration_seconds=outcome.duration_ms / 1000,
        throttled_until=None if pause is None else clock.now() + timedelta(seconds=pause),
        throttled_by=None if pause is None else pause_asked_by(outcome, pause, settings.limit_key),
        failure=failure_of(outcome),
    )
    await circuit.leave(permitted, end)
    return pause


def health_shown_by(outcome: AttemptOutcome, *, of_key: bool = False) -> CallHealth:
    """Return what an attempt shows of the dependency's health: nothing, if the failure was on our side.

    `of_key` as in `call_health`.
    """
    if outcome.refuses_credential:
        return CallHealth.UNAUTHORIZED
    if outcome.is_our_bug or not outcome.counted:
        return CallHealth.SILENT
    return call_health(outcome.category, outcome.status_code, of_key=of_key, is_ruled=outcome.is_ruled)


def failure_of(outcome: AttemptOutcome) -> str | None:
    """Return what went wrong in an attempt, such as `503: upstream connect error`; None for a success."""
    if outcome.category is None:
        return None
    return outcome_text(outcome.status_code, outcome.error)[:ERROR_CHARACTERS]


def pause_asked_by(outcome: AttemptOutcome, pause_seconds: float, limit_key: str | None = None) -> str:
    """Return what asked for a pause and for how long, for a person: `429 (Retry-After 1800 s)`."""
    source = "its handler" if outcome.status_code is None else str(outcome.status_code)
    source = "its rate limit" if outcome.category is None else source
    if limit_key is not None:
        source = f"{source} for {limit_key}"
    hint = outcome.retry_hint
    if hint is None:
        return source
    cut = f", kept for {seconds_text(pause_seconds)}" if pause_seconds < hint.delay_seconds else ""
    return f"{source} ({hint.source} {seconds_text(hint.delay_seconds)}{cut})"


def pause_requested_by(
    outcome: AttemptOutcome, policy: RetryPolicy, circuit: CircuitSettings
) -> float | None:
    """Return for how many seconds the dependency asked all callers to pause; None when it did not.

    A success asks for it too, where its headers say that nothing is left of the rate limit: the next call
    would be refused.

    The pause is as long as asked, at most `max_pause_seconds`, or as an operation itself would wait where
    that is longer. There is none when the policy does not respect `Retry-After`, or without a circuit.
    """
    hint = outcome.retry_hint
    if outcome.category not in {Category.THROTTLED, None} or hint is None or not hint.is_usable:
        return None
    if not (policy.respect_retry_after and circuit.enabled):
        return None
    return min(hint.delay_seconds, max(policy.max_retry_after_seconds, circuit.max_pause_seconds))
