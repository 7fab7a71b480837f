"""What a transaction wakes joins a group: a chain of turns and batches is one commit."""

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
from tests.support.onebox.backends import SDK_NOTICE
from tests.support.onebox.durable_app import App, AppInvoker

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


class SlowInvoker(AppInvoker):
    """Has functions that may have to be waited for."""

    def is_immediate(self, name: str, *, is_entity: bool) -> bool:  # noqa: ARG002 # all of them
        return False


@asynccontextmanager
async def running(
    folder: Path, invoker: AppInvoker, faults: Callable[[FaultPoint], None]
) -> AsyncIterator[Hub]:
    hub = Hub(folder / "hub.db", invoker, SystemClock(), HubSettings(stop_seconds=0.2), faults)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


@pytest.mark.parametrize(("invoker", "commits"), [(AppInvoker, 3), (SlowInvoker, 8)])
async def test_only_what_has_to_be_waited_for_ends_a_commit(
    tmp_path: Path, invoker: type[AppInvoker], commits: int
) -> None:
    """The start is one; turn, entity, turn are the next; the activity's result, turn, entity the last.

    With functions that have to be waited for nothing follows the start: its second group is empty.
    """
    visits: Counter[FaultPoint] = Counter()
    async with running(tmp_path, invoker(counting_app()), lambda point: visits.update([point])) as hub:
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        counter = hub.tasks.get_entity(COUNTER)
        assert counter is not None
        assert counter.state == "3"
    assert visits[FaultPoint.GROUP_COMMITTED] == commits
    assert (visits[FaultPoint.TURN_COMMITTED], visits[FaultPoint.BATCH_COMMITTED]) == (3, 2)


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
    tmp_path: Path, point: FaultPoint, visit: int
) -> None:
    visits: Counter[FaultPoint] = Counter()

    def strike(at: FaultPoint) -> None:
        visits.update([at])
        if at is point and visits[at] == visit:
            raise RuntimeError("cut")

    invoker = AppInvoker(counting_app())
    async with running(tmp_path, invoker, strike) as hub:
        if (point, visit) == (FaultPoint.GROUP_FILLED, 1):
            with pytest.raises(RuntimeError):
                await hub.tasks.start(Start("one", "counted"))
            assert (hub.tasks.get("one"), hub.tasks.get_entity(COUNTER)) == (None, None)
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
        await hub.settled()
        counter = hub.tasks.get_entity(COUNTER)
        assert counter is not None
        assert counter.state == "3", "each operation counted once"
    assert len(invoker.activities_run) == 1
    assert visits[point] > visit


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


async def test_nothing_runs_outside_before_the_commit(tmp_path: Path) -> None:
    invoker = AppInvoker(counting_app())
    at_first_commit: list[int] = []

    def look(point: FaultPoint) -> None:
        if point is FaultPoint.GROUP_FILLED:
            at_first_commit.append(len(invoker.activities_run))

    async with running(tmp_path, invoker, look) as hub:
        await hub.tasks.start(Start("one", "counted"))
        await hub.tasks.wait_finished("one")
    assert at_first_commit == [0, 0, 1]


async def test_a_chain_without_end_keeps_nobody_from_a_commit(tmp_path: Path) -> None:
    async with running(tmp_path, AppInvoker(counting_app()), lambda _: None) as hub:
        await hub.tasks.start(Start("round", "for_ever", input="0"))
        await hub.tasks.start(Start("one", "counted"))
        assert (await hub.tasks.wait_finished("one")).output == "2"
