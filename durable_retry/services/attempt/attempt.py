"""One attempt of an operation, with its admission before and its report to the circuit after.

    retry budget, circuit ──refused──> Blocked
            └──permitted──> marker (not for safe requests) ──> call, or handler ──> AttemptOutcome ──> report

The result of an attempt is an outcome; only a failure of our own storage raises.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from azure.core.exceptions import AzureError

from durable_retry import clock
from durable_retry.engine.base.names import Category
from durable_retry.engine.circuit import ERROR_CHARACTERS, CallHealth, LastFailure, Permitted, call_health
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.facts import AttemptEnded, AttemptHeld, DeliveryEnded
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.operation import OperationInput, digest_of
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import AdmissionState, Blocked
from durable_retry.engine.retry.policy import RetryPolicy
from durable_retry.errors import StorageRefusedError
from durable_retry.facts import report
from durable_retry.handler_registry import find_handler
from durable_retry.services.attempt.handler import attempt_handler, begun_too_often
from durable_retry.services.attempt.http_request import (
    Plan,
    attempt_request,
    needs_marker,
    start_clock,
)
from durable_retry.settings.configuration import app_settings, find_dependency
from durable_retry.stores.circuit.cache import CircuitCache, circuit_of
from durable_retry.stores.operations.results import store_apart
from durable_retry.stores.operations.writes import insert_marker, remove_marker, write_outcome
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry import spans
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)


type AttemptCall = Callable[[], Awaitable[AttemptOutcome]]


async def attempt_operation(
    hub: TaskHub, operation: OperationInput, number: int, admission: AdmissionState
) -> AttemptOutcome | Blocked:
    """Make one attempt of an operation, if its retry budget and its circuit let it start.

    Args:
        operation: The one that is attempted.
        number: Its number, from 1.
        admission: What the operation has reached in the admission of this attempt.
    """
    answer = await attempt_if_admitted(
        hub,
        find_dependency(operation.dependency),
        operation,
        number=number,
        admission=admission,
        attempt=partial(make_attempt, operation, number, was_held=admission != _AT_ONCE),
    )
    if not isinstance(answer, AttemptOutcome):
        report(AttemptHeld(operation))
        return answer
    return await _with_result_apart(operation, answer)


async def _with_result_apart(operation: OperationInput, outcome: AttemptOutcome) -> AttemptOutcome:
    """Return an outcome whose result is stored apart when it is large.

    The call has succeeded. When its result cannot be stored, the history carries it as it carries small ones.
    """
    if outcome.category is not None or not isinstance(outcome.result, Mapping):
        return outcome
    try:
        result = await store_apart(
            operation,
            outcome.number,
            outcome.result,
            most_chars=app_settings().result_inline_bytes,
            now=clock.now(),
        )
    except (AzureError, StorageRefusedError) as error:
        _log.warning("the result of %s stays in its history: %s", operation.run_id, type(error).__name__)
        return outcome
    return replace(outcome, result=result)


class OperationElsewhereError(Exception):
    """The instance of an operation holds another operation, or is gone; the orchestration sends its own."""


_MOST_READ: Final = 64
"""Operations that a process remembers; each is as large as a request may be."""

_read: OrderedDict[tuple[str, str], OperationInput] = OrderedDict()


async def read_by_digest(hub: TaskHub, operation_id: str, digest: str) -> OperationInput:
    """Return an operation from the input of its orchestration; a process reads each once.

    Args:
        digest: As `start_input` made it. Two starts that raced on Azure Storage can leave the input of one
            in the instance and run the other.

    Raises:
        OperationElsewhereError: The instance has another input.
        errors.TaskHubUnavailableError: The task hub did not answer.
    """
    found = _read.get((operation_id, digest))
    if found is not None:
        return found
    instance = await hub.read_instance(operation_id)
    written = {} if instance is None else written_operation(instance.input)
    if digest_of(written) != digest:
        raise OperationElsewhereError(operation_id)
    operation = _read[operation_id, digest] = replace(OperationInput.from_json(written), on_success=())
    if len(_read) > _MOST_READ:
        _read.popitem(last=False)
    return operation


_AT_ONCE: Final = AdmissionState(asks_for_slot=True)
"""Nothing has held the attempt up."""


async def attempt_if_admitted(
    hub: TaskHub,
    dependency: Dependency | None,
    operation: OperationInput,
    *,
    number: int,
    admission: AdmissionState,
    attempt: AttemptCall,
) -> AttemptOutcome | Blocked:
    """Make an attempt if the retry budget and the circuit let it start, and report its end to the circuit.

    Args:
        dependency: What it calls; None when it is not configured any more: then the attempt says so.
        operation: The one that is attempted.
        number: Its number, from 1.
        admission: What the operation has reached in the admission of this attempt.
        attempt: Makes it.
    """
    if dependency is None or not dependency.needs_admission:
        return await attempt()
    circuit = circuit_of(hub, dependency)
    answer = await circuit.enter(operation.operation_id, number, admission)
    if not isinstance(answer, Permitted):
        return answer
    return await _reported_outcome(circuit, answer, operation.policy, attempt)


async def _reported_outcome(
    circuit: CircuitCache, permitted: Permitted, policy: RetryPolicy, attempt: AttemptCall
) -> AttemptOutcome:
    try:
        outcome = await attempt()
    except BaseException:
        # Our own storage failed, or the host cancelled the activity: that says nothing about the dependency,
        # but the lease of a probe must be returned.
        await circuit.leave(permitted, CallHealth.SILENT, duration_seconds=0.0)
        raise
    await circuit.leave(
        permitted,
        health_shown_by(outcome),
        duration_seconds=outcome.duration_ms / 1000,
        throttled_until=pause_requested_by(outcome, policy, clock.now()),
        failure=failure_of(outcome),
        rate_left=outcome.rate_left if policy.respect_retry_after else None,
        is_throttled=outcome.category is Category.THROTTLED,
    )
    return outcome


def health_shown_by(outcome: AttemptOutcome) -> CallHealth:
    """Return what an attempt shows of the dependency's health: nothing, if the failure was on our side."""
    is_ours = outcome.is_our_bug or not outcome.counted
    return CallHealth.SILENT if is_ours else call_health(outcome.category, outcome.status_code)


