"""Finished instances are packed in the background; whoever asks for them sees no difference."""

import asyncio
import json
import random
import sqlite3
import string
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from onebox.hub import Hub, HubSettings
from onebox.hub.listing import InstanceFilter
from onebox.hub.model import Start, Status
from tests.support.onebox.backends import SDK_NOTICE, running_hub
from tests.support.onebox.sample_app import make_app

pytestmark = SDK_NOTICE
AT_ONCE = HubSettings(archive_after_seconds=0)
NEVER = HubSettings(archive_after_seconds=3600)


def rows(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "hub.db")) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our own words


async def until_packed(folder: Path, count: int) -> None:
    async with asyncio.timeout(60):
        while rows(folder, "archives") != count:  # noqa: ASYNC110 - another connection's state: there is no event
            await asyncio.sleep(0.02)


@pytest.fixture
async def packed_hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub that packs at once, with one instance that has succeeded and one that has failed."""
    async with running_hub(tmp_path, make_app(), settings=AT_ONCE) as hub:
        await hub.tasks.start(Start("done", "chain", input="1"))
        await hub.tasks.start(Start("bad", "flaky", input='"x"', tags='{"a": "b"}'))
        for one in ("done", "bad"):
            await hub.tasks.wait_finished(one)
        await until_packed(tmp_path, 2)
        yield hub


async def test_an_instance_is_read_as_before(tmp_path: Path) -> None:
    async with running_hub(tmp_path, make_app(), settings=NEVER) as hub:
        await hub.tasks.start(Start("done", "chain", input="1"))
        await hub.tasks.wait_finished("done")
        before = hub.tasks.get("done"), hub.tasks.history("done")
        assert rows(tmp_path, "archives") == 0
    async with running_hub(tmp_path, make_app(), settings=AT_ONCE) as hub:
        await until_packed(tmp_path, 1)
        assert (hub.tasks.get("done"), hub.tasks.history("done")) == before
        assert rows(tmp_path, "history") == 0


async def test_a_list_shows_what_is_packed(packed_hub: Hub) -> None:
    listed = packed_hub.tasks.query(InstanceFilter(), None, None).items
    assert [(one.id, one.input) for one in listed] == [("done", "1"), ("bad", '"x"')]
    light = packed_hub.tasks.query(InstanceFilter(), None, None, with_payloads=False).items
    assert [(one.id, one.input, one.output) for one in light] == [("done", None, None), ("bad", None, None)]


async def test_a_packed_instance_can_be_restarted(packed_hub: Hub) -> None:
    new_id = await packed_hub.tasks.restart("done", with_new_id=True)
    assert (await packed_hub.tasks.wait_finished(new_id)).output == "8"
    await packed_hub.tasks.restart("done", with_new_id=False)
    assert (await packed_hub.tasks.wait_finished("done")).output == "8"


async def test_a_packed_instance_gives_way_to_a_start_under_its_id(packed_hub: Hub, tmp_path: Path) -> None:
    await packed_hub.tasks.start(Start("done", "chain", input="2"))
    again = await packed_hub.tasks.wait_finished("done")
    assert (again.input, again.output) == ("2", "16")
    await until_packed(tmp_path, 2)


async def test_a_packed_instance_can_be_purged(packed_hub: Hub, tmp_path: Path) -> None:
    assert await packed_hub.tasks.purge(["done", "bad"]) == 2
    assert packed_hub.tasks.get("done") is None
    assert [rows(tmp_path, table) for table in ("instances", "archives", "history")] == [0, 0, 0]


async def test_a_packed_failure_can_be_rewound(packed_hub: Hub, tmp_path: Path) -> None:
    bad = packed_hub.tasks.get("bad")
    assert bad is not None
    assert bad.status is Status.FAILED
    await packed_hub.tasks.rewind("bad", "try again")
    again = await packed_hub.tasks.wait_finished("bad")
    assert again.status is Status.COMPLETED
    assert again.input == '"x"'
    await until_packed(tmp_path, 2)


async def test_a_finished_instance_takes_little_room(tmp_path: Path) -> None:
    """Its output is a kilobyte, and its history has that once more."""
    count = 300
    async with running_hub(tmp_path, make_app(), settings=AT_ONCE) as hub:
        for number in range(count):
            text = "".join(random.Random(number).choices(string.ascii_lowercase + "     ", k=120))  # noqa: S311 - a text
            await hub.tasks.start(Start(f"op-{number}", "chain", input=json.dumps(text)))
        for number in range(count):
            await hub.tasks.wait_finished(f"op-{number}")
        await until_packed(tmp_path, count)
    with closing(sqlite3.connect(tmp_path / "hub.db")) as db:
        used = db.execute("SELECT sum(pgsize) FROM dbstat WHERE name NOT LIKE 'sqlite_schema'").fetchone()[0]
    assert used / count < 2_000
