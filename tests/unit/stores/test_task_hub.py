"""Events to instances that have ended: Azure Storage refuses them, other backends drop them in silence."""

from datetime import UTC, datetime
from typing import Any

import azure.functions as func
import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from durable_retry.engine.base.names import OperationState
from durable_retry.stores import task_hub as hub_client
from durable_retry.stores.circuit import wake
from durable_retry.stores.task_hub import InstanceEndedError, TaskHubUnavailableError, raise_event
from durable_retry.triggers.http import operations

AT = datetime(2026, 11, 21, tzinfo=UTC)


class Backend:
    """A durable client that refuses events for some instances."""

    def __init__(self, code: grpc.StatusCode, *ended: str) -> None:
        self.code = code
        self.ended = ended
        self.woken: list[str] = []

    async def raise_orchestration_event(self, instance_id: str, _event: str, *, data: Any) -> None:
        assert data is not None
        if instance_id in self.ended:
            raise AioRpcError(self.code, Metadata(), Metadata(), "refused")
        self.woken.append(instance_id)


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> Backend:
    async def client_for(_hub: str) -> Backend:
        return backend

    monkeypatch.setattr(hub_client, "client_for", client_for)
    return backend


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND])
async def test_an_event_for_an_ended_instance_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    use(monkeypatch, Backend(code, "op-1"))
    with pytest.raises(InstanceEndedError):
        await raise_event("hub", "op-1", "cancel", {"n": 1})


async def test_a_hub_that_is_away_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Backend(grpc.StatusCode.UNAVAILABLE, "op-1"))
    with pytest.raises(TaskHubUnavailableError):
        await raise_event("hub", "op-1", "cancel", {"n": 1})


async def test_an_operation_that_ended_does_not_keep_the_others_of_its_page_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = use(monkeypatch, Backend(grpc.StatusCode.FAILED_PRECONDITION, "op-1"))
    await wake("hub", "payments", ["op-0", "op-1", "op-2"], AT)
    assert backend.woken == ["op-0", "op-2"]


async def test_cancelling_an_operation_that_ends_at_that_moment_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Backend(grpc.StatusCode.FAILED_PRECONDITION, "op-1"))

    async def running(_hub: str, operation_id: str) -> dict[str, Any]:
        return {"operation_id": operation_id, "status": OperationState.RUNNING.value, "dead_letter": None}

    monkeypatch.setattr(operations, "find_status", running)
    request = func.HttpRequest(
        "POST", "http://localhost/api/x", route_params={"operation_id": "op-1"}, body=b""
    )
    answer = await operations.cancel_operation(request, "hub")
    assert answer.status_code == 409
