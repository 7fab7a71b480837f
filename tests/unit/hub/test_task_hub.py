"""Events to instances that have ended: Azure Storage refuses them, other backends drop them in silence."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self
from unittest.mock import AsyncMock

import azure.functions as func
import grpc
import pytest
from durabletask.client import OrchestrationState, OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.helpers import new_orchestrator_started_event, new_task_scheduled_event
from grpc.aio import AioRpcError, Metadata

from durable_retry.base.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.base.names import ATTEMPT, COMMIT, OperationState
from durable_retry.circuit.entity import wake
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations import actions as services
from durable_retry.operations import routes as operations
from durable_retry.operations.status import document_of, is_started_anew
from durable_retry.rules.operations.operation import start_input
from durable_retry.runtime import clock
from tests.support.builders import an_operation
from tests.support.narrowing import existing

HUB = TaskHub("hub")
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
    async def client(_hub: TaskHub) -> Backend:
        return backend

    monkeypatch.setattr(TaskHub, "client", client)
    return backend


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND])
async def test_an_event_for_an_ended_instance_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    use(monkeypatch, Backend(code, "op-1"))
    with pytest.raises(InstanceEndedError):
        await HUB.raise_event("op-1", "cancel", {"n": 1})


async def test_a_hub_that_is_away_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Backend(grpc.StatusCode.UNAVAILABLE, "op-1"))
    with pytest.raises(TaskHubUnavailableError):
        await HUB.raise_event("op-1", "cancel", {"n": 1})


async def test_an_operation_that_ended_does_not_keep_the_others_of_its_page_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = use(monkeypatch, Backend(grpc.StatusCode.FAILED_PRECONDITION, "op-1"))
    await wake(HUB, "payments", ["op-0", "op-1", "op-2"], AT)
    assert backend.woken == ["op-0", "op-2"]


async def test_cancelling_an_operation_that_ends_at_that_moment_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Backend(grpc.StatusCode.FAILED_PRECONDITION, "op-1"))

    async def running(_hub: TaskHub, operation_id: str) -> dict[str, Any]:
        return {"operation_id": operation_id, "status": OperationState.RUNNING.value, "dead_letter": None}

    monkeypatch.setattr(services, "find_status", running)
    request = func.HttpRequest("POST", "http://localhost/api/x", body=b"")
    answer = await operations.cancel_operation(request, HUB, {"operation_id": "op-1"})
    assert answer.status_code == 409


class Showing:
    """A durable client that shows one instance."""

    def __init__(self, **parts: Any) -> None:
        failed = OrchestrationStatus.FAILED
        shown: dict[str, Any] = {
            "serialized_input": None,
            "serialized_output": None,
            "serialized_custom_status": None,
        }
        shown |= parts
        self.state = OrchestrationState("op-1", "operation", failed, AT, AT, failure_details=None, **shown)

        self.history: list[pb.HistoryEvent] = []

    async def get_orchestration_state(self, _instance_id: str, **_: Any) -> OrchestrationState:
        return self.state

    async def wait_for_orchestration_completion(self, _instance_id: str, **_: Any) -> OrchestrationState:
        return self.state

    def _get_stub(self) -> Self:
        return self

    async def StreamInstanceHistory(self, _request: Any) -> AsyncIterator[pb.HistoryChunk]:  # noqa: N802 # as gRPC
        yield pb.HistoryChunk(events=self.history)


@pytest.mark.parametrize("text", ["text", "[1]", "[" * 9_000, "5"], ids=["text", "list", "deep", "number"])
async def test_whatever_an_instance_holds_it_can_be_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """On Azure Storage the output of a failed instance is plain text; anyone may start one with any input."""
    shown = Showing(serialized_input=text, serialized_output=text, serialized_custom_status=text)
    monkeypatch.setattr(TaskHub, "client", AsyncMock(return_value=shown))
    instance = existing(await HUB.read_instance("op-1"))
    assert (instance.input, instance.custom_status, instance.output) == ({"text": text}, None, None)
    assert instance.failure == text
    assert document_of(instance)["status"] == "dead_lettered"


@pytest.mark.parametrize(
    ("history", "asked_for", "goes_on"),
    [
        ([new_orchestrator_started_event(), new_task_scheduled_event(1, ATTEMPT)], {ATTEMPT}, False),
        ([new_orchestrator_started_event(), new_task_scheduled_event(1, COMMIT)], {COMMIT}, True),
        ([new_orchestrator_started_event()], set(), True),
        ([], None, False),
    ],
    ids=["tried", "asked for another", "untried", "not known"],
)
async def test_what_failed_without_a_custom_status_was_tried_unless_its_history_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    history: list[pb.HistoryEvent],
    asked_for: set[str] | None,
    goes_on: bool,  # noqa: FBT001 - an outcome
) -> None:
    """On Azure Storage an instance that fails loses its custom status."""
    shown = Showing(serialized_input=json.dumps(start_input(an_operation(), "s")))
    shown.history = history
    monkeypatch.setattr(TaskHub, "client", AsyncMock(return_value=shown))
    for instance in (await HUB.read_instance("op-1"), await HUB.wait_for_end("op-1", 1)):
        assert instance is not None
        assert instance.asked_for == asked_for
        assert is_started_anew(instance) is goes_on
        assert document_of(instance)["status"] == ("pending" if goes_on else "dead_lettered")


@pytest.mark.parametrize(
    ("status", "is_purged"),
    [("COMPLETED", True), ("FAILED", True), ("TERMINATED", True), ("RUNNING", False), ("PENDING", False)],
)
async def test_an_instance_that_was_started_again_is_not_purged(
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    is_purged: bool,  # noqa: FBT001 - an outcome
) -> None:
    """On Azure Storage a purge by id erases an instance that runs, too."""
    shown = Showing()
    shown.state.runtime_status = OrchestrationStatus[status]
    purge = AsyncMock()
    monkeypatch.setattr(shown, "purge_orchestration", purge, raising=False)
    monkeypatch.setattr(TaskHub, "client", AsyncMock(return_value=shown))
    assert await HUB.purge_instance(existing(await HUB.read_instance("op-1"))) is is_purged
    assert purge.await_count == is_purged


class FullDisk:
    """A durable client whose reads are answered, and whose starts fail with a status; None lets one begin."""

    failure: grpc.StatusCode | None = None

    async def get_orchestration_state(self, _instance_id: str) -> None:
        return None

    async def schedule_new_orchestration(self, *_: Any, **__: Any) -> None:
        if self.failure is not None:
            raise AioRpcError(self.failure, Metadata(), Metadata())


async def test_a_refused_start_makes_the_task_hub_unhealthy_for_a_while_or_until_one_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, hub, seconds = FullDisk(), TaskHub("of a full disk"), 100.0
    monkeypatch.setattr(TaskHub, "client", AsyncMock(return_value=client))

    async def is_well_after(failure: grpc.StatusCode | None) -> bool:
        client.failure = failure
        with suppress(TaskHubUnavailableError):
            await hub.start_instance("operation", "op-1", {}, again=False)
        return await is_well()

    async def is_well() -> bool:
        try:
            await hub.check()
        except TaskHubUnavailableError:
            return False
        return True

    with clock.reading(lambda: AT, lambda: seconds):
        assert await is_well()
        assert await is_well_after(grpc.StatusCode.ALREADY_EXISTS)
        assert await is_well_after(grpc.StatusCode.RESOURCE_EXHAUSTED), "the input was too large"
        assert not await is_well_after(grpc.StatusCode.UNAVAILABLE)
        assert await is_well_after(None)
        assert not await is_well_after(grpc.StatusCode.UNKNOWN)
        seconds += 15
        assert await is_well()
