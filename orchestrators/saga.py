"""The orchestration of a saga: one operation after the other, in the order of `engine.workflows.saga`."""

from dataclasses import replace
from datetime import UTC
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.names import SAGA, SUBMIT
from durable_retry.engine.operations.operation import Completion, OperationInput
from durable_retry.engine.workflows import Over, Saga, saga_document
from durable_retry.stores.workflows import saga_progress
from orchestrators.call_until_success import Steps, call_until_success
from orchestrators.completions import CompletionReports

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
    reports = CompletionReports(ctx)
    looks = 0
    while not isinstance(action := state.next_action, Over):
        _show(ctx, state)
        ending: Completion | None = None
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
    ctx: task.OrchestrationContext, operation: OperationInput, reports: CompletionReports
) -> Steps[Completion | None]:
    """Start an operation unless it was started before, and wait for its end until the next look is due."""
    started = replace(operation, reports_to=ctx.instance_id)
    answer = yield from call_until_success(ctx, SUBMIT, {"operation": started.to_json()})
    if answer["ending"] is not None:
        return Completion.from_json(answer["ending"])
    while endings := (yield from reports.wait()):
        for ending in endings:
            if ending.operation_id == operation.operation_id:
                return ending
    return None


def _show(ctx: task.OrchestrationContext, state: Saga) -> None:
    ctx.set_custom_status(saga_progress(state))


blueprint.orchestration_trigger(context_name="context", orchestration=SAGA)(saga)
