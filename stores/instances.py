"""Orchestrations other than operations: started and read by their instance ids."""

from typing import Any

import grpc

from stores.task_hub import NEVER_REPLACE, TaskHubUnavailableError, client_for


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
            reuse_id_policy=None if again else NEVER_REPLACE,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.ALREADY_EXISTS:
            return False
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    return True
