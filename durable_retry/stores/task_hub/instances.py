"""Start orchestrations by instance id, and read operations page by page.

The SDK's public query reads every page before it returns, so `operations_page` uses the stub itself.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import grpc
from durabletask.client import OrchestrationQuery, OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.client_helpers import build_query_instances_req
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.stores.task_hub.client import ID_PREFIX, NEVER_REPLACE, TaskHubUnavailableError, client_for

_REPLACE_ENDED: Final = pb.OrchestrationIdReusePolicy(
    replaceableStatus=[
        pb.ORCHESTRATION_STATUS_COMPLETED,
        pb.ORCHESTRATION_STATUS_FAILED,
        pb.ORCHESTRATION_STATUS_TERMINATED,
        pb.ORCHESTRATION_STATUS_CANCELED,
    ]
)
"""Always explicit: without a policy backends differ on whether an ended instance is replaced."""


async def start_instance(
    hub: str, name: str, instance_id: str, input_: dict[str, Any], *, again: bool
) -> bool:
    """Start an orchestration.

    Args:
        hub: Configuration of the durable client.
        name: Of the orchestrator.
        instance_id: Its id.
        input_: Its input.
        again: Whether an ended instance of this id is replaced.

    Returns:
        False when an instance exists: a running one, or any one when not `again`.

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


LIGHT_ROWS: Final = 200
"""Instances per request without payloads: 200 custom statuses of 16 KB stay under gRPC's default of 4 MiB."""

_HEAVY_ROWS: Final = 20
"""Instances per request with payloads: twenty inputs of 64 KiB stay under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which operations to read, and how much of each.

    Attributes:
        runtime_statuses: Task hub statuses to include; empty means all.
        created_after: Lower bound of the creation time, inclusive; None for all.
        with_payloads: Whether to include inputs and outputs; custom statuses are always included.
        prefix: Of the instance ids; by default that of operations.
    """

    runtime_statuses: Collection[OrchestrationStatus] = ()
    created_after: datetime | None = None
    with_payloads: bool = False
    prefix: str = ID_PREFIX


@dataclass(frozen=True, slots=True)
class InstancePage:
    """One page in the task hub's own order. `following` is the next page's token; None at the end."""

    instances: list[OrchestrationState]
    following: str | None


async def operations_page(hub: str, wanted: Selection, token: str | None) -> InstancePage:
    """Read one page of operations.

    Args:
        hub: Configuration of the durable client.
        wanted: Which operations.
        token: `following` of the previous page; None for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    query = OrchestrationQuery(
        created_time_from=wanted.created_after,
        runtime_status=list(wanted.runtime_statuses) or None,
        max_instance_count=_HEAVY_ROWS if wanted.with_payloads else LIGHT_ROWS,
        fetch_inputs_and_outputs=wanted.with_payloads,
        instance_id_prefix=wanted.prefix,
    )
    request = build_query_instances_req(query, None if token is None else StringValue(value=token))
    try:
        page = await client._get_stub().QueryInstances(request)  # noqa: SLF001 - no public call gives one page
    except grpc.aio.AioRpcError as error:
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    following = page.continuationToken.value
    # The SDK reads "0" and "" as the end, and so does this.
    return InstancePage(
        list(page.orchestrationState), following if following not in ("", "0", token) else None
    )
