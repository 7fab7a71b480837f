"""A store with a damaged page: nothing runs hot, and it works or says that it is damaged."""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onebox.clock import SystemClock
from onebox.hub import Hub, HubSettings, StoreUnusableError
from onebox.hub.model import HubError, Start, Status
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.durable_app import App, AppInvoker

pytestmark = [SDK_NOTICE, pytest.mark.long]
INSTANCES = 60
PAGE_BYTES = 4096
PLACES = 10
WATCHED_SECONDS = 2.0
MOST_RUNS = 6  # of one activity within that time, with pauses of 0.1 s, 0.2 s, 0.4 s and so on
MOST_LINES = 30

_runs: Counter[str] = Counter()


def make_app() -> App:
    app = App()

    @app.activity
    def work(name: str) -> str:
        _runs[name] += 1
        return name + "x" * 300

    @app.entity
    def total(context: Any, amount: int) -> None:
        context.set_state("y" * 300 + str(amount))

    @app.orchestrator
    def main(context: Any, name: str) -> Any:
        yield context.call_activity("work", input=name)
        event = yield context.wait_for_external_event("go")
        yield context.call_activity("work", input=f"{name} {event}")

    return app


async def filled(folder: Path, app: App) -> None:
    async with running_hub(folder, app) as hub, asyncio.timeout(60):
        for number in range(INSTANCES):
            await hub.tasks.start(Start(f"i{number}", "main", input=f'"i{number}"'))
            await hub.tasks.signal_entity(f"@total@{number}", "add", "1")
        while len(_runs) < INSTANCES:  # noqa: ASYNC110 - a test polls
            await asyncio.sleep(0.01)
        await hub.settled()


def damage(store: Path, place: int) -> None:
    pages = store.stat().st_size // PAGE_BYTES
    with store.open("r+b") as file:
        file.seek(pages * place // PLACES * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)


async def ask_for_more(hub: Hub) -> None:
    for number in range(INSTANCES):
        for call in (
            hub.tasks.raise_event(f"i{number}", "go", '"on"'),
            hub.tasks.start(Start(f"new{number}", "main", input=f'"new{number}"')),
            hub.tasks.signal_entity(f"@total@{number}", "add", "1"),
        ):
            try:
                await call
            except HubError:
                assert hub.trouble


def all_have_ended(hub: Hub) -> bool:
    states = [hub.tasks.get(f"i{number}") for number in range(INSTANCES)]
    return all(state is not None and state.status is Status.COMPLETED for state in states)


@pytest.mark.parametrize("place", range(PLACES))
async def test_a_damaged_page_is_survived_or_said_and_no_work_runs_hot(
    tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    _runs.clear()
    app = make_app()
    await filled(tmp_path, app)
    damage(tmp_path / "hub.db", place)
    _runs.clear()
    caplog.clear()
    hub = Hub(tmp_path / "hub.db", AppInvoker(app), SystemClock(), HubSettings(stop_seconds=0.1))
    try:
        await hub.start()
    except StoreUnusableError:
        return  # it said so
    try:
        await ask_for_more(hub)
        await asyncio.sleep(WATCHED_SECONDS)  # long enough for a hot loop to show
        assert hub.trouble or all_have_ended(hub)
        assert max(_runs.values(), default=0) <= MOST_RUNS
        assert len([each for each in caplog.records if each.levelno > logging.INFO]) <= MOST_LINES
    finally:
        await hub.stop()
