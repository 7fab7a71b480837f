"""One attempt of an operation, with its admission before and its report to the circuit after.

    retry budget, circuit ──refused──> Blocked
            └──permitted──> marker (not for safe requests) ──> call ──> AttemptOutcome ──> report

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

from durable_retry.attempt.admission import AttemptFunction, StepBlockedError, attempt_if_admitted
from durable_retry.attempt.http_request import AttemptClock, Plan, attempt_request, needs_marker, start_clock
from durable_retry.attempt.markers import Marker, insert_marker, remove_marker, write_outcome
from durable_retry.attempt.results import store_apart
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features_of, hook
from durable_retry.rules.facts import AttemptEnded, AttemptHeld, DeliveryEnded
from durable_retry.rules.operations.completion import written_operation
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission
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
                hub=hub,
                step=call.step,
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
    """Return the operation of an attempt, changed as the attempt needs it."""
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
    """Store a large result apart; if that fails, the history carries it, as it does small ones."""
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
    return outcome if result is outcome.result else replace(outcome, result=result)


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
    cached = _read.get((operation_id, input_id))
    if cached is not None:
        return cached
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
    *,
    hub: TaskHub | None = None,
    step: StepAdmission | None = None,
    was_held: bool = False,
    unsent: Collection[str] = (),
) -> AttemptOutcome:
    """Make one attempt without asking for admission.

    Args:
        hub: Admits a handler's steps to other dependencies; None where they need no admission.
        step: The admission that such a step reached in an earlier request; None for none.
        unsent: Earlier executions of this attempt that sent nothing.
    """
    fact_of = partial(AttemptEnded, was_held=was_held)
    make = partial(_make_planned, hub, step, unsent)
    return await observed(operation, number, partial(_make_attempt, operation, number, make), fact_of)


async def _make_attempt(
    operation: OperationInput, number: int, make: Callable[[Plan], Awaitable[AttemptOutcome]]
) -> AttemptOutcome:
    limit = start_clock(operation)
    dependency = find_dependency(operation.dependency)
    if dependency is None:
        return without_dependency(operation, number, limit)
    plan = Plan(operation, number, dependency, limit)
    for feature in features_of(operation.parts):
        if feature.attempt:
            make = partial(imported(feature.attempt), make)
    return too_late(plan) or await make(plan)


async def _make_planned(
    hub: TaskHub | None, step: StepAdmission | None, unsent: Collection[str], plan: Plan
) -> AttemptOutcome:
    if plan.operation.handler is not None:
        if not (module := hook("handlers")):
            return without_handler(plan)
        outcome: AttemptOutcome = await imported(f"{module}.attempt:run_operation")(plan, hub, step, unsent)
        return outcome
    if not needs_marker(plan):
        return await attempt_request(plan)
    return await at_most_once(plan, attempt_request, unsent)


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


def without_handler(plan: Plan) -> AttemptOutcome:
    """Return the outcome of an attempt whose handler this app does not have."""
    error = f"handler {plan.operation.handler} is not registered here any more"
    return plan.outcome(category=Category.TRANSIENT, error=error, counted=False, missing=True)


async def at_most_once(
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
        started = replace(plan, limit=start_clock(plan.operation))
        outcome = too_late(started) or await make(started)
        await note_outcome(started, outcome)
        return outcome if outcome.counted else replace(outcome, unsent=execution)
    return outcome_of_marked(plan, marked)


SENT_BEFORE: Final = "an earlier execution of this attempt may have taken effect; its outcome is not known"


def outcome_of_marked(plan: Plan, marked: Marker) -> AttemptOutcome:
    """Return the outcome of an attempt that an earlier execution made, as far as that is known.

    It reports nothing to the circuit: the earlier execution did that.
    """
    if marked.outcome is None and marked.ends_at is not None and clock.now() < marked.ends_at:
        until = f"an earlier execution of it may answer until {to_rfc3339(marked.ends_at)}"
        return plan.outcome(
            category=Category.AMBIGUOUS, error=until, counted=False, may_answer_until=marked.ends_at
        )
    if marked.outcome is None:
        return plan.outcome(category=Category.AMBIGUOUS, error=SENT_BEFORE, is_elsewhere=True)
    outcome = replace(AttemptOutcome.from_json(marked.outcome), is_elsewhere=True)
    return in_run_of_plan(outcome, marked.run, plan)


def in_run_of_plan(outcome: AttemptOutcome, run: int, plan: Plan) -> AttemptOutcome:
    """Return an outcome that says in which run the operation goes on, where that is another start's."""
    return outcome if run == plan.operation.run else replace(outcome, run=run)


async def note_outcome(plan: Plan, outcome: AttemptOutcome, parts: tuple[str, ...] = ("",)) -> bool:
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
