"""One attempt of a handler, with the marker that counts how often it began.

A handler whose process dies each time would otherwise run for ever. The marker also says which run goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial

from azure.core.exceptions import AzureError

from durable_retry.attempt.admission import StepBlockedError
from durable_retry.attempt.attempt import (
    at_most_once,
    in_run_of_plan,
    note_outcome,
    outcome_of_marked,
    too_late,
    without_handler,
)
from durable_retry.attempt.http_request import Plan, start_clock
from durable_retry.base.errors import ContendedError
from durable_retry.base.names import Category
from durable_retry.base.text import counted
from durable_retry.features.handlers.call_transport import SentMark
from durable_retry.features.handlers.gate import StepGate
from durable_retry.features.handlers.handler import attempt_handler, sends_once, stopped
from durable_retry.features.handlers.registry import Handler, find_handler
from durable_retry.features.handlers.starts import SENT, count_start, find_marked
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.retry.admission import StepAdmission
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.telemetry.spans import ATTEMPT as ATTEMPT_NUMBER
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)


async def run_operation(
    plan: Plan, hub: TaskHub | None, step: StepAdmission | None, unsent: Collection[str]
) -> AttemptOutcome:
    """Make an attempt of an operation that names a handler; see `Plugin.handlers`.

    Raises:
        StepBlockedError: A step of it must wait, and the handler may be run again.
        azure.core.exceptions.AzureError: Our own storage failed in a step, and the handler may be run again.
    """
    handler = find_handler(plan.operation.handler or "")
    if handler is None:
        return without_handler(plan)
    gate = StepGate(hub, plan.operation, plan.number, step)
    async with gate.held_open():
        run = partial(attempt_handler, handler=handler, gate=gate)
        if handler.repeatable is False:
            return await at_most_once(plan, partial(_with_marker, run), unsent)
        return await _run_counted_handler(plan, handler, run, unsent)


async def _run_counted_handler(
    plan: Plan, handler: Handler, run: Callable[..., Awaitable[AttemptOutcome]], unsent: Collection[str]
) -> AttemptOutcome:
    started = await _note_start(plan, handler, unsent)
    if isinstance(started, AttemptOutcome):
        return started
    # The time that our own storage took must not count against the handler.
    begun = replace(started, limit=start_clock(plan.operation))
    mark = None
    if sends_once(plan, handler):
        mark = SentMark(begun.operation.life, plan.number, unsent, begun.limit.answers_until)
    run = run if mark is None else partial(run, mark=mark.write)
    outcome = too_late(begun) or await _with_marker(run, begun, mark)
    if _is_there(mark) or not outcome.counted:
        await note_outcome(begun, outcome, _parts_of(mark))
    if mark is not None and not outcome.counted:
        outcome = replace(outcome, unsent=mark.execution)
    return in_run_of_plan(outcome, started.operation.run, plan)


def _is_there(mark: SentMark | None) -> bool:
    return mark is not None and mark.is_there


def _parts_of(mark: SentMark | None) -> tuple[str, ...]:
    """Return the markers of an attempt; the last one has its outcome."""
    return ("", SENT) if _is_there(mark) else ("",)


async def _with_marker(
    make: Callable[[Plan], Awaitable[AttemptOutcome]], plan: Plan, mark: SentMark | None = None
) -> AttemptOutcome:
    # When a step must wait, or our own storage failed, the attempt is made again, so its markers are removed.
    # Nothing that must not be sent twice has taken effect: that would be an outcome.
    not_removed = plan.outcome(category=Category.TRANSIENT, error="its marker was not removed", counted=False)
    try:
        return await make(plan)
    except StepBlockedError:
        if await note_outcome(plan, not_removed, _parts_of(mark)):
            raise
        return not_removed
    except (AzureError, ContendedError):
        if _is_there(mark):
            await note_outcome(plan, not_removed, (SENT,))
        raise


async def _note_start(plan: Plan, handler: Handler, unsent: Collection[str]) -> Plan | AttemptOutcome:
    """Note that a handler is about to run; return its plan, or the outcome that ends it.

    If an earlier execution marked something as sent, the attempt ends before the handler runs again; the
    executions in `unsent` sent nothing.

    The task hub gives an attempt whose process died to another worker, as often as that happens: a handler
    whose process dies each time would run for ever. An attempt that ends is not begun again under its number.
    Where another start of the same life came first, the plan is in the run of that start. When storage does
    not answer, the handler runs without the note.
    """
    operation = plan.operation
    try:
        starts = await count_start(operation.life, plan.number, plan.limit.started_at)
    except OvertakenError as error:
        return stopped(plan, error)
    except AzureError as error:
        _log.warning(
            "the start of %s, attempt %d, was not noted: %s",
            operation.run_id,
            plan.number,
            type(error).__name__,
            extra=fields_of(operation, {ATTEMPT_NUMBER: plan.number}),
        )
        return plan
    if starts.count > 1 and sends_once(plan, handler):
        marked = await find_marked(operation.life, plan.number, SENT, unsent)
        if marked is not None:
            return outcome_of_marked(plan, marked)
    if starts.count < MAX_OWN_FAILURES:
        return replace(plan, operation=operation.in_run(starts.run))
    begun = f"handler {handler.name} began this attempt {counted(starts.count - 1, 'time')}"
    died = f"{begun} and never ended it: its process died"
    return plan.outcome(category=Category.AMBIGUOUS, error=died, is_elsewhere=True)
