"""Group commit on a real file."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onebox.faults import FaultPoint
from onebox.hub.database import Transaction
from onebox.hub.model import Kind, StoreUnwritableError
from tests.support.onebox.writer import ENTITY, Setting, post, post_and_fail


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    made = Setting(tmp_path / "hub.db")
    yield made
    await made.close()


async def test_what_is_ready_together_is_synced_together(setting: Setting) -> None:
    await asyncio.gather(*(setting.writer.commit(post) for _ in range(100)))
    assert setting.stored() == 100
    assert setting.groups == 1
    assert len(setting.applied) == 100


async def test_one_that_fails_does_not_spoil_the_others(setting: Setting) -> None:
    results = await asyncio.gather(
        setting.writer.commit(post),
        setting.writer.commit(post_and_fail),
        setting.writer.commit(post),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), LookupError, type(None)]
    assert setting.stored() == 2
    assert len(setting.applied) == 2


async def test_only_a_group_in_which_one_fails_after_it_has_written_runs_again(setting: Setting) -> None:
    runs = 0

    def count_and_post(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        post(tx)
        return runs

    def refuse(_: Transaction) -> None:
        raise LookupError("no")

    first = await asyncio.gather(
        setting.writer.commit(count_and_post), setting.writer.commit(refuse), return_exceptions=True
    )
    assert (first[0], runs) == (1, 1), "nothing had to be undone"
    again = await asyncio.gather(
        setting.writer.commit(count_and_post), setting.writer.commit(post_and_fail), return_exceptions=True
    )
    assert (again[0], runs) == (3, 3)
    assert [type(each) for each in (first[1], again[1])] == [LookupError, LookupError]
    assert setting.stored() == 2


async def test_what_refuses_one_is_durable_before_that_one_is_refused(setting: Setting) -> None:
    """It may be refused for what another one of its group has written: "it exists" must not come early."""

    async def stored_when_refused() -> int:
        with pytest.raises(LookupError):
            await setting.writer.commit(post_and_fail)
        return setting.stored()

    _, stored = await asyncio.gather(setting.writer.commit(post), stored_when_refused())
    assert stored == 1


async def test_a_refusal_in_a_group_that_is_not_committed_does_not_stand(setting: Setting) -> None:
    setting.raise_at = FaultPoint.GROUP_FILLED
    with pytest.raises(RuntimeError):
        await setting.writer.commit(post_and_fail)


async def test_a_group_that_is_not_committed_leaves_nothing(setting: Setting) -> None:
    setting.raise_at = FaultPoint.GROUP_FILLED
    with pytest.raises(RuntimeError):
        await setting.writer.commit(post)
    assert setting.stored() == 0
    assert setting.applied == []
    await setting.writer.commit(post)
    assert setting.stored() == 1


async def test_effects_that_are_lost_after_the_commit_are_reported(setting: Setting) -> None:
    setting.raise_at = FaultPoint.GROUP_COMMITTED
    with pytest.raises(RuntimeError):
        await setting.writer.commit(post)
    assert setting.stored() == 1
    assert setting.lost == 1


async def test_a_caller_that_goes_away_does_not_undo_its_transaction(setting: Setting) -> None:
    caller = asyncio.create_task(setting.writer.commit(post))
    await asyncio.sleep(0)
    caller.cancel()
    await setting.writer.commit(post)
    assert setting.stored() == 2
    assert len(setting.applied) == 2


async def test_closing_finishes_what_waits(setting: Setting) -> None:
    commits = [asyncio.create_task(setting.writer.commit(post)) for _ in range(10)]
    await asyncio.sleep(0)
    await setting.writer.close()
    await asyncio.gather(*commits)
    assert setting.stored() == 10


class Disk:
    """The writing connection with commits that take as long as a test says, by a clock of its own."""

    def __init__(self, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._db = db
        self.commit_seconds = 0.0
        self.inline: list[bool] = []
        self._seconds = 0.0
        self._loop_thread = threading.current_thread()
        monkeypatch.setattr("onebox.hub.writer.time.perf_counter", lambda: self._seconds)

    def commit(self) -> None:
        self._seconds += self.commit_seconds
        self.inline.append(threading.current_thread() is self._loop_thread)
        self._db.commit()

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


async def test_a_slow_disk_does_not_hold_up_the_event_loop(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(setting.db, monkeypatch)
    monkeypatch.setattr(setting.writer, "_db", disk)
    disk.commit_seconds = 0.5
    for _ in range(11):
        await setting.writer.commit(post)
    assert disk.inline == [True, True, *8 * [False], True]
    disk.commit_seconds, disk.inline = 0.0005, []
    for _ in range(20):
        await setting.writer.commit(post)
    assert disk.inline == [*16 * [False], *4 * [True]]
    assert setting.stored() == 31


async def test_one_slow_commit_among_quick_ones_changes_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(setting.db, monkeypatch)
    monkeypatch.setattr(setting.writer, "_db", disk)
    for number in range(10):
        disk.commit_seconds = 0.5 if number % 2 else 0.0005
        await setting.writer.commit(post)
    assert all(disk.inline)


async def test_a_commit_is_durable_before_it_is_answered(setting: Setting) -> None:
    (journal,) = setting.db.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = setting.db.execute("PRAGMA synchronous").fetchone()
    assert (journal, synchronous) == ("wal", 2)


async def test_a_reader_cannot_write(setting: Setting) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        setting.reader.execute("DELETE FROM messages")


def fill(setting: Setting) -> None:
    """Let the store's file grow no further."""
    (pages,) = setting.db.execute("PRAGMA page_count").fetchone()
    setting.db.execute(f"PRAGMA max_page_count = {pages}")


def make_room(setting: Setting) -> None:
    setting.db.execute("PRAGMA max_page_count = 1000000")


def post_much(tx: Transaction) -> None:
    tx.post(ENTITY, Kind.OPERATION, b"x" * 100_000)


async def test_on_a_full_disk_a_request_is_refused_and_work_waits_for_room(setting: Setting) -> None:
    await setting.writer.commit(post)
    fill(setting)
    with pytest.raises(StoreUnwritableError, match="database or disk is full"):
        await setting.writer.commit(post_much)
    assert "disk is full" in setting.writer.outage.reason
    working = asyncio.create_task(setting.writer.commit_surely(post_much))
    await asyncio.sleep(0)
    make_room(setting)
    await setting.until_writable()
    await working
    assert setting.stored() == 2
    assert setting.outages == [True, False]
    assert setting.lost == 0


async def test_a_lock_of_another_process_does_not_stop_the_loop(setting: Setting, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "hub.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreUnwritableError, match="database is locked"):
        await setting.writer.commit(post)
    assert time.monotonic() - began < 4  # SQLite itself would wait for 5 s
    other.execute("ROLLBACK")
    other.close()
    await setting.until_writable()
    await setting.writer.commit(post)
    assert setting.stored() == 1


async def test_a_mistake_in_a_statement_is_no_outage(setting: Setting) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await setting.writer.commit(lambda tx: tx.db.execute("SELECT * FROM nowhere"))
    assert setting.writer.outage.reason == ""
