"""What a transaction wakes joins a group: a chain of turns and batches is one commit."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from onebox.clock import SystemClock
from onebox.hub import FaultPoint, Hub, HubSettings
from onebox.hub.model import Start
from tests.support.onebox.backends import SDK_NOTICE, entity_state, running_hub
from tests.support.onebox.durable_app import App, AppInvoker, WaitingInvoker
from tests.support.onebox.writer import post_and_fail

pytestmark = SDK_NOTICE
COUNTER = "@counter@one"


def counting_app() -> App:
    app = App()

    @app.activity
    def double(value: int) -> int:
        return value * 2

    @app.entity
    class Counter(DurableEntity):
        def add(self, amount: int) -> int:
            total: int = self.get_state(int, 0) + amount
            self.set_state(total)
            return total

    @app.orchestrator
    def counted(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
        before = yield ctx.call_entity(EntityInstanceId.parse(COUNTER), "add", 1)
        doubled = yield ctx.call_activity("double", input=before)
        ctx.signal_entity(EntityInstanceId.parse(COUNTER), "add", doubled)
        return doubled

    @app.orchestrator
    def for_ever(ctx: task.OrchestrationContext, rounds: int) -> None:
        ctx.continue_as_new(rounds + 1)

    return app


@asynccontextmanager
async def running(
    folder: Path, invoker: AppInvoker, faults: Callable[[FaultPoint], None]
) -> AsyncIterator[Hub]:
    """A hub whose groups wait for what goes on from them, and for no client."""
    async with running_hub(
        folder, invoker, SystemClock(), HubSettings(stop_seconds=0.2, ride_seconds=5), faults
    ) as hub:
        assert hub._engine is not None
        hub._engine.writer._ride._share = 0
        yield hub


@pytest.mark.parametrize(("invoker", "commits"), [(AppInvoker, 3), (WaitingInvoker, 4)])
async def test_a_chain_commits_once_also_when_it_has_to_be_waited_for(
    tmp_path: Path, invoker: type[AppInvoker], commits: int
) -> None:
    """The start is one; turn, entity, turn are the next; the activity's result, turn, entity the last.

    What has to be waited for ends with its commit: a second turn of one orchestration begins another group.
    """
    visits: Counter[FaultPoint] = Counter()
    async with running(tmp_path, invoker(counting_app()), lambda point: visits.update([point])) as hub:
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        assert entity_state(hub, COUNTER) == "3"
    assert visits[FaultPoint.GROUP_COMMITTED] == commits
    assert (visits[FaultPoint.TURN_COMMITTED], visits[FaultPoint.BATCH_COMMITTED]) == (3, 2)


@pytest.mark.parametrize("kind", [AppInvoker, WaitingInvoker])
@pytest.mark.parametrize(
    ("point", "visit"),
    [
        (FaultPoint.GROUP_FILLED, 1),
        (FaultPoint.GROUP_FILLED, 2),
        (FaultPoint.GROUP_COMMITTED, 2),
        (FaultPoint.TURN_ANSWERED, 1),
        (FaultPoint.BATCH_TAKEN, 1),
    ],
)
async def test_a_chain_that_is_cut_is_undone_from_there_and_runs_again(
    tmp_path: Path, kind: type[AppInvoker], point: FaultPoint, visit: int
) -> None:
    visits: Counter[FaultPoint] = Counter()

    def strike(at: FaultPoint) -> None:
        visits.update([at])
        if at is point and visits[at] == visit:
            raise RuntimeError("cut")

    invoker = kind(counting_app())
    async with running(tmp_path, invoker, strike) as hub:
        if (point, visit) == (FaultPoint.GROUP_FILLED, 1):
            with pytest.raises(RuntimeError):
                await hub.tasks.start(Start("one", "counted"))
            assert (hub.tasks.get("one"), hub.tasks.get_entity(COUNTER)) == (None, None)
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        assert entity_state(hub, COUNTER) == "3", "each operation counted once"
    assert len(invoker.activities_run) == 1
    assert visits[point] > visit


@pytest.mark.parametrize("point", [FaultPoint.TURN_WRITTEN, FaultPoint.BATCH_ANSWERED])
async def test_what_has_gone_on_from_a_group_that_is_undone_writes_nothing(
    tmp_path: Path, point: FaultPoint
) -> None:
    """A transaction that fails after it has written undoes its group, which runs again."""
    spoilt: list[asyncio.Task[None]] = []

    def spoil(at: FaultPoint) -> None:
        if at is point and not spoilt:
            assert hub._engine is not None
            spoilt.append(asyncio.ensure_future(hub._engine.writer.commit_surely(post_and_fail)))

    invoker = WaitingInvoker(counting_app())
    async with running(tmp_path, invoker, spoil) as hub:
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        assert entity_state(hub, COUNTER) == "3", "each operation counted once"
        with pytest.raises(LookupError):
            await spoilt[0]
    assert len(invoker.activities_run) == 1


async def test_a_client_is_answered_before_what_it_wakes_runs(tmp_path: Path) -> None:
    turns: list[int] = []
    visits: Counter[FaultPoint] = Counter()

    def look(point: FaultPoint) -> None:
        visits.update([point])
        if point is FaultPoint.GROUP_COMMITTED:
            turns.append(visits[FaultPoint.TURN_ANSWERED])

    async with running(tmp_path, AppInvoker(counting_app()), look) as hub:
        await hub.tasks.start(Start("one", "counted"))
        assert visits[FaultPoint.TURN_TAKEN] == 0
        await hub.tasks.wait_finished("one")
    assert turns == [0, 2, 3]


async def test_a_full_disk_between_an_answer_and_its_chain_leaves_the_chain_to_later(tmp_path: Path) -> None:
    filled: Counter[FaultPoint] = Counter()

    def strike(point: FaultPoint) -> None:
        filled.update([point])
        if point is FaultPoint.GROUP_FILLED and filled[point] == 2:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full

    invoker = AppInvoker(counting_app())
    async with running(tmp_path, invoker, strike) as hub:
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
    assert len(invoker.activities_run) == 1


@pytest.mark.parametrize(("kind", "runs"), [(AppInvoker, [0, 0, 1]), (WaitingInvoker, [0, 0, 0, 1])])
async def test_nothing_runs_outside_before_the_commit(
    tmp_path: Path, kind: type[AppInvoker], runs: list[int]
) -> None:
    invoker = kind(counting_app())
    at_first_commit: list[int] = []

    def look(point: FaultPoint) -> None:
        if point is FaultPoint.GROUP_FILLED:
            at_first_commit.append(len(invoker.activities_run))

    async with running(tmp_path, invoker, look) as hub:
        await hub.tasks.start(Start("one", "counted"))
        await hub.tasks.wait_finished("one")
    assert at_first_commit == runs


async def test_a_chain_without_end_keeps_nobody_from_a_commit(tmp_path: Path) -> None:
    async with running(tmp_path, AppInvoker(counting_app()), lambda _: None) as hub:
        await hub.tasks.start(Start("round", "for_ever", input="0"))
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
