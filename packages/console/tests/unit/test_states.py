"""Operations by their states, and why they failed."""

from typing import Any

import pytest
from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.base.names import OperationState
from durable_retry_console.states import last_error, preview_of


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        ({}, ""),
        ({"attempts": [{"error": None}], "dead_letter": None}, ""),
        ({"attempts": [{"error": "first"}, {"error": "second"}, {"error": None}]}, "second"),
        ({"attempts": [], "dead_letter": {"reason": "PoisonMessage", "detail": "x"}}, "PoisonMessage\nx"),
        ({"attempts": [{"error": "no"}], "dead_letter": {"reason": "PoisonMessage"}}, "no\nPoisonMessage"),
    ],
)
def test_the_last_error_is_that_of_the_latest_failed_attempt_and_of_the_dead_letter(
    shown: dict[str, Any], error: str
) -> None:
    assert last_error(shown) == error


@pytest.mark.parametrize(
    ("runtime", "shown", "state"),
    [
        (OrchestrationStatus.PENDING, "", OperationState.PENDING),
        (OrchestrationStatus.RUNNING, "", OperationState.RUNNING),
        (OrchestrationStatus.RUNNING, '{"status": "waiting_retry"}', OperationState.WAITING_RETRY),
        (OrchestrationStatus.RUNNING, '{"status": "of a newer app"}', None),
        (OrchestrationStatus.COMPLETED, '{"status": "succeeded"}', OperationState.SUCCEEDED),
        (OrchestrationStatus.COMPLETED, "", None),
        (OrchestrationStatus.FAILED, '{"status": "running"}', OperationState.DEAD_LETTERED),
        (OrchestrationStatus.TERMINATED, "", OperationState.DEAD_LETTERED),
    ],
)
def test_the_state_of_an_operation_is_what_it_shows_unless_its_orchestration_ended_otherwise(
    runtime: OrchestrationStatus, shown: str, state: OperationState | None
) -> None:
    instance = OrchestrationState(
        instanceId="op-1",
        orchestrationStatus=runtime.value,
        customStatus=StringValue(value=shown),
    )
    assert preview_of(instance).status is state
