"""The activity `attempt`: one try at the call. It returns what came of it; only our storage can fail it."""

import logging
from functools import partial

import azure.durable_functions as df
from azure.core.exceptions import AzureError

from activities.gate import through_gate
from activities.handler_attempt import attempt_handler
from activities.http_attempt import attempt_request, needs_marker
from activities.observed import observed
from activities.plan import Plan
from activities.time_limit import start_clock
from engine.gate import Ticket, stop_to_json
from engine.operation import AttemptOutcome, OperationInput
from engine.vocabulary import Category
from stores.attempt_markers import free_attempt, mark_attempt, note_outcome
from stores.configuration import find_dependency
from stores.handler_registry import find_handler
from stores.task_hub import ATTEMPT
from telemetry.attributes import ATTEMPT as ATTEMPT_NUMBER
from telemetry.attributes import fields_of

blueprint = df.Blueprint()

_log = logging.getLogger(__name__)


async def attempt(call: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Make one attempt, if the retry budget and the circuit of its dependency let it through.

    Args:
        call: `operation`, an `OperationInput`; `attempt`, its number from 1; `ticket`, a `Ticket`.
        hub: Configuration of the durable client.

    Returns:
        The JSON form of an `AttemptOutcome`, or `{"stopped": ...}` with what holds it up.
    """
    operation = OperationInput.from_json(call["operation"])
    answer = await through_gate(
        hub,
        find_dependency(operation.dependency),
        operation,
        number=call["attempt"],
        ticket=Ticket.from_json(call.get("ticket")),
        attempt=partial(make_attempt, operation, call["attempt"]),
    )
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": stop_to_json(answer)}


async def make_attempt(operation: OperationInput, number: int) -> AttemptOutcome:
    """Make one attempt, or say why it never left this side."""
    return await observed(operation, number, partial(_make_attempt, operation, number))


async def _make_attempt(operation: OperationInput, number: int) -> AttemptOutcome:
    limit = start_clock(operation)
    dependency = find_dependency(operation.dependency)
    if dependency is None:
        told = f"dependency {operation.dependency} is not configured here any more"
        return AttemptOutcome(
            number=number,
            started_at=limit.started_at,
            duration_ms=limit.elapsed_ms,
            category=Category.TRANSIENT,
            error=told,
            counted=False,
        )
    plan = Plan(operation, number, dependency, limit)
    if limit.seconds <= 0:
        told = "the deadline passed before it could start"
        return plan.outcome(category=Category.DEADLINE_EXCEEDED, error=told, counted=False)
    if operation.handler is not None:
        return await _run_handler(plan, operation.handler)
    return await (_at_most_once if needs_marker(plan) else attempt_request)(plan)


async def _run_handler(plan: Plan, name: str) -> AttemptOutcome:
    handler = find_handler(name)
    if handler is None:
        told = f"handler {name} is not registered here any more"
        return plan.outcome(category=Category.TRANSIENT, error=told, counted=False)
    return await attempt_handler(plan, handler)


async def _at_most_once(plan: Plan) -> AttemptOutcome:
    """Make an attempt that must not be made twice; a second execution gives what the first one noted."""
    marked = await mark_attempt(plan.operation.run_id, plan.number, plan.limit.started_at)
    if marked is None:
        outcome = await attempt_request(plan)
        await _note(plan, outcome)
        return outcome
    if marked.outcome is not None:
        return AttemptOutcome.from_json(marked.outcome)
    told = "an earlier execution of this attempt may have sent the request, and never said how it ended"
    return plan.outcome(category=Category.AMBIGUOUS, error=told)


async def _note(plan: Plan, outcome: AttemptOutcome) -> None:
    """Note an outcome beside its marker; failing that, it still reaches the orchestration as the answer.

    An attempt that never left this side is made again under its number, so its marker goes instead.
    """
    run = plan.operation.run_id
    try:
        if outcome.counted:
            await note_outcome(run, plan.number, outcome.to_json())
        else:
            await free_attempt(run, plan.number)
    except AzureError as error:
        _log.warning(
            "the outcome of %s, attempt %d, was not noted: %s",
            run,
            plan.number,
            type(error).__name__,
            extra=fields_of(plan.operation, {ATTEMPT_NUMBER: plan.number}),
        )


blueprint.activity_trigger(input_name="call", activity=ATTEMPT)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(attempt)
)
