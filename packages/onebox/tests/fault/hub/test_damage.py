"""A store with a damaged page: nothing runs hot, and it works or says that it is damaged."""

import asyncio
import io
import json
import logging
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onebox.clock import SystemClock
from onebox.hub import Hub, HubSettings, StoreUnusableError
from onebox.hub.export import export
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


def offset_of(store: Path, place: int) -> int:
    pages = store.stat().st_size // PAGE_BYTES
    return pages * place // PLACES * PAGE_BYTES


def damage(store: Path, place: int) -> None:
    with store.open("r+b") as file:
        file.seek(offset_of(store, place))
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


def exported(store: Path) -> tuple[list[dict[str, Any]], int]:
    lines = io.StringIO()
    lost = export(store, lines)
    return [json.loads(line) for line in lines.getvalue().splitlines()], lost


def rows_on(store: Path, place: int) -> int | None:
    """Return how many rows lie on the page at a place; None where other pages hang on it."""
    page = store.read_bytes()[offset_of(store, place) :][:PAGE_BYTES]
    match page[0]:
        case 0x0D:  # a leaf of a table: the number of its cells follows
            return int.from_bytes(page[3:5])
        case 0x05 | 0x53:  # an inner page of a table; the file's first page, which begins with "SQLite"
            return None
        case _:  # of an index, free, or the rest of one long row
            return 1


@pytest.mark.parametrize("place", range(PLACES))
async def test_what_a_damaged_page_does_not_hold_is_exported(tmp_path: Path, place: int) -> None:
    _runs.clear()
    await filled(tmp_path, make_app())
    store = tmp_path / "hub.db"
    whole, lost = exported(store)
    assert lost == 0
    assert len([each for each in whole if "instance" in each]) == INSTANCES
    assert len([each for each in whole if "entity" in each]) == INSTANCES
    rows = rows_on(store, place)
    damage(store, place)
    try:
        saved, lost = exported(store)
    except sqlite3.DatabaseError:
        assert place == 0, "only without the first page nothing can be found"
        return
    missing = len(whole) - len(saved)
    assert rows is None or missing <= rows
    assert lost > 0 or saved == whole
