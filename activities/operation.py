"""The activities of an operation: one attempt, the commit of a success, the dead letter of a failure."""

from typing import Any

from durable_retry.attempt.attempt import Renamed, attempt_operation
from durable_retry.hub.binding import TaskHub
from durable_retry.operations.actions import commit as commit_once
from durable_retry.operations.actions import keep_failure
from durable_retry.rules.operations.completion import Success
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked, BlockedStep


async def attempt(call: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Make one attempt, if the retry budget and the circuit of its dependency let it start.

    Returns:
        The JSON form of an `AttemptOutcome`, or `{"stopped": ...}` with what blocks it, and with `step_at`
        when it blocks a step at another dependency. With `renamed_to` where its dependency has another name
        by now.
    """
    answer = await attempt_operation(hub, AttemptCall.from_json(call))
    if isinstance(answer, Renamed):
        return _json_of(answer.answer) | {"renamed_to": answer.dependency}
    return _json_of(answer)


def _json_of(answer: AttemptOutcome | Blocked | BlockedStep) -> dict[str, Any]:
    if isinstance(answer, BlockedStep):
        return {"stopped": answer.blocked.to_json(), "step_at": answer.dependency}
    return answer.to_json() if isinstance(answer, AttemptOutcome) else {"stopped": answer.to_json()}


async def commit(success: dict[str, Any]) -> dict[str, Any]:
    """Commit a `Success`; return what was `Committed`. Idempotent."""
    return (await commit_once(Success.from_json(success))).to_json()


async def dead_letter(entry: dict[str, Any]) -> str:
    """Store the dead letter of an operation; see `keep_failure` for its input. Idempotent."""
    return await keep_failure(entry)
