"""One attempt of an operation, with its admission before and its report to the circuit after.

    retry budget, circuit ──refused──> Blocked
            └──permitted──> marker (not for safe requests) ──> call, or handler ──> AttemptOutcome ──> report

The result of an attempt is an outcome; only a failure of our own storage raises.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

from azure.core.exceptions import AzureError

from durable_retry import clock
from durable_retry.engine.base.errors import ContendedError, StorageRefusedError
from durable_retry.engine.base.names import Category
from durable_retry.engine.facts import AttemptEnded, AttemptHeld, DeliveryEnded
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.operation import AttemptCall, OperationInput, digest_of
from durable_retry.engine.operations.steps import OvertakenError
from durable_retry.engine.retry.admission import AdmissionState
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import Blocked, BlockedStep, kind_of_block
from durable_retry.handlers.registry import find_handler
from durable_retry.services.attempt.admission import (
    AttemptFunction,
    StepBlockedError,
    StepGate,
    attempt_if_admitted,
)
from durable_retry.services.attempt.handler import attempt_handler, noted_start
from durable_retry.services.attempt.http_request import Plan, attempt_request, needs_marker, start_clock
from durable_retry.settings.configuration import app_settings, find_dependency
from durable_retry.stores.operations.results import store_apart
from durable_retry.stores.operations.writes import insert_marker, remove_marker, write_outcome
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)


async def attempt_operation(hub: TaskHub, call: AttemptCall) -> AttemptOutcome | Blocked | BlockedStep:
    """Make one attempt of an operation, if its retry budget and its circuit let it start."""
    sent = call.operation or await read_by_digest(hub, call.operation_id or "", call.digest or "")
    operation = sent.to_attempt(clock.now(), is_owed=call.is_owed, acted_before=call.acted_before is True)
    number, admission = call.attempt, call.admission
    gate = StepGate(hub, operation, number, call.step)
    answer: AttemptOutcome | Blocked | BlockedStep
    try:
        answer = await attempt_if_admitted(
            hub,
            find_dependency(operation.dependency),
            operation,
            number=number,
            admission=admission,
            attempt=partial(
                make_attempt,
                operation,
                number,
                gate,
                was_held=admission != _AT_ONCE,
                unsent=admission.unsent or (),
            ),
        )
    except StepBlockedError as error:
        answer = error.step
    if not isinstance(answer, AttemptOutcome):
        report(AttemptHeld(operation, kind_of_block(answer)))
        return answer
    return await _with_result_apart(operation, answer)


async def _with_result_apart(operation: OperationInput, outcome: AttemptOutcome) -> AttemptOutcome:
    """Store a large result apart; the history carries one that cannot be stored, as it carries small ones."""
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


# Operations that a process remembers; each is as large as a request may be.
_MOST_READ: Final = 64

_read: OrderedDict[tuple[str, str], OperationInput] = OrderedDict()


async def read_by_digest(hub: TaskHub, operation_id: str, digest: str) -> OperationInput:
    """Return an operation from the input of its orchestration; a process reads each once.

    Args:
        digest: As `start_input` made it. Two starts that raced on Azure Storage can leave the input of one
            in the instance and run the other.
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


# Nothing has held the attempt up.
_AT_ONCE: Final = AdmissionState()


async def observed(
    operation: OperationInput,
    number: int,
    attempt: AttemptFunction,
    fact_of: Callable[[OperationInput, AttemptOutcome], AttemptEnded | DeliveryEnded],
) -> AttemptOutcome:
    """Make an attempt inside its span, and report its end; a repeated execution is reported again."""
    with spans.attempt(operation, number) as span:
        outcome = await attempt()
        spans.attempt_ended(span, outcome)
        report(fact_of(operation, outcome))
    return outcome


async def make_attempt(
    operation: OperationInput,
    number: int,
    gate: StepGate | None = None,
    *,
    was_held: bool = False,
    unsent: Collection[str] = (),
) -> AttemptOutcome:
    """Make one attempt without asking for admission.

    Args:
        gate: Admits its steps at other dependencies; None for those that ask nobody.
        unsent: Earlier executions of this attempt that sent nothing.
    """
    ended = partial(AttemptEnded, was_held=was_held)
    make = partial(_make_attempt, operation, number, gate or StepGate(None, operation, number), unsent)
    return await observed(operation, number, make, ended)


