"""One attempt of an operation, with its admission before and its report to the circuit after.

    retry budget, circuit ──refused──> Blocked
            └──permitted──> marker (unsafe requests only) ──> call, or handler ──> AttemptOutcome ──> report

The result of an attempt is an outcome; only a failure of our own storage raises.
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx
from azure.core.exceptions import AzureError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from durable_retry import clock
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.validation import InvalidInputError, validated
from durable_retry.engine.circuit import CallHealth, Permitted, call_health
from durable_retry.engine.dependency import Dependency
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import Event
from durable_retry.engine.retry.classify import classify_handler_failure, classify_status
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import AdmissionState, Blocked
from durable_retry.engine.retry.policy import RetryPolicy
from durable_retry.engine.retry.retry_after import hint_from_handler, parse_retry_after
from durable_retry.handlers import (
    MAX_WRITES,
    Call,
    Handler,
    Outcome,
    TableWrite,
    Throttled,
    Transient,
    find_handler,
)
from durable_retry.services.attempt.http_client import client_for
from durable_retry.services.attempt.http_request import (
    Plan,
    attempt_request,
    error_line,
    needs_marker,
    start_clock,
)
from durable_retry.settings.configuration import find_dependency
from durable_retry.stores.circuit_cache import CircuitCache, circuit_of
from durable_retry.stores.operation_writes import insert_marker, remove_marker, write_outcome
from durable_retry.telemetry import events as telemetry
from durable_retry.telemetry import spans
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_BUGS: Final = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    NotImplementedError,
    RecursionError,
    ZeroDivisionError,
)
"""Exceptions that a change of the handler ends, and no repetition."""

_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_KEY: Final = re.compile(r"[^/\\#?\x00-\x1f\x7f-\x9f]{0,512}")
_PROPERTY: Final = re.compile(r"[^\W\d]\w{0,254}")
_TEXT_CHARS: Final = 32_768
"""Azure Tables store text as UTF-16, 64 KiB for one property."""

_log = logging.getLogger(__name__)


class HandlerReturnError(ValueError):
    """What a handler returned can never be committed; it is the handler that has to change."""


async def attempt_handler(plan: Plan, handler: Handler) -> AttemptOutcome:
    """Run a handler once and return the outcome; whatever it raises becomes an outcome."""
    call = Call(
        key=plan.operation.sent_key,
        attempt=plan.number,
        seconds_left=plan.limit.seconds_left,
        correlation_id=plan.operation.correlation_id,
        client=client_for(plan.dependency),
    )
    try:
        given = handler.input_model.model_validate(plan.operation.input)
        async with asyncio.timeout(plan.limit.seconds_left):
            returned = await handler.function(given, call)
        return plan.outcome(result=_result(returned))
    except (ValidationError, HandlerReturnError) as error:
        return plan.outcome(category=Category.MALFORMED, error=error_line(error, plan.dependency))
    except httpx.HTTPStatusError as error:
        return _refused_by_dependency(plan, error)
    except Exception as error:  # noqa: BLE001 - the contract: any other exception of a handler is transient
        return _raised(plan, handler, error)


def _refused_by_dependency(plan: Plan, error: httpx.HTTPStatusError) -> AttemptOutcome:
    """Return the outcome of an answer on which the handler called `raise_for_status`, as for a request."""
    status_code = error.response.status_code
    hint = parse_retry_after(error.response.headers, status_code=status_code, now=clock.now())
    category = classify_status(
        status_code, retry_hint=hint, unprotected=False, overrides=plan.dependency.classify
    )
    return plan.outcome(
        category=category or Category.TRANSIENT,
        status_code=status_code,
        error=error_line(error, plan.dependency),
        retry_hint=hint,
    )


def _raised(plan: Plan, handler: Handler, error: Exception) -> AttemptOutcome:
    names = [cls.__name__ for cls in type(error).__mro__]
    if isinstance(error, _BUGS) and not plan.dependency.classify.keys() & set(names):
        _log.error(
            "handler %s has a bug, seen in %s",
            handler.name,
            plan.operation.operation_id,
            exc_info=error,
            extra=fields_of(plan.operation, {}),
        )
        line = f"bug in handler {handler.name}: {error_line(error, plan.dependency)}"
        return plan.outcome(category=Category.MALFORMED, error=line, is_our_bug=True)
    verdict = classify_handler_failure(names, overrides=plan.dependency.classify)
    seconds = error.retry_after if isinstance(error, Transient | Throttled) else None
    return plan.outcome(
        category=verdict.category,
        error=error_line(error, plan.dependency),
        retry_hint=None if seconds is None else hint_from_handler(seconds),
        counted=verdict.counted,
    )


def _result(returned: Any) -> dict[str, Any]:
    """Return a handler's success as plain JSON, its writes and events beside the value for the commit.

    Raises:
        HandlerReturnError: What it returned cannot be stored as it is.
    """
    outcome = returned if isinstance(returned, Outcome) else Outcome(returned)
    writes = list(outcome.writes)
    if len(writes) > MAX_WRITES:
        raise HandlerReturnError(f"{len(writes)} writes; one transaction takes {MAX_WRITES}")
    for write in writes:
        _check(write)
    if len({(write.table, write.partition_key) for write in writes}) > 1:
        raise HandlerReturnError("all writes of one outcome must share one table and partition_key")
    try:
        result: dict[str, Any] = {"value": TypeAdapter(Any).dump_python(outcome.value, mode="json")}
        events = [validated(Event, dict(event)).to_json() for event in outcome.events]
    except (PydanticSerializationError, InvalidInputError) as error:
        raise HandlerReturnError(f"the returned value or events: {error}") from error
    if writes:
        result["writes"] = [write.to_json() for write in writes]
    if events:
        result["events"] = events
    return result


def _check(write: TableWrite) -> None:
    """Refuse a write that storage would refuse, or that cannot be stored as JSON until the commit.

    Raises:
        HandlerReturnError: With the first reason.
    """
    if not isinstance(write, TableWrite):
        raise HandlerReturnError(f"a write is a {type(write).__name__}, not a TableWrite")
    if not (isinstance(write.table, str) and _TABLE.fullmatch(write.table)):
        raise HandlerReturnError(f"{write.table!r} is no name of a table")
    for key in (write.partition_key, write.row_key):
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            raise HandlerReturnError(f"{key!r} is no key of a row in {write.table}")
    for name, value in write.values.items():
        if not (isinstance(name, str) and _PROPERTY.fullmatch(name)):
            raise HandlerReturnError(f"{name!r} is no name of a property in {write.table}")
        if not _is_storable(value):
            raise HandlerReturnError(
                f"property {name} of {write.table} is {type(value).__name__} {value!r:.80}"
            )


def _is_storable(value: object) -> bool:
    """Whether a property's value is text, a number that fits, or a boolean; dates go in as text."""
    match value:
        case bool():
            return True
        case str():
            return len(value.encode("utf-16-le", "surrogatepass")) <= 2 * _TEXT_CHARS
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return False


