"""Commits many transactions with one disk sync.

Statements run on the event loop's thread, where they cost microseconds; only the commit, which waits for the
disk, runs on a thread of its own. While a group commits, the next one gathers:

    turn A ──┐
    turn B ──┼─ BEGIN · A · B · C · COMMIT (one sync) ─► effects, then each caller's result
    start C ─┘                      └─ meanwhile D, E, F gather for the next group

Each transaction has its own savepoint: one that raises is undone alone and its caller gets the exception, no
sooner than the others get their results: it may be refused for what another one of the group has written.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onebox.clock import Clock
from onebox.hub.faults import FaultPoint, FaultPoints
from onebox.hub.instants import now_us
from onebox.hub.model import Effects
from onebox.hub.store.transaction import Transaction

_LOGGER = logging.getLogger(__name__)
_LARGEST_GROUP = 256  # bounds how long the event loop runs statements without a break


@dataclass(slots=True)
class _Pending:
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]
    result: Any = None
    failure: Exception | None = None
    effects: Effects | None = None


class Writer:
    """The only one who writes to the store.

    Args:
        db: The writing connection.
        clock: Stamps transactions.
        apply: Called on the event loop with each committed transaction's effects, before its caller goes on.
        lost: Called when a group may be on disk but its effects could not be applied: look at the store anew.
        faults: Named points for tests.
        first_seq: The first number to give to a message or an activity.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        clock: Clock,
        *,
        apply: Callable[[Effects], None],
        lost: Callable[[], None],
        faults: FaultPoints,
        first_seq: int,
    ) -> None:
        self._db = db
        self._clock = clock
        self._apply = apply
        self._lost = lost
        self._faults = faults
        self._seq = first_seq
        self._waiting: deque[_Pending] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hub-commit")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be committed."""
        return self._task is None

    async def commit[T](self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and return its result once that is on disk.

        A caller that is cancelled does not undo it.

        Raises:
            Exception: What `work` raised (nothing of it is stored), or what the commit raised.
        """
        pending = _Pending(work, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        if self._task is None:
            self._task = asyncio.create_task(self._write_groups())
        result: T = await pending.answer
        return result

    async def close(self) -> None:
        """Finish what waits, then release the thread."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _write_groups(self) -> None:
        # One pass of the loop first: whoever is ready to write in this round joins the group.
        await asyncio.sleep(0)
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_GROUP))]
            try:
                await self._write(group)
            except Exception as error:
                _LOGGER.exception("a group of %d transactions could not be committed", len(group))
                self._abandon(group, error)
        self._task = None

    async def _write(self, group: list[_Pending]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        at_us = now_us(self._clock)
        for pending in group:
            self._run(pending, at_us)
        self._faults(FaultPoint.GROUP_FILLED)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._db.commit)
        self._faults(FaultPoint.GROUP_COMMITTED)
        for pending in group:
            if pending.effects is not None:
                self._apply(pending.effects)
            if pending.answer.done():
                continue
            if pending.failure is None:
                pending.answer.set_result(pending.result)
            else:
                pending.answer.set_exception(pending.failure)

    def _run(self, pending: _Pending, at_us: int) -> None:
        transaction = Transaction(self._db, at_us, self._next_seq)
        self._db.execute("SAVEPOINT one")
        try:
            pending.result = pending.work(transaction)
        except Exception as error:  # noqa: BLE001 - it is the caller's: hand it over and keep the others
            self._db.execute("ROLLBACK TO one")
            pending.failure = error
        else:
            pending.effects = transaction.effects
        self._db.execute("RELEASE one")

    def _abandon(self, group: list[_Pending], error: Exception) -> None:
        if self._db.in_transaction:
            self._db.rollback()
        for pending in group:
            if not pending.answer.done():
                pending.answer.set_exception(error)
        self._lost()

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
