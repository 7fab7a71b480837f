"""The orchestration of one call by an orchestration of the app's own."""

from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.features.in_process.names import CALL, LOOK_AT_CALL, START_CALL
from durable_retry.hub.turns import Turns, call_until_success

from .completion_reports import LOOKS_PER_HISTORY, CompletionReports

blueprint = df.Blueprint()


def call_operation(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run one operation for `durable_retry.call`.

    Args:
        input_: `document`, the body of `POST /api/operations`; `since`, when the caller's execution began;
            and `keys`: an operation without a key in its document gets the first of these that no other call
            has. Or `problems`: why it is not sent. When it continues as new `operation_id`.

    Returns:
        `document`, the operation's last status document or what stands for it, or `problems`: why it was
        never started. None when the orchestration continues as new.
    """
    if "problems" in input_:
        return {"problems": input_["problems"]}
    reports = CompletionReports(ctx)
    operation_id = input_.get("operation_id")
    if operation_id is None:
        started: dict[str, Any] = {}
        for key in input_["keys"]:
            request = {
                "document": input_["document"],
                "instance": ctx.instance_id,
                "since": input_["since"],
                "key": key,
            }
            # The key is part of the history: the answer for a key may change while records expire.
            started = yield from call_until_success(reports.signals, START_CALL, request)
            if not started.get("is_taken"):
                break
        if "operation_id" not in started:
            return started
        operation_id = started["operation_id"]
    for _ in range(LOOKS_PER_HISTORY):
        looked = yield from call_until_success(reports.signals, LOOK_AT_CALL, {"operation_id": operation_id})
        if looked.get("document", looked) is not None:
            answer: dict[str, Any] = looked
            return answer
        yield from reports.wait()
    ctx.continue_as_new({**input_, "operation_id": operation_id}, save_events=True)
    return None


blueprint.orchestration_trigger(context_name="context", orchestration=CALL)(call_operation)
