"""A store of an earlier form is taken over with all that it holds."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onebox.hub.database import open_writer
from onebox.hub.model import Start
from onebox.hub.reading import InstanceFilter
from tests.integration.hub.backends import SDK_NOTICE, running_hub
from tests.integration.hub.sample_app import make_app

pytestmark = SDK_NOTICE
_BACK_TO_FORM_1 = (Path(__file__).parent / "form_1.sql").read_text(encoding="utf-8")
TALLY = "@counter@scheduled"


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
        await hub.tasks.signal_entity(TALLY, "add", "1")
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
        tally = hub.tasks.get_entity(TALLY)
        assert tally is not None
        assert tally.state == "1"
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
    with pytest.raises(sqlite3.OperationalError):
        open_writer(path)
    assert _schema(path) == before
