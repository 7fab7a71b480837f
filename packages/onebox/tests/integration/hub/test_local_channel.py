"""Durable clients in the hub's own process, which call it without gRPC."""

import asyncio
import importlib.metadata
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from azure.durable_functions import DurableFunctionsClient
from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask.client import AsyncTaskHubGrpcClient, TaskHubGrpcClient
from durabletask.grpc_options import GrpcChannelOptions

from onebox.clock import SystemClock
from onebox.faults import FaultPoint
from onebox.hub import Hub, HubSettings
from onebox.hub.local_channel import LocalBlockingChannel, LocalChannel
from onebox.hub.model import Start
from onebox.worker.durable import DurableClients, DurableUrls
from tests.support.onebox.backends import client_of, running_hub
from tests.support.onebox.durable_app import AppInvoker
from tests.support.onebox.sample_app import make_app

_QUIET = logging.getLogger("durabletask.quiet")
caller: ContextVar[str] = ContextVar("caller", default="nobody")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path, make_app()) as running:
        running.serve_locally()
        yield running


def blocking_client(hub: Hub) -> TaskHubGrpcClient:
    converter = DEFAULT_FUNCTIONS_DATA_CONVERTER
    return TaskHubGrpcClient(host_address=hub.grpc_address, logger=_QUIET, data_converter=converter)


async def test_a_client_of_the_same_process_has_no_connection(hub: Hub) -> None:
    async with client_of(hub.grpc_address) as client:
        await client.schedule_new_orchestration("no_steps", instance_id="one")
        assert isinstance(client._channel, LocalChannel)


async def test_clients_look_for_the_version_of_their_package_once(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = DurableClients(DurableUrls("http://127.0.0.1", "hub"), hub.grpc_address).datum().value
    DurableFunctionsClient(binding)
    looks = Mock(side_effect=importlib.metadata.PackageNotFoundError)
    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", looks)
    DurableFunctionsClient(binding)
    looks.assert_not_called()


async def test_a_client_with_an_interceptor_of_its_own_goes_over_grpc(hub: Hub) -> None:
    seen: list[Any] = []

    class Watching(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # untyped
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            seen.append(details.method)
            return await continuation(details, request)

    async with AsyncTaskHubGrpcClient(
        host_address=hub.grpc_address, logger=_QUIET, interceptors=[Watching()]
    ) as client:
        assert await client.get_orchestration_state("nobody") is None
    assert len(seen) == 1


async def test_an_answer_over_the_limit_is_refused_as_by_grpc(hub: Hub) -> None:
    small = GrpcChannelOptions(max_receive_message_length=1_000)
    async with AsyncTaskHubGrpcClient(
        host_address=hub.grpc_address, logger=_QUIET, channel_options=small
    ) as client:
        await client.schedule_new_orchestration("no_steps", instance_id="large", input="x" * 2_000)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.get_orchestration_state("large")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_wait_ends_at_its_timeout(hub: Hub) -> None:
    async with client_of(hub.grpc_address) as client:
        with pytest.raises(TimeoutError):
            await client.wait_for_orchestration_completion("nobody", timeout=0.01)


async def test_a_hub_that_has_stopped_is_unavailable(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()) as hub:
        hub.serve_locally()
        client = client_of(hub.grpc_address)
        await client.get_orchestration_state("nobody")
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await client.get_orchestration_state("nobody")
    assert gone.value.code() is grpc.StatusCode.UNAVAILABLE
    await client.close()


async def test_what_the_hub_raises_unforeseen_is_an_error_of_the_call(tmp_path: Path) -> None:
    def cut(_: object) -> None:
        raise RuntimeError("cut")

    async with running_hub(tmp_path, make_app(), faults=cut) as hub:
        hub.serve_locally()
        async with client_of(hub.grpc_address) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="cut") as failed:
                await client.schedule_new_orchestration("no_steps")
            assert failed.value.code() is grpc.StatusCode.UNKNOWN


async def test_a_blocking_client_on_another_thread_is_served(hub: Hub) -> None:
    def use() -> Any:
        with blocking_client(hub) as client:
            assert isinstance(client._channel, LocalBlockingChannel)
            client.schedule_new_orchestration("no_steps", instance_id="blocking")
            state = client.wait_for_orchestration_completion("blocking", timeout=60)
            return state and state.runtime_status.name, len(client.get_orchestration_history("blocking"))

    assert await asyncio.to_thread(use) == ("COMPLETED", 4)


async def test_a_blocking_client_on_the_hubs_own_loop_is_refused_not_stuck(hub: Hub) -> None:
    with blocking_client(hub) as client, pytest.raises(grpc.RpcError, match="use the async client"):
        client.get_orchestration_state("nobody")


async def test_an_async_client_on_another_event_loop_is_served(hub: Hub) -> None:
    async def use() -> int:
        async with client_of(hub.grpc_address) as client:
            await client.schedule_new_orchestration("no_steps", instance_id="afar")
            await client.wait_for_orchestration_completion("afar", timeout=60)
            return len(await client.get_orchestration_history("afar"))

    assert await asyncio.to_thread(lambda: asyncio.run(use())) == 4


class NotingInvoker(AppInvoker):
    """Notes in whose context an orchestrator runs."""

    def __init__(self) -> None:
        super().__init__(make_app())
        self.callers: list[str] = []

    async def orchestrator(self, name: str, request: Any) -> Any:
        self.callers.append(caller.get())
        return await super().orchestrator(name, request)


async def test_what_a_call_starts_does_not_run_in_its_callers_context(tmp_path: Path) -> None:
    """A trace or a log id of the caller would stick to everything that the hub does from then on."""
    invoker = NotingInvoker()
    async with running_hub(tmp_path, invoker) as hub:
        hub.serve_locally()
        caller.set("a function")
        async with client_of(hub.grpc_address) as client:
            await client.schedule_new_orchestration("no_steps", instance_id="one")
            await client.wait_for_orchestration_completion("one", timeout=60)
    assert invoker.callers == ["nobody"]


async def test_clients_are_served_before_the_work_of_the_last_life_goes_on(tmp_path: Path) -> None:
    store, never = tmp_path / "hub.db", HubSettings(head_start_seconds=3600)
    before = Hub(store, AppInvoker(make_app()), SystemClock(), never)
    await before.start()
    await before.tasks.start(Start("one", "no_steps"))
    await before.stop()
    order: list[str] = []
    hub = Hub(store, AppInvoker(make_app()), SystemClock(), faults=order.append)

    async def serve() -> None:
        order.append("serving")

    await hub.start(serve)
    async with asyncio.timeout(60):
        await hub.tasks.wait_finished("one")
    await hub.stop()
    assert order[0] == "serving"
    assert FaultPoint.TURN_TAKEN in order
