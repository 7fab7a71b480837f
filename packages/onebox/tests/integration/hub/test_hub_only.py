"""What only a task hub on disk has: restarts, leases, and what happens to work in flight."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc
import pytest
from durabletask import task
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

from onebox.clock import SystemClock
from onebox.hub import Hub, HubInUseError, HubSettings
from onebox.hub.model import Start, Status, StoreUnusableError
from tests.support.onebox.backends import SDK_NOTICE, eventually, running_hub
from tests.support.onebox.durable_app import AppInvoker
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE


async def test_a_second_process_is_refused_and_the_error_names_the_first(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()):
        second = Hub(tmp_path / "hub.db", AppInvoker(make_app()), SystemClock())
        with pytest.raises(HubInUseError, match=r"served by another process \(pid \d+\)"):
            await second.start()


async def test_what_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.start(start("wait_for_go", "waiting"))
        await hub.tasks.start(start("sleeper", "sleeping", "0.3"))
        await hub.tasks.wait_started("waiting")
        await hub.tasks.wait_started("sleeping")
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.raise_event("waiting", "go", '"hello"')
        assert (await hub.tasks.wait_finished("waiting")).output == '"hello"'
        assert (await hub.tasks.wait_finished("sleeping")).output == '"rested"'


def start(name: str, instance_id: str, input_: str | None = None) -> Start:
    return Start(instance_id, name, input=input_)


async def test_a_result_that_comes_after_the_failure_is_there_after_the_rewind(tmp_path: Path) -> None:
    """The in-memory backend drops it, and the rewound orchestration waits for ever."""
    app = make_app()
    late = asyncio.Event()

    @app.activity
    async def slow(_: object) -> str:
        await late.wait()
        return "late"

    @app.orchestrator
    def overtaken(ctx: task.OrchestrationContext, value: object) -> Generator[task.Task[Any], Any, Any]:
        pending: task.Task[Any] = ctx.call_activity("slow")
        yield ctx.call_activity("fail_once", input=value)
        return (yield pending)

    async with running_hub(tmp_path, app) as hub:
        await hub.tasks.start(start("overtaken", "overtaken", '"x"'))
        assert (await hub.tasks.wait_finished("overtaken")).status is Status.FAILED
        late.set()
        await hub.settled()
        await hub.tasks.rewind("overtaken", None)
        assert (await hub.tasks.wait_finished("overtaken")).output == '"late"'


async def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "hub.db"
    store.write_text("no database" * 100)
    with pytest.raises(StoreUnusableError, match=r"cannot open .*hub.db: file is not a database"):
        await Hub(store, AppInvoker(make_app()), SystemClock()).start()
    assert store.read_text() == "no database" * 100


async def test_an_activity_that_outlives_the_stop_runs_again_after_the_start(tmp_path: Path) -> None:
    app = make_app()
    runs: list[str] = []

    @app.activity
    async def stuck_once(_: object) -> str:
        runs.append("run")
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    @app.orchestrator
    def wait_for_stuck(ctx: task.OrchestrationContext, _: object) -> Generator[task.Task[Any], Any, Any]:
        return (yield ctx.call_activity("stuck_once"))

    async with running_hub(tmp_path, app, settings=HubSettings(stop_seconds=0.05)) as hub:
        await hub.tasks.start(start("wait_for_stuck", "stuck"))
        await eventually(lambda: _is(runs == ["run"]))
    async with running_hub(tmp_path, app) as hub:
        assert (await hub.tasks.wait_finished("stuck")).output == '"done"'
    assert runs == ["run", "run"]


async def _is(answer: bool) -> bool:  # noqa: FBT001 - it is what is looked at
    return answer


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("QueryInstances", pb.QueryInstancesRequest(query={"runtimeStatus": [99]})),
        ("QueryInstances", pb.QueryInstancesRequest(query={"continuationToken": StringValue(value="x")})),
        ("QueryEntities", pb.QueryEntitiesRequest(query={"lastModifiedFrom": Timestamp(seconds=2**62)})),
        ("ListInstanceIds", pb.ListInstanceIdsRequest(completedTimeTo=Timestamp(nanos=-1))),
        (
            "SignalEntity",
            pb.SignalEntityRequest(instanceId="@a@b", scheduledTime=Timestamp(seconds=-(2**62))),
        ),
        (
            "StartInstance",
            pb.CreateInstanceRequest(name="x", scheduledStartTimestamp=Timestamp(seconds=2**62)),
        ),
    ],
)
async def test_what_cannot_be_read_is_an_invalid_argument(tmp_path: Path, method: str, asked: Any) -> None:
    async with (
        running_hub(tmp_path, make_app()) as hub,
        grpc.aio.insecure_channel(hub.grpc_address) as channel,
    ):
        stub: Any = stubs.TaskHubSidecarServiceStub(channel)  # type: ignore[no-untyped-call] # generated
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(stub, method)(asked)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
