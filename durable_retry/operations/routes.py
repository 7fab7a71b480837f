"""HTTP: look at an operation, and steer it."""

from typing import Final

from durable_retry.base.errors import NoSuchOperationError, WrongOperationStateError
from durable_retry.base.names import Role
from durable_retry.http.answers import ConflictError, NotFoundError, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.routes import Declaration, Routes, accepted
from durable_retry.hub.binding import TaskHub
from durable_retry.operations import actions as operations
from durable_retry.rules.facts import TargetType
from durable_retry.rules.operations.status import OperationDocument, SteeredOperation
from durable_retry.rules.operations.waits import Pause, Resume, Try

routes = Routes(
    "operations",
    {
        NoSuchOperationError: lambda _: NotFoundError("operation of this id"),
        WrongOperationStateError: lambda error: ConflictError(sentence(error)),
    },
)


@routes.get("operations/{operation_id}", for_callers=True)
async def get_operation(operation_id: str, hub: TaskHub, who: Caller) -> OperationDocument:
    """Show an operation."""
    only_reads = who.role is Role.READER
    return await operations.find_operation(hub, operation_id, result_is_masked=only_reads)


def _steered(what: str) -> Declaration:
    answers = accepted(SteeredOperation, "The operation was signalled.")
    return {"act": Act(what, TargetType.OPERATION), "answers": answers}


_TRIED: Final[Declaration] = {**_steered("tried the operation past its circuit"), "body": Try}
_PAUSED: Final[Declaration] = {**_steered("paused the operation"), "body": Pause}
_RESUMED: Final[Declaration] = {**_steered("resumed the operation"), "body": Resume, "body_required": False}


@routes.post("operations/{operation_id}/cancel", **_steered("cancelled the operation"))
async def cancel_operation(operation_id: str, hub: TaskHub, who: Caller) -> SteeredOperation:
    """Cancel an operation; an attempt under way ends first."""
    return await operations.cancel(hub, operation_id, who.known_name)


@routes.post("operations/{operation_id}/retry-now", **_steered("ended the wait of the operation"))
async def retry_operation_now(operation_id: str, hub: TaskHub, who: Caller) -> SteeredOperation:
    """End the present wait of an operation."""
    return await operations.retry_now(hub, operation_id, who.known_name)


@routes.post("operations/{operation_id}/try", **_TRIED)
async def try_operation(operation_id: str, body: Try, hub: TaskHub, who: Caller) -> SteeredOperation:
    """Send one attempt past an open circuit or a hold, which does not count it and stays as it is."""
    return await operations.try_once(hub, operation_id, who.known_name, body.reason)


@routes.post("operations/{operation_id}/pause", **_PAUSED)
async def pause_operation(operation_id: str, body: Pause, hub: TaskHub, who: Caller) -> SteeredOperation:
    """Let an operation do nothing for a while; an attempt under way ends first."""
    return await operations.pause(hub, operation_id, who.known_name, body)


@routes.post("operations/{operation_id}/resume", **_RESUMED)
async def resume_operation(operation_id: str, body: Resume, hub: TaskHub, who: Caller) -> SteeredOperation:
    """Let a paused operation go on, with another policy, deadline or priority where the body has one."""
    return await operations.resume(hub, operation_id, who.known_name, body)
