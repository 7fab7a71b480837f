"""A disk without room: what has run is not run again, and the hub goes on when there is room."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from durabletask import task

from onebox.clock import ManualClock, SystemClock
from onebox.faults import FaultPoint
from onebox.hub import Hub, HubSettings, StoreUnusableError
from onebox.hub.database import find_damage
from onebox.hub.model import FencedError, Lane, Start, Status, StoreUnwritableError
from onebox.hub.outage import Outage
from onebox.hub.reading import Reader
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.durable_app import App, AppInvoker, WaitingInvoker

pytestmark = SDK_NOTICE
PARALLEL = 10


def leave_room(hub: Hub, pages: int) -> None:
    """Let the store's file grow by so many pages of 4 KB and no further."""
    assert hub._engine is not None
    db = hub._engine.writer._db
    (now,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {now + pages}")


async def test_activities_run_once_however_long_their_results_cannot_be_stored(tmp_path: Path) -> None:
    app = App()
    runs: list[Any] = []

    @app.activity
    def large(number: int) -> str:
        runs.append(number)
        return "x" * 100_000

    @app.orchestrator
    def fan_out(context: Any, _: Any) -> Any:
        results = yield task.when_all([context.call_activity("large", input=n) for n in range(PARALLEL)])
        return len(results)

    async with running_hub(tmp_path, app) as hub, asyncio.timeout(60):
        leave_room(hub, 30)
        await hub.tasks.start(Start("full", "fan_out"))
        while not hub.trouble:  # noqa: ASYNC110 - a test polls
            await asyncio.sleep(0.01)
        for _ in range(20):  # the hub tries again meanwhile
            await asyncio.sleep(0.01)
            assert len(runs) == len(set(runs))
        leave_room(hub, 1_000_000)
        state = await hub.tasks.wait_finished("full")
        assert (state.status, state.output) == (Status.COMPLETED, str(PARALLEL))
        assert sorted(runs) == list(range(PARALLEL))


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.shows("R3")
async def test_an_outage_in_which_small_writes_succeed_is_one_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a full disk the small write that looks for room succeeds, and the large one after it fails."""
    clock, begun = ManualClock(), list[float]()

    def note(*, outage: bool) -> None:
        if outage:
            begun.append(clock.monotonic())

    async def attempt() -> None:
        outage.end()

    outage = Outage(clock, attempt, note)
    for _ in range(5):
        outage.begin(sqlite3.OperationalError("database or disk is full"))
        await settle()
        assert clock.next_due is not None
        clock.advance_to(clock.next_due)
        await settle()
        assert outage.reason
    assert begun == pytest.approx([0, 0.1, 0.3, 0.7, 1.5])
    clock.advance(timedelta(seconds=5))
    await settle()
    assert outage.reason == ""
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    await outage.close()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
@pytest.mark.parametrize("point", [FaultPoint.GROUP_FILLED, FaultPoint.ACTIVITY_ANSWERED])
async def test_a_damaged_store_is_a_lasting_outage_and_nothing_runs_again(
    tmp_path: Path, point: FaultPoint, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    runs: list[Any] = []

    @app.activity
    def work(number: int) -> None:
        runs.append(number)

    @app.orchestrator
    def main(context: Any, _: Any) -> Any:
        yield context.call_activity("work", input=1)

    def damage(reached: FaultPoint) -> None:
        if runs and reached is point:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = code
            raise error

    async with running_hub(tmp_path, app, settings=HubSettings(stop_seconds=0.1), faults=damage) as hub:
        async with asyncio.timeout(30):
            await hub.tasks.start(Start("damaged", "main"))
            while not hub.trouble:  # noqa: ASYNC110 - a test polls
                await asyncio.sleep(0.01)
            for _ in range(20):  # what is tried again is so within 0.1 s
                await asyncio.sleep(0.01)
            with pytest.raises(StoreUnwritableError, match="is damaged"):
                await hub.tasks.start(Start("later", "main"))
            assert runs == [1]
            assert "is damaged: database disk image is malformed" in hub.trouble
            assert len([each for each in caplog.records if each.levelname != "INFO"]) == 1


@pytest.mark.parametrize("lost", ["hub.db", "hub.db-wal"])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_store_that_is_deleted_is_noticed_and_takes_no_more_work(
    tmp_path: Path, lost: str, *, is_replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.orchestrator
    def nothing(_: Any, __: Any) -> None:
        return

    async with running_hub(tmp_path, app, settings=HubSettings(stop_seconds=0.1)) as hub:
        await hub.tasks.start(Start("before", "nothing"))
        await hub.tasks.wait_finished("before")
        assert hub.trouble == ""
        (tmp_path / lost).unlink()
        if is_replaced:
            (tmp_path / lost).write_bytes(b"")
        assert f"{lost} was deleted or replaced" in hub.trouble
        for name in ("after", "later"):
            with pytest.raises(StoreUnwritableError, match="is gone"):
                await hub.tasks.start(Start(name, "nothing"))
        assert len([each for each in caplog.records if each.levelname != "INFO"]) == 1


@pytest.mark.parametrize("point", [FaultPoint.GROUP_FILLED, FaultPoint.ACTIVITY_ANSWERED])
async def test_an_error_of_any_kind_repeats_work_no_sooner_than_after_a_pause(
    tmp_path: Path, point: FaultPoint
) -> None:
    app = App()
    runs: list[Any] = []

    @app.activity
    def work(number: int) -> None:
        runs.append(number)

    @app.orchestrator
    def main(context: Any, _: Any) -> Any:
        yield task.when_all([context.call_activity("work", input=each) for each in (1, 2)])

    def fail(reached: FaultPoint) -> None:
        if runs and reached is point:
            raise RuntimeError("a kind that nobody foresaw")

    async with running_hub(tmp_path, app, ManualClock(), HubSettings(stop_seconds=0.1), faults=fail) as hub:
        async with asyncio.timeout(10):
            await hub.tasks.start(Start("failing", "main"))
            while len(runs) < 2:  # noqa: ASYNC110 - a test polls
                await asyncio.sleep(0.01)
            await hub.settled()
        assert sorted(runs) == [1, 2]  # the clock stands still


@pytest.mark.parametrize("point", [FaultPoint.BATCH_ANSWERED, FaultPoint.BATCH_WRITTEN])
@pytest.mark.parametrize("error", [FencedError("overtaken"), RuntimeError("a kind that nobody foresaw")])
@pytest.mark.shows("R1")
async def test_what_fails_keeps_its_pause_while_more_comes_for_it(
    tmp_path: Path, point: FaultPoint, error: Exception
) -> None:
    clock, app, runs = ManualClock(), App(), []

    @app.entity
    def total(context: Any, amount: int) -> None:
        runs.append(amount)
        context.set_state(amount)

    def fail(reached: FaultPoint) -> None:
        if reached is point:
            raise error

    settings = HubSettings(stop_seconds=0.1)
    async with running_hub(tmp_path, WaitingInvoker(app), clock, settings, faults=fail) as hub:
        async with asyncio.timeout(10):
            for amount in range(5):
                await hub.tasks.signal_entity("@total@1", "add", str(amount))
                await hub.settled()
            assert runs == [0]
            ran = []
            for milliseconds in (100, 100, 100, 100, 100, 100, 100):
                clock.advance(timedelta(milliseconds=milliseconds))
                await hub.settled()
                ran.append(runs.count(0))
            assert ran == [2, 2, 3, 3, 3, 3, 4]  # after 0.1 s, 0.2 s and 0.4 s


@pytest.mark.shows("R2")
async def test_a_store_that_cannot_be_looked_at_anew_is_asked_later_each_time(tmp_path: Path) -> None:
    clock, looks = ManualClock(), []

    class BrokenReader(Reader):
        def ready_targets(self, now_us: int) -> list[tuple[str, Lane]]:
            looks.append(now_us // 1000)
            raise sqlite3.OperationalError("a kind that nobody foresaw")

    async with running_hub(tmp_path, App(), clock, HubSettings(stop_seconds=0.1)) as hub:
        assert hub._engine is not None
        hub._engine._reader.__class__ = BrokenReader
        hub._engine._lose()
        async with asyncio.timeout(10):
            for _ in range(8):
                await hub.settled()
                clock.advance(timedelta(milliseconds=100))
    assert [look - looks[0] for look in looks] == [0, 100, 300, 700]


async def test_a_store_that_cannot_be_read_at_the_start_names_the_way_out(tmp_path: Path) -> None:
    async with running_hub(tmp_path, App()):
        pass
    store = tmp_path / "hub.db"
    assert list(find_damage(store)) == []
    with closing(sqlite3.connect(store)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'activities'").fetchone()
    with store.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xa5" * 4096)
    hub = Hub(store, AppInvoker(App()), SystemClock())
    with pytest.raises(StoreUnusableError, match=r'malformed.*see docs/onebox.md, "A damaged store"'):
        await hub.start()
    assert list(find_damage(store)) != []
