"""What the page of a task hub shows of an operation, without its status document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_object
from durable_retry.base.names import OperationState
from durable_retry.operations.status import ACTIVE
from durable_retry_console.states import turn_names_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPreview:
    """Preview of one operation: what its custom status shows."""

    operation_id: str
    status: OperationState | None  # None when it is not in the custom status
    dependency: str | None  # None when it is not known
    turn_names: Mapping[str, str] | None  # see `turn_names_of`; None when they are not known


def preview_of(instance: OrchestrationState) -> OperationPreview:
    shown = json_object(instance.customStatus.value) or {}
    runtime = OrchestrationStatus(instance.orchestrationStatus)
    dependency = shown.get("dependency")
    return OperationPreview(
        operation_id=instance.instanceId,
        status=read_or(lambda: _state_of_instance(runtime, shown), lambda _: None),
        dependency=dependency if isinstance(dependency, str) else None,
        turn_names=turn_names_of(shown) if "key" in shown else None,
    )


def _state_of_instance(runtime: OrchestrationStatus, shown: Mapping[str, Any]) -> OperationState | None:
    match runtime:
        case OrchestrationStatus.FAILED | OrchestrationStatus.TERMINATED:
            return OperationState.DEAD_LETTERED
        case OrchestrationStatus.COMPLETED:
            # An orchestration that found its key completed by an earlier run sets no custom status.
            return OperationState(shown["status"]) if shown else None
    if shown:
        return OperationState(shown["status"])
    return OperationState.RUNNING if runtime in ACTIVE else OperationState.PENDING
