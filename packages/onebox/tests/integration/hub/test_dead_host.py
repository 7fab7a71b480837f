"""On Azure's terms, what a host that died had fetched is hidden for the visibility timeouts."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, override

import durabletask.internal.orchestrator_service_pb2 as pb
import pytest
from durabletask import task

from onebox.clock import ManualClock
from onebox.hub import Hub, HubSettings
from onebox.hub.invoker import TurnRequest
from onebox.hub.model import Start, Status
from onebox.hub.settings import AzureTerms
from tests.support.onebox.backends import SDK_NOTICE, eventually
from tests.support.onebox.durable_app import App, AppInvoker

pytestmark = SDK_NOTICE

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NEVER = {"lost": 0.0, "repeated": 0.0, "overtaken": 0.0, "doubled": 0.0, "raced": 0.0, "skew_seconds": 0.0}

app = App()


@app.activity
def double(value: int) -> int:
    return value * 2


@app.orchestrator
def no_steps(_: task.OrchestrationContext, value: Any) -> Any:
    return value


@app.orchestrator
def doubled(ctx: task.OrchestrationContext, value: int) -> Generator[task.Task[Any], Any, Any]:
    return (yield ctx.call_activity("double", input=value))


@app.orchestrator
def sleeper(ctx: task.OrchestrationContext, seconds: float) -> Generator[task.Task[Any], Any, Any]:
    yield ctx.create_timer(timedelta(seconds=seconds))
    return "rested"


class HeldInvoker(AppInvoker):
    """Never comes to an end with what it is held at."""

    def __init__(self, held_at: str) -> None:
        super().__init__(app)
        self._held_at = held_at
        self.began: list[str] = []

    async def _run(self, kind: str) -> None:
        self.began.append(kind)
        if kind == self._held_at:
            await asyncio.Event().wait()

    @override
    async def orchestrator(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse:
        await self._run("turn")
        return await super().orchestrator(name, request)

    @override
    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        await self._run("activity")
        return await super().activity(name, instance_id, task_id, input_json)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def living(
    folder: Path,
    clock: ManualClock,
    *,
    held_at: str = "",
    dies: bool = False,
    most: int = 64,
    asks_first: str = "",
    **shares: float,
) -> AsyncIterator[tuple[Hub, HeldInvoker]]:
    """One life of the hub, which at its end dies or stops in order. `asks_first` starts before it looks."""
    hidden = {"control_hidden_seconds": 60.0, "work_hidden_seconds": 90.0}
    terms = AzureTerms(1, **(NEVER | hidden | shares))
    invoker = HeldInvoker(held_at)
    settings = HubSettings(azure=terms, stop_seconds=0.01, max_activities=most)
    hub = Hub(folder / "hub.db", invoker, clock, settings)

    async def serve() -> None:
        if asks_first:
            await hub.tasks.start(Start(asks_first, "no_steps", input="1"))

    await hub.start(serve)
    yield hub, invoker
    if dies:
        hub.die()
    await hub.stop()


def status_of(hub: Hub, instance_id: str = "i") -> Status:
    state = hub.tasks.get(instance_id)
    assert state is not None
    return state.status


async def advanced(hub: Hub, clock: ManualClock, by: timedelta) -> Status:
    clock.advance(by)
    await hub.settled()
    return status_of(hub)


async def began(invoker: HeldInvoker, kind: str, count: int = 1) -> None:
    async def look() -> bool:
        return invoker.began.count(kind) == count

    await eventually(look)


@pytest.mark.shows("H21")
async def test_a_message_that_a_dead_host_had_fetched_is_seen_a_minute_after_it_came(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with living(tmp_path, clock, held_at="turn", dies=True) as (hub, invoker):
        await hub.tasks.start(Start("i", "no_steps", input="1"))
        await began(invoker, "turn")
        clock.advance(10 * SECOND)
    async with living(tmp_path, clock) as (hub, _):
        assert await advanced(hub, clock, 49 * SECOND) is Status.PENDING
        assert await advanced(hub, clock, 1.1 * SECOND) is Status.COMPLETED


async def test_an_activity_that_a_dead_host_ran_is_seen_as_long_after_its_death(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with living(tmp_path, clock, held_at="activity", dies=True) as (hub, invoker):
        await hub.tasks.start(Start("i", "doubled", input="1"))
        await began(invoker, "activity")
        await until_alive_at(hub, clock, 10 * SECOND)
    async with living(tmp_path, clock) as (hub, invoker):
        assert await advanced(hub, clock, 88 * SECOND) is Status.RUNNING
        assert invoker.began == []
    async with living(tmp_path, clock) as (hub, _):  # a stop in order shows nothing sooner
        assert await advanced(hub, clock, 0.5 * SECOND) is Status.RUNNING
        assert await advanced(hub, clock, 2 * SECOND) is Status.COMPLETED


async def until_alive_at(hub: Hub, clock: ManualClock, after: timedelta) -> None:
    """Let the hub live on for so long."""
    for _ in range(after // SECOND):
        clock.advance(SECOND)
        await asyncio.sleep(0.01)
    await eventually(lambda: is_idle(hub))


async def is_idle(hub: Hub) -> bool:
    assert hub._engine is not None
    return hub._engine.writer.is_idle


async def test_activities_beyond_what_runs_at_once_were_not_fetched(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with living(tmp_path, clock, held_at="activity", dies=True, most=2) as (hub, invoker):
        for number in range(3):
            await hub.tasks.start(Start(f"i{number}", "doubled", input="1"))
        await began(invoker, "activity", 2)
        await eventually(lambda: are_running(hub))
    async with living(tmp_path, clock, most=2) as (hub, _):
        await hub.settled()
        ended = [status_of(hub, f"i{number}") is Status.COMPLETED for number in range(3)]
        assert sorted(ended) == [False, False, True]


async def are_running(hub: Hub) -> bool:
    return all(status_of(hub, f"i{number}") is Status.RUNNING for number in range(3))


async def test_a_timer_that_came_due_after_the_death_is_not_hidden(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with living(tmp_path, clock, dies=True) as (hub, _):
        await hub.tasks.start(Start("i", "sleeper", input="100"))
        await hub.settled()
    clock.advance(2 * MINUTE)
    async with living(tmp_path, clock) as (hub, _):
        await hub.settled()
        assert status_of(hub) is Status.COMPLETED


async def test_what_clients_ask_of_the_next_host_is_not_hidden(tmp_path: Path, clock: ManualClock) -> None:
    async with living(tmp_path, clock, dies=True) as (hub, _):
        await hub.settled()
    clock.advance(2 * SECOND)
    async with living(tmp_path, clock, asks_first="i") as (hub, _):
        await hub.settled()
        assert status_of(hub) is Status.COMPLETED


@pytest.mark.parametrize("held_at", ["turn", "activity"])
async def test_a_host_that_stops_in_order_gives_back_what_it_had_fetched(
    held_at: str, tmp_path: Path, clock: ManualClock
) -> None:
    async with living(tmp_path, clock, held_at=held_at) as (hub, invoker):
        await hub.tasks.start(Start("i", "doubled", input="1"))
        await began(invoker, held_at)
    async with living(tmp_path, clock) as (hub, _):
        await hub.settled()
        assert status_of(hub) is Status.COMPLETED


async def test_the_hubs_own_terms_hide_nothing(tmp_path: Path, clock: ManualClock) -> None:
    async with living(tmp_path, clock, held_at="activity", dies=True) as (hub, invoker):
        await hub.tasks.start(Start("i", "doubled", input="1"))
        await began(invoker, "activity")
    hub = Hub(tmp_path / "hub.db", AppInvoker(app), clock)
    await hub.start()
    await hub.settled()
    assert status_of(hub) is Status.COMPLETED
    await hub.stop()


@pytest.mark.shows("H22")
async def test_a_fetch_without_an_answer_hides_its_messages(tmp_path: Path, clock: ManualClock) -> None:
    async with living(tmp_path, clock, unanswered=1.0) as (hub, invoker):
        await hub.tasks.start(Start("i", "doubled", input="1"))
        await hub.settled()
        assert await advanced(hub, clock, 59.9 * SECOND) is Status.PENDING
        clock.advance(0.2 * SECOND)  # the start is seen; the activity is hidden then, and then its result
        await eventually(lambda: reads(hub, Status.RUNNING))
        clock.advance(89 * SECOND)
        assert invoker.began == ["turn"]
        clock.advance(2 * SECOND)
        await began(invoker, "activity")
        await hub.settled()
        assert await advanced(hub, clock, 50 * SECOND) is Status.RUNNING
        assert await advanced(hub, clock, 11 * SECOND) is Status.COMPLETED


async def reads(hub: Hub, status: Status) -> bool:
    return status_of(hub) is status
