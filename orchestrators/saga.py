"""The orchestration of a saga: it carries out what `engine.saga` says, one operation after the other."""

from dataclasses import replace
from datetime import UTC
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from engine.ending import Ending
from engine.operation import OperationInput
from engine.saga import Over, Saga, saga_document
from orchestrators.effort import insist
from orchestrators.run import Steps
from orchestrators.waiting import Reports
from stores.saga_status import moving_parts
from stores.task_hub import SAGA, SUBMIT

blueprint = df.Blueprint()

LOOKS_PER_HISTORY: Final = 20
"""Starts and looks after which the orchestration continues as new, so that its history stays short."""


def saga(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Carry a saga to its end.

    Args:
        ctx: The durable context.
        input_: `saga`: the JSON form of a `Saga`, as far as it has come.

    Returns:
        Its document; None when the orchestration continues as new.
    """
    state = Saga.from_json(input_["saga"])
    reports = Reports(ctx)
    looks = 0
    while not isinstance(action := state.next_action, Over):
        _show(ctx, state)
        ending: Ending | None = None
        while ending is None:
            if looks == LOOKS_PER_HISTORY:
                ctx.continue_as_new({"saga": state.to_json()}, save_events=True)
                return None
            looks += 1
            ending = yield from _look(ctx, state.operation_of(action), reports)
        state = state.after(action, ending)
    _show(ctx, state)
    return saga_document(state, ctx.current_utc_datetime.replace(tzinfo=UTC))


def _look(
    ctx: task.OrchestrationContext, operation: OperationInput, reports: Reports
) -> Steps[Ending | None]:
    """Start an operation, or find it started before, and wait for its end for a while."""
    started = replace(operation, reports_to=ctx.instance_id)
    answer = yield from insist(ctx, SUBMIT, {"operation": started.to_json()})
    if answer["ending"] is not None:
        return Ending.from_json(answer["ending"])
    while endings := (yield from reports.wait()):
        for ending in endings:
            if ending.operation_id == operation.operation_id:
                return ending
    return None


def _show(ctx: task.OrchestrationContext, state: Saga) -> None:
    ctx.set_custom_status(moving_parts(state))


blueprint.orchestration_trigger(context_name="context", orchestration=SAGA)(saga)