async def _make_attempt(
    operation: OperationInput, number: int, gate: StepGate, unsent: Collection[str]
) -> AttemptOutcome:
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
        return await _run_handler(plan, operation.handler, gate, unsent)
    if not needs_marker(plan):
        return await attempt_request(plan)
    return await _at_most_once(plan, attempt_request, unsent)


def _too_late(plan: Plan) -> AttemptOutcome | None:
    if plan.limit.seconds > 0:
        return None
    error = "the deadline passed before it could start"
    return plan.outcome(category=Category.DEADLINE_EXCEEDED, error=error, counted=False)


async def _run_handler(plan: Plan, name: str, gate: StepGate, unsent: Collection[str]) -> AttemptOutcome:
    handler = find_handler(name)
    if handler is None:
        error = f"handler {name} is not registered here any more"
        return plan.outcome(category=Category.TRANSIENT, error=error, counted=False)
    run = partial(attempt_handler, handler=handler, gate=gate)
    if handler.repeatable is False:
        return await _at_most_once(plan, run, unsent)
    started = await noted_start(plan, handler)
    if isinstance(started, AttemptOutcome):
        return started
    # The time that our own storage took must not count against the handler.
    begun = replace(started, limit=start_clock(plan.operation))
    outcome = _too_late(begun) or await _with_marker(begun, run)
    if not outcome.counted:
        await _note_outcome(begun, outcome)
    return _in_run(outcome, started.operation.run, plan)


def _in_run(outcome: AttemptOutcome, run: int, plan: Plan) -> AttemptOutcome:
    """Return an outcome that says in which run the operation goes on, where that is another start's."""
    return outcome if run == plan.operation.run else replace(outcome, run=run)


async def _with_marker(plan: Plan, make: Callable[[Plan], Awaitable[AttemptOutcome]]) -> AttemptOutcome:
    # When a step must wait the attempt is made again, so its marker goes.
    try:
        return await make(plan)
    except StepBlockedError:
        left = plan.outcome(category=Category.TRANSIENT, error="its marker was not removed", counted=False)
        if await _note_outcome(plan, left):
            raise
        return left


async def _at_most_once(
    plan: Plan, make: Callable[[Plan], Awaitable[AttemptOutcome]], unsent: Collection[str]
) -> AttemptOutcome:
    """Make an attempt that must not be made twice; a second execution returns the outcome of the first."""
    life, started_at, execution = plan.operation.life, plan.limit.started_at, uuid4().hex
    try:
        marked = await insert_marker(life, plan.number, now=started_at, execution=execution, unsent=unsent)
    except OvertakenError as error:
        return plan.outcome(category=Category.AMBIGUOUS, error=str(error))
    except (AzureError, StorageRefusedError, ContendedError) as error:
        return plan.outcome(
            category=Category.TRANSIENT,
            error=f"its marker was not written: {type(error).__name__}",
            counted=False,
            unsent=execution,
        )
    if marked is None:
        # The time that our own storage took must not count against the dependency.
        begun = replace(plan, limit=start_clock(plan.operation))
        outcome = _too_late(begun) or await _with_marker(begun, make)
        await _note_outcome(begun, outcome)
        return outcome if outcome.counted else replace(outcome, unsent=execution)
    if marked.outcome is not None:
        return _in_run(AttemptOutcome.from_json(marked.outcome), marked.run, plan)
    unknown = "an earlier execution of this attempt may have taken effect; its outcome is not known"
    return plan.outcome(category=Category.AMBIGUOUS, error=unknown)


async def _note_outcome(plan: Plan, outcome: AttemptOutcome) -> bool:
    """Write an outcome beside its marker; return whether that succeeded. The orchestration gets it anyway.

    An attempt that never left our side is made again under its number, so its marker is removed instead.
    """
    owner = plan.operation.owner
    try:
        if outcome.counted:
            await write_outcome(owner, plan.number, outcome.to_json())
        else:
            await remove_marker(owner, plan.number)
    except AzureError as error:
        _log.warning(
            "the outcome of %s, attempt %d, was not noted: %s",
            owner,
            plan.number,
            type(error).__name__,
            extra=fields_of(plan.operation, {ATTEMPT_NUMBER: plan.number}),
        )
        return False
    return True
