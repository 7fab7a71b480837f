"""One attempt of an operation, with its admission before and its report to the circuit after.

    retry budget, circuit ──refused──> Blocked
            └──permitted──> marker (not for safe requests) ──> call, or handler ──> AttemptOutcome ──> report

The result of an attempt is an outcome; only a failure of our own storage raises.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

from azure.core.exceptions import AzureError

from durable_retry.attempt.admission import (
    AttemptFunction,
    StepBlockedError,
    StepGate,
    attempt_if_admitted,
)
from durable_retry.attempt.call_transport import SentMark
from durable_retry.attempt.handler import (
    attempt_handler,
    in_run_of_plan,
    noted_start,
    outcome_of_marked,
    sends_once,
)
from durable_retry.attempt.http_request import AttemptClock, Plan, attempt_request, needs_marker, start_clock
from durable_retry.attempt.markers import SENT, insert_marker, remove_marker, write_outcome
from durable_retry.attempt.results import store_apart
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.base.names import Category
from durable_retry.handlers.registry import Handler, find_handler
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features_of
from durable_retry.rules.facts import AttemptEnded, AttemptHeld, DeliveryEnded
from durable_retry.rules.operations.completion import written_operation
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.operations.steps import OvertakenError
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked, BlockedStep, kind_of_block
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import app_settings, find_dependency
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Renamed:
    """The answer of an attempt whose dependency has another name by now; the operation goes on under it."""

    dependency: str
    answer: AttemptOutcome | Blocked | BlockedStep


async def attempt_operation(
    hub: TaskHub, call: AttemptCall
) -> AttemptOutcome | Blocked | BlockedStep | Renamed:
    """Make one attempt of an operation, if its retry budget and its circuit let it start."""
    operation = await called_operation(hub, call)
    number, admission, renamed_to = call.attempt, call.admission, None
    dependency = find_dependency(operation.dependency)
    if dependency is not None and dependency.name != operation.dependency:
        renamed_to = dependency.name
        operation, admission = replace(operation, dependency=renamed_to), admission.at_another_name()
    gate = StepGate(hub, operation, number, call.step)
    answer: AttemptOutcome | Blocked | BlockedStep
    try:
        answer = await attempt_if_admitted(
            hub,
            dependency,
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
    if isinstance(answer, AttemptOutcome):
        answer = await with_result_apart(operation, answer)
    else:
        report(AttemptHeld(operation, kind_of_block(answer)))
    return answer if renamed_to is None else Renamed(renamed_to, answer)


async def called_operation(hub: TaskHub, call: AttemptCall) -> OperationInput:
    """Return the operation of an attempt, as it is made."""
    if call.operation is None:
        sent = await read_large(hub, call.operation_id or "", call.input_id or "")
    else:
        sent = OperationInput.from_json(call.operation)
    return sent.to_attempt(
        clock.now(),
        is_owed=call.is_owed,
        acted_before=call.acted_before is True,
        conflict=call.conflict,
        forgiven=call.forgiven,
    )


async def with_result_apart(operation: OperationInput, outcome: AttemptOutcome) -> AttemptOutcome:
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


async def read_large(hub: TaskHub, operation_id: str, input_id: str) -> OperationInput:
    """Return an operation from the input of its orchestration; a process reads each once.

    Args:
        input_id: As `start_input` has it. Two starts that raced on Azure Storage can leave the input of one
            in the instance and run the other.
    """
    found = _read.get((operation_id, input_id))
    if found is not None:
        return found
    instance = await hub.read_instance(operation_id)
    if instance is None or instance.input.get("input_id") != input_id:
        raise OperationElsewhereError(operation_id)
    written = written_operation(instance.input)
    operation = _read[operation_id, input_id] = OperationInput.from_json(written).without_commit()
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
        return without_dependency(operation, number, limit)
    plan = Plan(operation, number, dependency, limit)
    make: Callable[[Plan], Awaitable[AttemptOutcome]] = partial(_make_planned, gate, unsent)
    for feature in features_of(operation.parts):
        if feature.attempt:
            make = partial(imported(feature.attempt), make)
    return too_late(plan) or await make(plan)


async def _make_planned(gate: StepGate, unsent: Collection[str], plan: Plan) -> AttemptOutcome:
    if plan.operation.handler is not None:
        return await _run_handler(plan, plan.operation.handler, gate, unsent)
    if not needs_marker(plan):
        return await attempt_request(plan)
    return await _at_most_once(plan, attempt_request, unsent)


def too_late(plan: Plan) -> AttemptOutcome | None:
    """Return the outcome of an attempt that must not start any more; None where it may."""
    if plan.limit.seconds > 0:
        return None
    error = "the deadline passed before it could start"
    return plan.outcome(category=Category.DEADLINE_EXCEEDED, error=error, counted=False)


def without_dependency(operation: OperationInput, number: int, limit: AttemptClock) -> AttemptOutcome:
    """Return the outcome of an attempt whose dependency this app does not have."""
    return AttemptOutcome(
        number=number,
        started_at=limit.started_at,
        duration_ms=limit.elapsed_ms,
        category=Category.TRANSIENT,
        error=f"dependency {operation.dependency} is not configured here any more",
        counted=False,
        missing=True,
    )


async def _run_handler(plan: Plan, name: str, gate: StepGate, unsent: Collection[str]) -> AttemptOutcome:
    handler = find_handler(name)
    if handler is None:
        error = f"handler {name} is not registered here any more"
        return plan.outcome(category=Category.TRANSIENT, error=error, counted=False, missing=True)
    async with gate.held_open():
        run = partial(attempt_handler, handler=handler, gate=gate)
        if handler.repeatable is False:
            return await _at_most_once(plan, run, unsent)
        return await _run_counted_handler(plan, handler, run, unsent)


async def _run_counted_handler(
    plan: Plan, handler: Handler, run: Callable[..., Awaitable[AttemptOutcome]], unsent: Collection[str]
) -> AttemptOutcome:
    started = await noted_start(plan, handler, unsent)
    if isinstance(started, AttemptOutcome):
        return started
    # The time that our own storage took must not count against the handler.
    begun = replace(started, limit=start_clock(plan.operation))
    mark = None
    if sends_once(plan, handler):
        mark = SentMark(begun.operation.life, plan.number, unsent, begun.limit.answers_until)
    run = run if mark is None else partial(run, mark=mark.write)
    outcome = too_late(begun) or await _with_marker(begun, run, mark)
    if _is_there(mark) or not outcome.counted:
        await _note_outcome(begun, outcome, _parts_of(mark))
    if mark is not None and not outcome.counted:
        outcome = replace(outcome, unsent=mark.execution)
    return in_run_of_plan(outcome, started.operation.run, plan)


def _is_there(mark: SentMark | None) -> bool:
    return mark is not None and mark.is_there


def _parts_of(mark: SentMark | None) -> tuple[str, ...]:
    """Return the markers of an attempt; the last one has its outcome."""
    return ("", SENT) if _is_there(mark) else ("",)


async def _with_marker(
    plan: Plan, make: Callable[[Plan], Awaitable[AttemptOutcome]], mark: SentMark | None = None
) -> AttemptOutcome:
    # When a step must wait the attempt is made again, so its markers go: nothing took effect that must not be
    # sent twice, else this were an outcome. So it is where our own storage failed.
    left = plan.outcome(category=Category.TRANSIENT, error="its marker was not removed", counted=False)
    try:
        return await make(plan)
    except StepBlockedError:
        if await _note_outcome(plan, left, _parts_of(mark)):
            raise
        return left
    except (AzureError, ContendedError):
        if _is_there(mark):
            await _note_outcome(plan, left, (SENT,))
        raise


async def _at_most_once(
    plan: Plan, make: Callable[[Plan], Awaitable[AttemptOutcome]], unsent: Collection[str]
) -> AttemptOutcome:
    """Make an attempt that must not be made twice; a second execution returns the outcome of the first.

    While the first may still answer, the second says so, and is made again later.
    """
    life, execution = plan.operation.life, uuid4().hex
    now, ends_at = plan.limit.started_at, plan.limit.answers_until
    try:
        marked = await insert_marker(
            life, plan.number, now=now, ends_at=ends_at, execution=execution, unsent=unsent
        )
    except OvertakenError as error:
        return plan.outcome(category=Category.AMBIGUOUS, error=str(error), is_elsewhere=True, is_stopped=True)
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
        outcome = too_late(begun) or await _with_marker(begun, make)
        await _note_outcome(begun, outcome)
        return outcome if outcome.counted else replace(outcome, unsent=execution)
    return outcome_of_marked(plan, marked)


async def _note_outcome(plan: Plan, outcome: AttemptOutcome, parts: tuple[str, ...] = ("",)) -> bool:
    """Write an outcome beside its marker; return whether that succeeded. The orchestration gets it anyway.

    An attempt that never left our side is made again under its number, so its markers are removed instead.
    """
    owner = plan.operation.owner
    try:
        if outcome.counted:
            await write_outcome(owner, plan.number, outcome.to_json(), parts[-1])
        else:
            for part in parts:
                await remove_marker(owner, plan.number, part)
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
