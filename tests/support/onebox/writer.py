"""A writer of a hub's store on a file, and what it commits."""

import asyncio
from datetime import timedelta
from pathlib import Path

from onebox.clock import ManualClock
from onebox.faults import FaultPoint
from onebox.hub.database import Transaction, open_reader, open_writer
from onebox.hub.group import Followers
from onebox.hub.model import Effects, Kind
from onebox.hub.writer import Writer

ENTITY = "@counter@a"


class Setting:
    """A writer on a file, with everything that it says."""

    def __init__(
        self,
        path: Path,
        *,
        head_start_seconds: float = 0.0,
        ride_seconds: float = 0.0,
        followers: Followers | None = None,
    ) -> None:
        self.applied: list[Effects] = []
        self.lost = 0
        self.outages: list[bool] = []
        self.clock = ManualClock()
        self.groups = 0
        self.raise_at: FaultPoint | None = None
        self.db = open_writer(path)
        self.reader = open_reader(path)
        self.writer = Writer(
            self.db,
            self.clock,
            apply=self.applied.append,
            lost=self._count_lost,
            faults=self._pass,
            first_seq=0,
            head_start_seconds=head_start_seconds,
            ride_seconds=ride_seconds,
            followers=followers,
            outage=self._note_outage,
        )

    def _note_outage(self, *, outage: bool) -> None:
        self.outages.append(outage)

    async def until_writable(self) -> None:
        """Let time pass until a try of the writer's own has succeeded."""
        async with asyncio.timeout(60):
            while self.writer.outage.reason:
                self.clock.advance(timedelta(seconds=1))
                await asyncio.sleep(0)

    def _count_lost(self) -> None:
        self.lost += 1

    def _pass(self, point: FaultPoint) -> None:
        self.groups += point is FaultPoint.GROUP_COMMITTED
        if point is self.raise_at:
            self.raise_at = None
            raise RuntimeError(point)

    async def close(self) -> None:
        await self.writer.close()
        self.reader.close()
        self.db.close()

    def stored(self) -> int:
        count: int = self.reader.execute("SELECT count(*) FROM messages").fetchone()[0]
        return count


def post(tx: Transaction) -> None:
    tx.post(ENTITY, Kind.OPERATION, b"")


def post_and_fail(tx: Transaction) -> None:
    post(tx)
    raise LookupError("no")
