"""What people and callers do with one operation: look at it, wait for its end, cancel it, retry it now.

HTTP routes, `durable_retry.Operations` and bulk actions call these functions and add only their own form of
the answer.
"""

from datetime import timedelta
from typing import Any, Final

from durable_retry import clock
from durable_retry.engine.base.errors import (
    InstanceEndedError,
    NoSuchOperationError,
    WrongOperationStateError,
)
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import (
    CANCEL_EVENT,
    PAUSE_EVENT,
    RESUME_EVENT,
    RETRY_NOW_EVENT,
    TRY_EVENT,
    WAITING,
    OperationState,
)
from durable_retry.engine.facts import ActedOn
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.operation import OperationInput, content_of
from durable_retry.engine.operations.status import OperationDocument, SteeredOperation, is_finished
from durable_retry.engine.operations.waits import Pause
from durable_retry.services.dead_letters.records import replays_of
from durable_retry.settings.configuration import find_dependency, masking_of
from durable_retry.stores.operations.status import find_status, whole_document_of, with_parts
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry.facts import report

# How long one call to the task hub waits; it holds a connection meanwhile.
_WAIT_SECONDS: Final = 30.0


async def find_operation(hub: TaskHub, operation_id: str) -> OperationDocument:
    """Return an operation, with the replays of its dead letters.

    Raises:
        NoSuchOperationError: There is none of this id.
    """
    document = await _required_status(hub, operation_id)
    replays = await replays_of(document)
    return OperationDocument.read(document).model_copy(update={"replays": tuple(replays)})


async def cancel(hub: TaskHub, operation_id: str, by: str | None) -> SteeredOperation:
    """Ask an operation to end, and return where it stood; an attempt under way ends first.

    Raises:
        NoSuchOperationError: There is none of this id.
        WrongOperationStateError: It has ended.
    """
    document = await _required_status(hub, operation_id)
    if is_finished(document):
        raise _wrong_operation_state(document, "is finished and cannot be cancelled")
    return await _send_wish(hub, document, CANCEL_EVENT, {"by": by})


async def retry_now(hub: TaskHub, operation_id: str, by: str | None) -> SteeredOperation:
    """End the present wait of an operation; arguments, result and errors as `cancel`.

    One that waits for its turn asks for it again, and goes on only if it has it.
    """
    document = await _required_status(hub, operation_id)
    if document["status"] not in WAITING:
        raise _wrong_operation_state(document, "is not waiting")
    # The wish names the attempt that it is for: should this wait end first, the next one must not end early.
    attempt = document["attempt_count"] + 1
    return await _send_wish(hub, document, RETRY_NOW_EVENT, {"attempt": attempt, "by": by})


async def try_once(hub: TaskHub, operation_id: str, by: str | None, reason: str) -> SteeredOperation:
    """Let an operation that its circuit holds up make one attempt, which the circuit does not count.

    What the dependency itself asked for, a pause by `Retry-After`, is not passed. Errors as `cancel`.
    """
    document = await _required_status(hub, operation_id)
    if document["status"] != OperationState.WAITING_CIRCUIT:
        raise _wrong_operation_state(document, "does not wait for a circuit")
    attempt = document["attempt_count"] + 1
    return await _send_wish(hub, document, TRY_EVENT, {"attempt": attempt, "by": by, "reason": reason})


async def pause(hub: TaskHub, operation_id: str, by: str | None, request: Pause) -> SteeredOperation:
    """Ask an operation to do nothing for a while; an attempt under way ends first. Errors as `cancel`."""
    document = await _required_status(hub, operation_id)
    if is_finished(document):
        raise _wrong_operation_state(document, "is finished and cannot be paused")
    if document["status"] == OperationState.PAUSED:
        raise _wrong_operation_state(document, "is paused already")
    asked = {"by": by, "asked_at": to_rfc3339(clock.now()), **request.model_dump(exclude_none=True)}
    return await _send_wish(hub, document, PAUSE_EVENT, asked)


async def resume(hub: TaskHub, operation_id: str, by: str | None) -> SteeredOperation:
    """Let a paused operation go on; arguments, result and errors as `cancel`."""
    document = await _required_status(hub, operation_id)
    if document["status"] != OperationState.PAUSED:
        raise _wrong_operation_state(document, "is not paused")
    # The wish names the pause that it ends: should that end first, a later one must not.
    paused_at = next(
        action["at"] for action in reversed(document["actions"]) if action["action"] == PAUSE_EVENT
    )
    return await _send_wish(hub, document, RESUME_EVENT, {"paused_at": paused_at, "by": by})


async def end_within(hub: TaskHub, operation_id: str, seconds: float) -> OperationDocument | None:
    """Return the last status document of an operation that is known to be there; None when it goes on.

    Args:
        seconds: How long to wait for its end, on one connection to the task hub.
    """
    ended = await hub.wait_for_end(operation_id, seconds)
    return None if ended is None else OperationDocument.read(await with_parts(whole_document_of(ended)))


async def ended_document(
    hub: TaskHub, operation: OperationInput, document: dict[str, Any]
) -> OperationDocument:
    """Return a stored last document with what the operation was to do.

    A submission of the same key says it again. Where its fingerprint leaves parts out, the first one's is
    shown, while its history is kept.
    """
    dependency = find_dependency(operation.dependency)
    if dependency is not None and dependency.idempotency.fingerprint:
        instance = await hub.read_instance(operation.operation_id)
        written = {} if instance is None else written_operation(instance.input)
    else:
        written = operation.to_json()
    content = content_of(written, masking_of(operation.dependency)) if written else {}
    return OperationDocument.read(await with_parts(document | content))


async def wait_for_end(hub: TaskHub, operation_id: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the last status document of an operation once it has ended.

    Raises:
        NoSuchOperationError: There is none of this id.
        TimeoutError: It has not ended in this time, and keeps running.
    """
    until = clock.now() + timedelta(seconds=timeout_seconds)
    while not is_finished(document := await _required_status(hub, operation_id)):
        left = (until - clock.now()).total_seconds()
        if left <= 0:
            raise TimeoutError(f"{operation_id} has not ended")
        await hub.wait_for_end(operation_id, min(left, _WAIT_SECONDS))
    return document


async def _required_status(hub: TaskHub, operation_id: str) -> dict[str, Any]:
    document = await find_status(hub, operation_id)
    if document is None:
        raise NoSuchOperationError
    return document


async def _send_wish(
    hub: TaskHub, document: dict[str, Any], wish: str, data: dict[str, Any]
) -> SteeredOperation:
    try:
        await hub.raise_event(document["operation_id"], wish, data)
    except InstanceEndedError:
        raise WrongOperationStateError("the operation has ended meanwhile") from None
    report(ActedOn(document, wish, data["by"]))
    return SteeredOperation(
        operation_id=document["operation_id"],
        dependency=document["dependency"],
        status=OperationState(document["status"]),
    )


def _wrong_operation_state(document: dict[str, Any], what: str) -> WrongOperationStateError:
    return WrongOperationStateError(f"the operation {what}: its status is {document['status']}")
