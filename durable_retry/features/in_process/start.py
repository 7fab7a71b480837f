"""The operations of `durable_retry.call`: parsed, named and started like any other operation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from durable_retry.base.errors import CircuitOpenError
from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.in_process.names import CALL_SOURCE, REFUSED
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import KEY_REUSED, KeyReused, Replayed, Started, submit
from durable_retry.operations.status import find_status
from durable_retry.rules.operations.completion import written_operation
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.keys import ScopedKey, operation_id_for, visible
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import is_finished
from durable_retry.rules.operations.submission import Naming, read_operation
from durable_retry.settings.configuration import targets


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call by an orchestration.

    Attributes:
        instance: The id of the call's own instance, to which the operation reports its end.
        since: When the caller's execution began: an older result is refused.
        key: For an operation without a key of its own.
    """

    instance: str
    since: datetime
    key: str

    @property
    def own_name(self) -> ScopedKey:
        """The name of an operation without a key of its own."""
        return ScopedKey(f"source:{CALL_SOURCE}", visible(self.key))


def operation_of_call(document: Any, call: PendingCall, now: datetime) -> OperationInput:
    """Return the operation of a call from its body, as `POST /api/operations` takes it."""
    naming = Naming(own=call.own_name)
    return read_operation(ParsedEnvelope(document), naming, targets(), source=CALL_SOURCE, now=now)


async def begin_call(hub: TaskHub, document: Any, call: PendingCall, now: datetime) -> dict[str, Any]:
    """Start the operation of a call; it reports its end to the orchestration that waits. Idempotent.

    Args:
        document: A body of `POST /api/operations`.

    Returns:
        `operation_id`; or `problems`: `pointer` and `detail` of each; or `is_taken`: an earlier execution of
        the caller has used the call's key; or `document`: what stands for that of an operation which does not
        start while its circuit is open.

    Raises:
        TaskHubUnavailableError: It is not known to be started; calling this again is safe.
    """
    try:
        operation = operation_of_call(document, call, now)
    except InvalidInputError as error:
        return {"problems": [problem.to_json() for problem in error.problems]}
    try:
        outcome = await submit(hub, replace(operation, reports_to=call.instance))
    except CircuitOpenError as error:
        letter = {
            "category": Category.CIRCUIT_OPEN.value,
            "reason": DeadLetterReason.CIRCUIT_OPEN.value,
            "detail": str(error),
        }
        return {"document": {"status": REFUSED, "dead_letter": letter}}
    if isinstance(outcome, Started):
        return {"operation_id": operation.operation_id}
    if operation.operation_id == operation_id_for(call.own_name.scope, call.own_name.key):
        if await _is_of_another_call(hub, operation.operation_id, outcome, call):
            return {"is_taken": True}
    elif detail := await _why_refused(hub, outcome, call):
        return {"problems": [Problem("/key", detail).to_json()]}
    return {"operation_id": operation.operation_id}


async def _reports_to(hub: TaskHub, operation_id: str) -> str | None:
    """Return the instance to which an operation reports its end, as long as its own instance is kept."""
    instance = await hub.read_instance(operation_id)
    return None if instance is None else written_operation(instance.input).get("reports_to")


async def _is_of_another_call(
    hub: TaskHub, operation_id: str, outcome: Replayed | KeyReused, call: PendingCall
) -> bool:
    caller = await _reports_to(hub, operation_id)
    if caller is not None:
        return caller != call.instance
    # Only its record is left.
    return isinstance(outcome, KeyReused) or _ended_before(outcome.document, call.since)


async def _why_refused(hub: TaskHub, outcome: Replayed | KeyReused, call: PendingCall) -> str | None:
    """Return why the operation of a used key is refused; None when it is not an old one, or is this call's.

    A call whose start was repeated finds its own operation, which may seem old by a clock that is behind.
    """
    if isinstance(outcome, KeyReused):
        return KEY_REUSED
    document = outcome.document
    is_old = outcome.finished and _ended_before(document, call.since)
    if not is_old or await _reports_to(hub, document["operation_id"]) == call.instance:
        return None
    ended = f"is that of {document['operation_id']}, which ended at {document['updated_at']}"
    return f"{ended}, before the orchestration that calls began: its result is not taken for a new one"


def _ended_before(document: Mapping[str, Any], instant: datetime) -> bool:
    return from_rfc3339(document["updated_at"]) < instant


async def look_at(hub: TaskHub, operation_id: str) -> dict[str, Any]:
    """Look how the operation of a call ended.

    Returns:
        `document`: its status document, None while it runs; or `problems`, when nothing is left of it.
    """
    document = await find_status(hub, operation_id)
    if document is None:
        return {
            "problems": [Problem("", f"nothing is left of {operation_id}: its record has expired").to_json()]
        }
    return {"document": document if is_finished(document) else None}
