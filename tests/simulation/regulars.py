"""Orchestrators of the app around the engine, which call an operation in each of their executions."""

from collections.abc import Generator
from typing import Any, Final

from durabletask import task

import durable_retry

REGULAR: Final = "regular"
ROUNDS: Final = 3


def regular(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Generator[Any, Any, Any]:
    """Call an operation, note what came of it, and continue as new."""
    number, got = input_["number"], input_["got"]
    body = {"number": number, "round": len(got)}
    request = {"method": "POST", "path": f"/regulars/{number}", "json": body}
    try:
        answered = yield from durable_retry.call(ctx, dependency="payments", request=request)
        got = [*got, answered["json"]["seen"]]
    except durable_retry.OperationFailed as failed:
        got = [*got, str(failed)]
    if len(got) == ROUNDS:
        return got
    ctx.continue_as_new({"number": number, "got": got})
    return None
