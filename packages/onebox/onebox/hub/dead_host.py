"""What a host that died had fetched stays hidden for a while, as in Azure Storage's queues.

A message that a host has fetched is invisible until the visibility timeout of its queue is over, and the host
that fetched it is the only one to hide it for longer or to delete it. So what a dead host had fetched rests:
messages to instances and entities for the control queue's timeout after they arrived, since they were fetched
then, and activities for the work-item queue's timeout after the host's death, until which it renewed theirs.
What was due only after the death was not fetched, nor were more activities than run at once.

A real host with timeouts of a minute went on after 62 to 69 s (extension 3.14.1).

The hub notes each second that it lives, in its store, and takes the note back when it stops in order.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, override

from onebox.hub.database import Transaction
from onebox.hub.engine import Engine
from onebox.hub.model import Lane, StoreUnwritableError, now_us
from onebox.hub.settings import AzureTerms

_SECOND: Final = timedelta(seconds=1)
_SECOND_US: Final = 1_000_000


class AzureEngine(Engine):
    """Takes up what the host before it had fetched only when that is visible again."""

    def __init__(self, terms: AzureTerms, **parts: Any) -> None:
        super().__init__(**parts)
        self._terms = terms
        self._most_activities = parts["settings"].max_activities
        self._hidden_until_us: dict[int, int] = {}
        self._living: asyncio.Task[None] | None = None

    @override
    async def start(self) -> None:
        self._hidden_until_us = await self.writer.commit(self._hide)
        await super().start()
        self._living = asyncio.create_task(self._live())

    @override
    async def drain(self) -> None:
        if self._living is not None:
            self._living.cancel()
            await asyncio.wait([self._living])
        await super().drain()
        if self._living is not None and not self.dies:
            with suppress(StoreUnwritableError):  # then it counts as dead
                await self.writer.commit(lambda tx: tx.run("host.stopped"))

    @override
    def _take_up(self, seq: int, lane: Lane) -> None:
        until_us = self._hidden_until_us.get(seq, 0)
        if until_us > now_us(self._clock):
            self._timers.add_retry(until_us, seq)
        else:
            super()._take_up(seq, lane)

    async def _live(self) -> None:
        while True:
            with suppress(StoreUnwritableError):
                await self.writer.commit(lambda tx: tx.run("host.alive", tx.now_us))
            until = self._clock.now() + _SECOND
            while self._clock.now() < until:
                await self._clock.wait(until, asyncio.Event())

    def _hide(self, tx: Transaction) -> dict[int, int]:
        """Hide what a dead host had fetched; return until when which activities are hidden."""
        found = tx.run("host.last_alive").fetchone()
        if found is not None:
            (died_us,) = found
            hidden_us = int(self._terms.control_hidden_seconds * _SECOND_US)
            # It died within a second after its last note. What came later is of clients of this host.
            tx.run("message.hide", hidden_us, died_us + _SECOND_US, tx.now_us)
            until_us = died_us + int(self._terms.work_hidden_seconds * _SECOND_US)
            tx.run("activity.hide", until_us, died_us, self._most_activities)
        tx.run("activity.show", tx.now_us)
        return dict(tx.run("activity.hidden").fetchall())
