"""A store of an earlier form is taken over with all that it holds."""

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onebox.hub.database import open_writer
from onebox.hub.listing import InstanceFilter
from onebox.hub.model import Start
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE
_BACK_TO_FORM_1 = (Path(__file__).parent / "form_1.sql").read_text(encoding="utf-8")
COUNTER = "@counter@scheduled"


def _schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()


async def _filled_store(folder: Path) -> None:
    """A finished orchestration, one that waits for an event, one for a timer, and an entity."""
    async with running_hub(folder, make_app()) as hub:
        await hub.tasks.start(Start("done", "chain", input="1"))
        await hub.tasks.start(Start("waiting", "wait_for_go"))
        await hub.tasks.start(Start("sleeping", "sleeper", input="0.3"))
        await hub.tasks.signal_entity(COUNTER, "add", "1")
        await hub.tasks.wait_finished("done")
        await hub.tasks.wait_started("waiting")
        await hub.tasks.wait_started("sleeping")
    with closing(sqlite3.connect(folder / "hub.db", isolation_level=None)) as db:
        db.executescript(_BACK_TO_FORM_1)


async def test_a_store_of_form_1_goes_on(tmp_path: Path) -> None:
    await _filled_store(tmp_path)
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.raise_event("waiting", "go", '"hello"')
        assert (await hub.tasks.wait_finished("waiting")).output == '"hello"'
        assert (await hub.tasks.wait_finished("sleeping")).output == '"rested"'
        done = hub.tasks.get("done")
        assert done is not None
        assert done.output == "8"
        counter = hub.tasks.get_entity(COUNTER)
        assert counter is not None
        assert counter.state == "1"
        listed = hub.tasks.query(InstanceFilter(), None, None).items
        assert [state.id for state in listed] == ["done", "waiting", "sleeping"]


async def test_a_store_of_form_1_becomes_like_a_new_one(tmp_path: Path) -> None:
    await _filled_store(tmp_path)
    open_writer(tmp_path / "hub.db").close()
    open_writer(tmp_path / "new.db").close()
    assert _schema(tmp_path / "hub.db") == _schema(tmp_path / "new.db")


async def test_a_store_that_cannot_be_taken_over_is_left_as_it_was(tmp_path: Path) -> None:
    await _filled_store(tmp_path)
    path = tmp_path / "hub.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE old_entities (id)")  # in the way of the last step but two
    before = _schema(path)
    with pytest.raises(sqlite3.OperationalError, match="old_entities"):
        open_writer(path)
    assert _schema(path) == before


def _pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        count: int = db.execute("PRAGMA page_count").fetchone()[0]
        return count


async def _purge_everything(folder: Path) -> tuple[int, int]:
    """Finish 120 instances of 100 KB each and purge them; return the pages before and after."""
    async with running_hub(folder, make_app()) as hub:
        ids = [f"big-{number}" for number in range(120)]
        for one in ids:
            await hub.tasks.start(
                Start(one, "sleeper", input="0", tags=json.dumps({"padding": "x" * 100_000}))
            )
        for one in ids:
            await hub.tasks.wait_finished(one)
        before = _pages(folder / "hub.db")
        for one in ids:
            assert await hub.tasks.purge([one]) == 1
        return before, _pages(folder / "hub.db")


async def test_a_purge_gives_pages_back(tmp_path: Path) -> None:
    before, after = await _purge_everything(tmp_path)
    assert before > 2_800
    assert after < 1_500, "a thousand free pages stay for the next rows"


async def test_a_file_that_cannot_shrink_is_rewritten_with_all_that_it_holds(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()) as hub:
        await hub.tasks.start(Start("done", "chain", input="1"))
        await hub.tasks.wait_finished("done")
    with closing(sqlite3.connect(tmp_path / "hub.db", isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM;")
    async with running_hub(tmp_path, make_app()) as hub:
        done = hub.tasks.get("done")
        assert done is not None
        assert done.output == "8"
    before, after = await _purge_everything(tmp_path)
    assert after < 1_500 < before


class FullDisk(sqlite3.Connection):
    """A connection that finds no room to rewrite the file."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "VACUUM":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, *parameters)


def test_a_file_that_cannot_be_rewritten_is_used_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hub.db"
    open_writer(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM;")
    monkeypatch.setattr("onebox.hub.database.sqlite3.connect", partial(sqlite3.connect, factory=FullDisk))
    with closing(open_writer(path)) as db:
        assert db.execute("SELECT count(*) FROM instances").fetchone() == (0,)
    assert "does not shrink before a later start: database or disk is full" in caplog.text