def failure_of(outcome: AttemptOutcome) -> LastFailure | None:
    """Return what went wrong in an attempt, which a circuit shows as its last failure; None for a success."""
    if outcome.category is None:
        return None
    status = None if outcome.status_code is None else f"status {outcome.status_code}"
    error = ": ".join(part for part in (status, outcome.error) if part)
    return LastFailure(outcome.category.value, error[:ERROR_CHARACTERS])


def pause_requested_by(outcome: AttemptOutcome, policy: RetryPolicy, now: datetime) -> datetime | None:
    """Return until when the dependency asked all callers to pause; None when it did not.

    A success asks for it too, where its headers say that nothing is left of the rate limit: the next call
    would be refused.

    The pause is as long as an operation itself would wait: at most `max_retry_after_seconds`, and none when
    the policy does not respect `Retry-After`.
    """
    hint = outcome.retry_hint
    if outcome.category not in {Category.THROTTLED, None} or hint is None or not hint.is_usable:
        return None
    if not policy.respect_retry_after:
        return None
    return now + timedelta(seconds=min(hint.delay_seconds, policy.max_retry_after_seconds))


async def observed(
    operation: OperationInput,
    number: int,
    attempt: AttemptCall,
    fact_of: Callable[[OperationInput, AttemptOutcome], AttemptEnded | DeliveryEnded],
) -> AttemptOutcome:
    """Make an attempt inside its span, and report its end; a repeated execution is reported again.

    Args:
        operation: The one that is attempted.
        number: Its number, from 1.
        attempt: Makes it.
        fact_of: Makes the fact to report.
    """
    with spans.attempt(operation, number) as span:
        outcome = await attempt()
        spans.attempt_ended(span, outcome)
        report(fact_of(operation, outcome))
    return outcome


async def make_attempt(operation: OperationInput, number: int, *, was_held: bool = False) -> AttemptOutcome:
    """Make one attempt without asking for admission; `was_held` says that an earlier request was refused."""
    ended = partial(AttemptEnded, was_held=was_held)
    return await observed(operation, number, partial(_make_attempt, operation, number), ended)


async def _make_attempt(operation: OperationInput, number: int) -> AttemptOutcome:
    limit = start_clock(operation)
    dependency = find_dependency(operation.dependency)
    if dependency is None:
        return AttemptOutcome(
            number=number,
            started_at=limit.started_at,
            duration_ms=limit.elapsed_ms,
            category=Category.TRANSIENT,
            error=f"dependency {operation.dependency} is not configured here any more",
            counted=False,
        )
    plan = Plan(operation, number, dependency, limit)
    if (outcome := _too_late(plan)) is not None:
        return outcome
    if operation.handler is not None:
        return await _run_handler(plan, operation.handler)
    return await (_at_most_once(plan, attempt_request) if needs_marker(plan) else attempt_request(plan))


def _too_late(plan: Plan) -> AttemptOutcome | None:
    if plan.limit.seconds > 0:
        return None
    error = "the deadline passed before it could start"
    return plan.outcome(category=Category.DEADLINE_EXCEEDED, error=error, counted=False)


async def _run_handler(plan: Plan, name: str) -> AttemptOutcome:
    handler = find_handler(name)
    if handler is None:
        error = f"handler {name} is not registered here any more"
        return plan.outcome(category=Category.TRANSIENT, error=error, counted=False)
    if handler.repeatable is False:
        return await _at_most_once(plan, partial(attempt_handler, handler=handler))
    if (too_often := await begun_too_often(plan, handler)) is not None:
        return too_often
    # The time that our own storage took must not count against the handler.
    begun = replace(plan, limit=start_clock(plan.operation))
    outcome = _too_late(begun) or await attempt_handler(begun, handler)
    if not outcome.counted:
        await _note_outcome(begun, outcome)
    return outcome


async def _at_most_once(plan: Plan, make: Callable[[Plan], Awaitable[AttemptOutcome]]) -> AttemptOutcome:
    """Make an attempt that must not be made twice; a second execution returns the outcome of the first."""
    marked = await insert_marker(plan.operation.run_id, plan.number, plan.limit.started_at)
    if marked is None:
        # The time that our own storage took must not count against the dependency.
        begun = replace(plan, limit=start_clock(plan.operation))
        outcome = _too_late(begun) or await make(begun)
        await _note_outcome(begun, outcome)
        return outcome
    if marked.outcome is not None:
        return AttemptOutcome.from_json(marked.outcome)
    error = "an earlier execution of this attempt may have taken effect; its outcome is not known"
    return plan.outcome(category=Category.AMBIGUOUS, error=error)


async def _note_outcome(plan: Plan, outcome: AttemptOutcome) -> None:
    """Write an outcome beside its marker; if that fails, the orchestration still gets it as the answer.

    An attempt that never left our side is made again under its number, so its marker is removed instead.
    """
    run = plan.operation.run_id
    try:
        if outcome.counted:
            await write_outcome(run, plan.number, outcome.to_json())
        else:
            await remove_marker(run, plan.number)
    except AzureError as error:
        _log.warning(
            "the outcome of %s, attempt %d, was not noted: %s",
            run,
            plan.number,
            type(error).__name__,
            extra=fields_of(plan.operation, {ATTEMPT_NUMBER: plan.number}),
        )
