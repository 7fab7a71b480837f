"""The store's file: what it refuses to open, and how it shrinks."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onebox.hub.database import open_writer
from onebox.hub.model import Start, StoreUnusableError
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE


def test_a_store_of_a_later_form_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE unheard_of (id)")
        db.execute("PRAGMA user_version = 2")
    before = path.read_bytes()[100:]  # what follows the file's header, which says that it has a log
    with pytest.raises(StoreUnusableError, match=r"\(form 2, this one reads up to 1\)"):
        open_writer(path)
    assert path.read_bytes()[100:] == before


def _pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        count: int = db.execute("PRAGMA page_count").fetchone()[0]
        return count


async def test_a_purge_gives_pages_back(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app()) as hub:
        ids = [f"big-{number}" for number in range(120)]
        for one in ids:
            padding = json.dumps({"padding": "x" * 100_000})
            await hub.tasks.start(Start(one, "sleeper", input="0", tags=padding))
        for one in ids:
            await hub.tasks.wait_finished(one)
        assert _pages(tmp_path / "hub.db") > 2_800
        for one in ids:
            assert await hub.tasks.purge([one]) == 1
        assert _pages(tmp_path / "hub.db") < 1_500, "a thousand free pages stay for the next rows"
