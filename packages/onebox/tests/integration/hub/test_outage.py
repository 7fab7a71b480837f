"""A disk without room: what has run is not run again, and the hub goes on when there is room."""

import asyncio
from pathlib import Path
from typing import Any

from durabletask import task

from onebox.clock import SystemClock
from onebox.hub import Hub
from onebox.hub.model import Start, Status
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.durable_app import App

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

    async with running_hub(tmp_path, app, SystemClock()) as hub, asyncio.timeout(60):
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
        assert hub.trouble == ""
