"""What `operation` and `outbox` share in driving `engine.retry.loop`: reading answers, asking for a probe."""

from collections.abc import Mapping
from typing import Any

from durabletask import task

from durable_retry.engine.base.names import PERMIT
from durable_retry.engine.circuit import Permitted, Refused, answer_from_json
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.loop import Blocked, RequestProbe, WorkerFailed, blocked_from_json
from durable_retry.stores.circuit import circuit_id
from orchestrators.call_until_success import Steps


def answer_of(answered: Mapping[str, Any], attempt: int) -> AttemptOutcome | WorkerFailed | Blocked:
    """Read what the activity `attempt` or `publish` returned.

    Args:
        answered: `{"stopped": ...}`, or the JSON form of an `AttemptOutcome`.
        attempt: The number that was called for; a late answer for another one is not taken.
    """
    if "stopped" in answered:
        return blocked_from_json(answered["stopped"])
    outcome = AttemptOutcome.from_json(answered)
    if outcome.number != attempt:
        return WorkerFailed(f"the worker answered for attempt {outcome.number}")
    return outcome


def request_probe(
    ctx: task.OrchestrationContext, dependency: str, request: RequestProbe
) -> Steps[Permitted | Refused]:
    """Ask the circuit's entity for a probe: the only awaited call to it, and only while it is half-open."""
    try:
        answer = yield ctx.call_entity(circuit_id(dependency), PERMIT, request.message.to_json())
    except task.TaskFailedError:
        return Permitted(epoch=0, fail_open=True)  # A circuit that fails must not take its dependency down.
    return answer_from_json(answer)