type Attempt = Callable[[], Awaitable[AttemptOutcome]]


async def attempt_operation(
    hub: str, operation: OperationInput, number: int, admission: AdmissionState
) -> AttemptOutcome | Blocked:
    """Make one attempt of an operation, if its retry budget and its circuit let it start.

    Args:
        hub: Configuration of the durable client.
        operation: Whose attempt it is.
        number: Which one, from 1.
        admission: What the operation has reached in the admission of this attempt.
    """
    return await attempt_if_admitted(
        hub,
        find_dependency(operation.dependency),
        operation,
        number=number,
        admission=admission,
        attempt=partial(make_attempt, operation, number),
    )


async def attempt_if_admitted(
    hub: str,
    dependency: Dependency | None,
    operation: OperationInput,
    *,
    number: int,
    admission: AdmissionState,
    attempt: Attempt,
) -> AttemptOutcome | Blocked:
    """Make an attempt if the retry budget and the circuit let it start, and report its end to the circuit.

    Args:
        hub: Configuration of the durable client.
        dependency: What it calls; None when it is not configured any more: then the attempt says so.
        operation: Whose attempt it is.
        number: Which one, from 1.
        admission: What the operation has reached in the admission of this attempt.
        attempt: Makes it.
    """
    circuit = None if dependency is None else circuit_of(hub, dependency)
    if circuit is None:
        return await attempt()
    answer = await circuit.enter(operation.operation_id, number, admission)
    if not isinstance(answer, Permitted):
        return answer
    return await _reported(circuit, answer, operation.policy, attempt)


async def _reported(
    circuit: CircuitCache, permitted: Permitted, policy: RetryPolicy, attempt: Attempt
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
    )
    return outcome


def health_shown_by(outcome: AttemptOutcome) -> CallHealth:
    """Return what an attempt shows of the dependency's health: nothing, if the failure was on our side."""
    is_ours = outcome.is_our_bug or not outcome.counted
    return CallHealth.SILENT if is_ours else call_health(outcome.category, outcome.status_code)


def pause_requested_by(outcome: AttemptOutcome, policy: RetryPolicy, now: datetime) -> datetime | None:
    """Return until when the dependency asked all callers to pause; None when it did not.

    The pause is as long as an operation itself would wait: at most `max_retry_after_seconds`, and none when
    the policy does not respect `Retry-After`.
    """
    hint = outcome.retry_hint
    if outcome.category is not Category.THROTTLED or hint is None or not hint.is_usable:
        return None
    if not policy.respect_retry_after:
        return None
    return now + timedelta(seconds=min(hint.delay_seconds, policy.max_retry_after_seconds))


async def observed(operation: OperationInput, number: int, attempt: Attempt) -> AttemptOutcome:
    """Make an attempt inside its span, metric and log line; a repeated execution is observed again.

    Args:
        operation: Whose attempt it is.
        number: Which one, from 1.
        attempt: Makes it.
    """
    with spans.attempt(operation, number) as span:
        outcome = await attempt()
        spans.attempt_ended(span, outcome, telemetry.outcome_name(outcome))
        telemetry.attempted(operation, outcome)
    return outcome


async def make_attempt(operation: OperationInput, number: int) -> AttemptOutcome:
    """Make one attempt without asking for admission."""
    return await observed(operation, number, partial(_make_attempt, operation, number))


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
    return await (_at_most_once if needs_marker(plan) else attempt_request)(plan)


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
    return await attempt_handler(plan, handler)


async def _at_most_once(plan: Plan) -> AttemptOutcome:
    """Make an attempt that must not be made twice; a second execution returns the outcome of the first."""
    marked = await insert_marker(plan.operation.run_id, plan.number, plan.limit.started_at)
    if marked is None:
        # The dependency gets its whole time: how long our own storage took must not count against it.
        begun = replace(plan, limit=start_clock(plan.operation))
        outcome = _too_late(begun) or await attempt_request(begun)
        await _note(begun, outcome)
        return outcome
    if marked.outcome is not None:
        return AttemptOutcome.from_json(marked.outcome)
    error = "an earlier execution of this attempt may have sent the request; its outcome is not known"
    return plan.outcome(category=Category.AMBIGUOUS, error=error)


async def _note(plan: Plan, outcome: AttemptOutcome) -> None:
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
