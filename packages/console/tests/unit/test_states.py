"""Operations by their states, and why they failed."""

from typing import Any

import pytest
from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState
from google.protobuf.wrappers_pb2 import StringValue

from durable_retry.base.names import OperationState
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry_console.states import is_of, last_error, preview_of


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


def test_a_dependency_is_asked_for_by_every_name_that_it_has_had() -> None:
    with using(parse_config('[dependencies.pay]\nwas = ["till", "old"]', {})):
        assert all(is_of(asked, name) for asked in (None, "pay", "till") for name in ("pay", "old"))
        assert is_of(None, None)
        assert is_of("gone", "gone")
        assert not any(
            is_of(asked, name) for asked, name in (("pay", None), ("pay", "gone"), ("gone", "pay"))
        )


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
