"""Orchestrations other than operations: started and read by their instance ids."""

from typing import Any, Final

import grpc
from durabletask.internal import orchestrator_service_pb2 as pb

from stores.task_hub import NEVER_REPLACE, TaskHubUnavailableError, client_for

_REPLACE_ENDED: Final = pb.OrchestrationIdReusePolicy(
    replaceableStatus=[
        pb.ORCHESTRATION_STATUS_COMPLETED,
        pb.ORCHESTRATION_STATUS_FAILED,
        pb.ORCHESTRATION_STATUS_TERMINATED,
        pb.ORCHESTRATION_STATUS_CANCELED,
    ]
)
"""Said outright: without a policy some backends let an ended instance give way and others do not."""


async def start(hub: str, name: str, instance_id: str, input_: dict[str, Any], *, again: bool) -> bool:
    """Start an orchestration.

    Args:
        hub: Configuration of the durable client.
        name: Of the orchestrator.
        instance_id: Its id.
        input_: What it starts with.
        again: Whether an instance of this id that has ended, in whatever way, is started anew.

    Returns:
        False when the task hub has one already: running, or in any state when not `again`.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    client = await client_for(hub)
    try:
        await client.schedule_new_orchestration(
            name,
            input=input_,
            instance_id=instance_id,
            reuse_id_policy=_REPLACE_ENDED if again else NEVER_REPLACE,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.ALREADY_EXISTS:
            return False
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    return True
