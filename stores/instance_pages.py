"""Pages of the task hub's operations: the SDK's public query gathers every page before it answers."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import grpc
from durabletask.client import OrchestrationQuery, OrchestrationStatus
from durabletask.internal.client_helpers import build_query_instances_req
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState
from google.protobuf.wrappers_pb2 import StringValue

from stores.task_hub import ID_PREFIX, TaskHubUnavailableError, client_for

LIGHT_ROWS: Final = 200
"""Instances per request without payloads: 200 custom statuses of 16 KB stay under gRPC's default of 4 MiB."""

_HEAVY_ROWS: Final = 20
"""Instances per request with payloads: twenty inputs of 64 KiB stay under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which operations are asked for, and how much of each.

    Attributes:
        runtime_statuses: What the task hub says of them; empty means anything.
        created_after: Created at this instant or later; None for all.
        with_payloads: Whether inputs and outputs come too; custom statuses always do.
    """

    runtime_statuses: Collection[OrchestrationStatus] = ()
    created_after: datetime | None = None
    with_payloads: bool = False


@dataclass(frozen=True, slots=True)
class InstancePage:
    """Some instances in the task hub's own order; `following` asks for the next ones, None at the end."""

    instances: list[OrchestrationState]
    following: str | None


async def operations_page(hub: str, wanted: Selection, token: str | None) -> InstancePage:
    """Ask for one page.

    Args:
        hub: Configuration of the durable client.
        wanted: Which.
        token: `following` of the page before; None for the first.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    query = OrchestrationQuery(
        created_time_from=wanted.created_after,
        runtime_status=list(wanted.runtime_statuses) or None,
        max_instance_count=_HEAVY_ROWS if wanted.with_payloads else LIGHT_ROWS,
        fetch_inputs_and_outputs=wanted.with_payloads,
        instance_id_prefix=ID_PREFIX,
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
