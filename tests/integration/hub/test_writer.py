"""Group commit on a real file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onebox.clock import ManualClock
from onebox.hub.faults import FaultPoint
from onebox.hub.model import Effects, Kind
from onebox.hub.store.database import open_reader, open_writer
from onebox.hub.store.transaction import Transaction
from onebox.hub.store.writer import Writer

ENTITY = "@counter@a"


class Setting:
    """A writer on a file, with everything that it says."""

    def __init__(self, path: Path) -> None:
        self.applied: list[Effects] = []
        self.lost = 0
        self.groups = 0
        self.raise_at: FaultPoint | None = None
        self.db = open_writer(path)
        self.reader = open_reader(path)
        self.writer = Writer(
            self.db,
            ManualClock(),
            apply=self.applied.append,
            lost=self._count_lost,
            faults=self._pass,
            first_seq=0,
        )

    def _count_lost(self) -> None:
        self.lost += 1

    def _pass(self, point: FaultPoint) -> None:
        self.groups += point is FaultPoint.GROUP_COMMITTED
        if point is self.raise_at:
            self.raise_at = None
            raise RuntimeError(point)

    def stored(self) -> int:
        count: int = self.reader.execute("SELECT count(*) FROM messages").fetchone()[0]
        return count


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    made = Setting(tmp_path / "hub.db")
    yield made
    await made.writer.close()
    made.reader.close()
    made.db.close()


def post(tx: Transaction) -> None:
    tx.post(ENTITY, Kind.OPERATION, b"")


def post_and_fail(tx: Transaction) -> None:
    post(tx)
    raise LookupError("no")


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


async def test_what_refuses_one_is_durable_before_that_one_is_told(setting: Setting) -> None:
    """It may be refused for what another one of its group has written: "it exists" must not come early."""

    async def stored_when_told() -> int:
        with pytest.raises(LookupError):
            await setting.writer.commit(post_and_fail)
        return setting.stored()

    _, stored = await asyncio.gather(setting.writer.commit(post), stored_when_told())
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


async def test_effects_that_are_lost_after_the_commit_are_told(setting: Setting) -> None:
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


async def test_a_commit_is_durable_before_it_is_answered(setting: Setting) -> None:
    (journal,) = setting.db.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = setting.db.execute("PRAGMA synchronous").fetchone()
    assert (journal, synchronous) == ("wal", 2)


async def test_a_reader_cannot_write(setting: Setting) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        setting.reader.execute("DELETE FROM messages")
