"""The orchestration of a saga: one operation after the other, in the order of its `Saga`."""

from dataclasses import replace
from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.features.workflows.names import BEGIN_RESTART, END_RESTART, SAGA, SUBMIT
from durable_retry.features.workflows.rules.document import saga_document
from durable_retry.features.workflows.rules.references import MissingResultError
from durable_retry.features.workflows.rules.shapes import Do, Over, Saga, Undo
from durable_retry.features.workflows.saga_store import saga_progress
from durable_retry.hub.turns import Turns, call_until_success
from durable_retry.rules.operations.completion import Completion

from .completion_reports import LOOKS_PER_HISTORY, CompletionReports

blueprint = df.Blueprint()


def saga(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Carry a saga to its end.

    Args:
        input_: `saga`: the JSON form of a `Saga`, as far as it has come; of a restart also `restart`, the
            token that it was written with.

    Returns:
        Its document; None when the orchestration continues as new.
    """
    state = Saga.from_json(input_["saga"])
    token: str | None = input_.get("restart")
    reports = CompletionReports(ctx)
    if token is not None:
        latest = yield from call_until_success(
            reports.signals, BEGIN_RESTART, {"saga_id": state.saga_id, "restart": token}
        )
        if latest["saga"] is not None:
            ctx.continue_as_new(latest, save_events=True)
            return None
    over = yield from _carried_out(reports, state, token)
    if over is None:
        return None
    if token is not None:
        request = {"saga_id": over.saga_id, "restart": token, "saga": over.to_json()}
        yield from call_until_success(reports.signals, END_RESTART, request)
    return saga_document(over, reports.signals.now).to_json()


def _carried_out(reports: CompletionReports, state: Saga, token: str | None) -> Turns[Saga | None]:
    """Run what is left of a saga; None when the orchestration continues as new."""
    ctx, looks = reports.ctx, 0
    while not isinstance(action := state.next_action, Over):
        _show_saga(reports, state)
        completion: Completion | None = None
        while completion is None:
            if looks == LOOKS_PER_HISTORY:
                restart = {} if token is None else {"restart": token}
                ctx.continue_as_new({"saga": state.to_json(), **restart}, save_events=True)
                return None
            looks += 1
            completion = yield from _look_at_step(state, action, reports)
        state = state.after(action, completion)
    _show_saga(reports, state)
    return state


def _look_at_step(state: Saga, action: Do | Undo, reports: CompletionReports) -> Turns[Completion | None]:
    """Start an operation unless it was started before, and wait for its end until the next look is due."""
    operation, pointers = state.operation_of(action), state.wanted_of(action)
    call: dict[str, Any] = {"wanted": list(pointers)} if pointers else {}
    try:
        operation = state.filled_operation(action)
    except MissingResultError as error:
        call = {"missing": str(error)}
    call["operation"] = replace(operation, reports_to=reports.ctx.instance_id).to_json()

    def is_answer(answer: Any) -> bool:
        # The step before may have been looked at in a lost turn, and have ended when that runs again.
        return answer["ending"] is None or answer["ending"]["operation_id"] == operation.operation_id

    answer = yield from call_until_success(reports.signals, SUBMIT, call, is_answer=is_answer)
    if answer["ending"] is not None:
        return Completion.from_json(answer["ending"])
    while completions := (yield from reports.wait()):
        for completion in completions:
            if completion.operation_id == operation.operation_id:
                # A report has no values: the next look, at once, reads them from the status document.
                return None if pointers and completion.succeeded else completion
    return None


def _show_saga(reports: CompletionReports, state: Saga) -> None:
    reports.shown = saga_progress(state)
    reports.ctx.set_custom_status(reports.shown)


blueprint.orchestration_trigger(context_name="context", orchestration=SAGA)(saga)
