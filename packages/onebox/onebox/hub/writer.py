"""Commits many transactions with one disk sync.

Statements run on the event loop's thread, where they cost microseconds. So does the commit while the disk is
quick: waking a second thread costs more processor time than the sync of a fast disk takes. Commits that were
slow of late run on a thread of their own, and while one group commits the next one gathers:

    turn A ──┐
    turn B ──┼─ BEGIN · A · B · C · COMMIT (one sync) ─► effects, then each caller's result
    start C ─┘                      └─ on a slow disk D, E, F gather meanwhile for the next group

A transaction that raises is undone alone, and its caller gets the exception no sooner than the others get
their results: it may be refused for what another one of the group has written. As a rule it raises before it
writes. If it has written, the group is undone and run again, each transaction with a savepoint of its own.

What a worker's transaction wakes may follow it into its group, where it reads what is not committed yet: the
entity the turn that calls it, the next turn the entity's answer. One sync then makes the whole chain durable,
and only after it does anything of it have an effect outside of the store. What a client's transaction wakes,
like a first turn, begins a chain in a later group: the client has its answer before.
"""

import asyncio
import contextvars
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from onebox.clock import Clock
from onebox.faults import FaultPoint, FaultPoints
from onebox.hub.database import StoreFile, Transaction
from onebox.hub.model import Effects, Lane, StoreUnwritableError, now_us
from onebox.hub.outage import Outage, OutageChanged, StoreGoneError, ignore_outages, is_outage
from onebox.inline import InlinePolicy

_LOGGER = logging.getLogger(__name__)
_LARGEST_GROUP: Final = 256  # bounds how long the event loop runs statements without a break
_MOST_FOLLOWERS: Final = 64  # of one group, likewise
_SLOW_COMMIT_SECONDS: Final = 0.002  # a longer one may not hold up the event loop
_COMMIT: Final = "commit"


class Followers(Protocol):
    """What may join a group because a transaction of the group wakes it."""

    def stage(self, effects: Effects) -> None:
        """Note what a transaction of the open group has made void."""
        ...

    def follow(self, target: str, lane: Lane) -> Callable[[Transaction], None] | None:
        """Return a target's work, to be run at once; None leaves the target to be woken after the commit.

        Until `release` nobody else works on it.
        """
        ...

    def release(self, *, committed: bool) -> None:
        """Let others work on the targets of the group, which is on disk or undone."""
        ...


class NoFollowers:
    """Leaves everything to be woken after the commit."""

    def stage(self, effects: Effects) -> None:
        """Do nothing."""

    def follow(self, _target: str, _lane: Lane) -> None:
        """Return nothing."""

    def release(self, *, committed: bool) -> None:
        """Do nothing."""


class _HalfWrittenError(Exception):
    """A transaction failed after it had written, and nothing separates it from the others of its group."""


@dataclass(slots=True)
class _Pending:
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any] | None = None  # None for a follower, whose failure leaves it to be woken
    answers_first: bool = False  # whether what it wakes is left to the next group
    result: Any = None
    failure: Exception | None = None
    effects: Effects | None = None

    def take_wakes(self) -> list[tuple[str, Lane]]:
        """Take out of the effects what is left to the next group."""
        if self.effects is None or not self.answers_first:
            return []
        taken, self.effects.wake = self.effects.wake, []
        return taken

    def answer_caller(self) -> None:
        """Give the caller, if it still waits, the result or the failure."""
        if self.answer is None or self.answer.done():
            return
        if self.failure is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.failure)


class Writer:
    """The only one who writes to the store.

    Args:
        db: The writing connection.
        clock: Stamps transactions.
        apply: Called on the event loop with each committed transaction's effects, before its caller goes on.
        lost: Called when a group may be on disk but its effects could not be applied: look at the store anew.
        faults: Named points for tests.
        file: The store's file; None is not watched.
        first_seq: The first number to give to a message or an activity.
        followers: What may join a group.
        head_start_seconds: How long what a client's transaction wakes waits (at least 0).
        outage: Called when commits begin to fail for want of room, and when they succeed again.
        transaction: Makes one, from the connection, its instant and what numbers messages.
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
        file: StoreFile | None = None,
        followers: Followers | None = None,
        head_start_seconds: float = 0.0,
        outage: OutageChanged = ignore_outages,
        transaction: Callable[..., Transaction] = Transaction,
    ) -> None:
        self._db = db
        self._make_transaction = transaction
        self._clock = clock
        self._apply = apply
        self._lost = lost
        self._faults = faults
        self._file = file
        self._seq = first_seq
        self._followers = followers or NoFollowers()
        self._head_start_seconds = head_start_seconds
        # With neither, what a client wakes begins after its answer in any case.
        self._holds_back = followers is not None or head_start_seconds > 0
        self._waiting: deque[_Pending] = deque()
        self._held_back: deque[asyncio.TimerHandle] = deque()  # until their clients have had their head start
        self._woken: list[tuple[str, Lane]] = []  # by clients that have had it
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hub-commit")
        self._inline = InlinePolicy(_SLOW_COMMIT_SECONDS)
        self._last_seconds = 0.0  # of the last commit on the event loop
        self._task: asyncio.Task[None] | None = None
        self.outage = Outage(clock, self._touch, outage)
        # Not that of whoever happens to commit first: what a commit wakes is none of its doing.
        self._context = contextvars.copy_context()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be committed, or to be woken."""
        return self._task is None and not self._held_back

    @property
    def trouble(self) -> str:
        """Why nothing can be committed; "" when everything is well."""
        return self.outage.reason or ("" if self._file is None else self._file.trouble)

    async def commit[T](self, work: Callable[[Transaction], T], *, answers_first: bool = True) -> T:
        """Run `work` in a transaction and return its result once that is on disk.

        A caller that is cancelled does not undo it.

        Args:
            work: Runs statements.
            answers_first: Whether the caller goes on before anything runs that `work` wakes.

        Raises:
            StoreUnwritableError: The disk is full, another process holds the lock, or the store is damaged.
            Exception: What `work` raised (nothing of it is stored), or what the commit raised.
        """
        if self.outage.is_lasting:
            raise StoreUnwritableError(self.outage.reason)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Pending(work, answer, answers_first and self._holds_back))
        self._begin()
        result: T = await answer
        return result

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._write_groups(), context=self._context.copy())

    async def commit_surely[T](self, work: Callable[[Transaction], T]) -> T:
        """Commit what a worker has done and what that wakes, however long the store cannot be written.

        What has run must not run again for that.

        Raises:
            Exception: As `commit`, except for `StoreUnwritableError`.
        """
        while True:
            try:
                return await self.commit(work, answers_first=False)
            except StoreUnwritableError:
                await self.outage.over()

    async def _touch(self) -> None:
        """Write a page, as any commit would."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        await self.commit(lambda tx: tx.db.execute(f"PRAGMA user_version = {version}"))

    async def close(self) -> None:
        """Finish what waits, then release the thread; what was held back is left to the next start."""
        await self.outage.close()
        if self._task is not None:
            await self._task
        for each in self._held_back:
            each.cancel()
        self._held_back.clear()
        self._thread.shutdown()

    async def _write_groups(self) -> None:
        while self._waiting or self._woken:
            # One pass of the loop first: whoever is ready to write in this round joins the group, and
            # clients of the group before pass their answers on.
            await asyncio.sleep(0)
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_GROUP))]
            woken, self._woken = self._woken, []
            if woken:
                group.append(_Pending(partial(_wake, woken)))
            try:
                await self._write(group)
            except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
                self._abandon(group, error)
                if woken:
                    self._apply(Effects(wake=woken))
        self._task = None

    async def _write(self, group: list[_Pending]) -> None:
        effects = self._fill(group)
        self._faults(FaultPoint.GROUP_FILLED)
        await self._sync()
        if self._file is not None and (trouble := self._file.trouble):
            raise StoreGoneError(trouble)
        self.outage.end()
        self._faults(FaultPoint.GROUP_COMMITTED)
        # Whoever gets an answer goes on in the loop's next pass: after the effects are applied and
        # before the work begins that they make ready, for which no client waits.
        self._hold_back([each for pending in group for each in pending.take_wakes()])
        for pending in group:
            pending.answer_caller()
        for each in effects:
            self._apply(each)
        self._followers.release(committed=True)

    def _hold_back(self, targets: list[tuple[str, Lane]]) -> None:
        """Wake what clients of the open group have woken, once they have had their head start."""
        if not self._head_start_seconds:
            self._woken += targets
        elif targets:
            loop = asyncio.get_running_loop()
            self._held_back.append(
                loop.call_later(self._head_start_seconds, self._let_go, targets, context=self._context.copy())
            )

    def _let_go(self, targets: list[tuple[str, Lane]]) -> None:
        self._held_back.popleft()
        self._woken += targets
        self._begin()

    def _fill(self, group: list[_Pending]) -> list[Effects]:
        """Run a group's transactions and what follows them; return the effects that wait for the commit."""
        at_us = now_us(self._clock)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            return self._run_all(group, at_us, apart=False)
        except _HalfWrittenError:
            self._db.rollback()
            self._followers.release(committed=False)
        self._db.execute("BEGIN IMMEDIATE")
        return self._run_all(group, at_us, apart=True)

    def _run_all(self, group: list[_Pending], at_us: int, *, apart: bool) -> list[Effects]:
        for pending in group:
            self._run(pending, at_us, apart=apart)
        return self._follow(group, at_us, apart=apart)

    async def _sync(self) -> None:
        if self._inline.allows(_COMMIT):
            began = time.perf_counter()
            self._db.commit()
            seconds = time.perf_counter() - began
            # A slow disk is slow twice in a row; a busy processor or a checkpoint is not.
            self._inline.note(_COMMIT, min(seconds, self._last_seconds))
            self._last_seconds = seconds
        else:
            self._inline.note_elsewhere(_COMMIT)
            await asyncio.get_running_loop().run_in_executor(self._thread, self._db.commit)

    def _follow(self, group: list[_Pending], at_us: int, *, apart: bool) -> list[Effects]:
        """Run what the group wakes, and what that wakes; return all effects that are left for the commit."""
        effects = [pending.effects for pending in group if pending.effects is not None]
        todo = deque(
            pending.effects for pending in group if pending.effects is not None and not pending.answers_first
        )
        followers = 0
        while todo:
            woken = todo.popleft()
            left: list[tuple[str, Lane]] = []
            for target, lane in woken.wake:
                follower = None
                if followers < _MOST_FOLLOWERS and (work := self._followers.follow(target, lane)) is not None:
                    follower = _Pending(work)
                    self._run(follower, at_us, apart=apart)
                    followers += 1
                if follower is None or follower.effects is None:
                    left.append((target, lane))
                else:
                    todo.append(follower.effects)
                    effects.append(follower.effects)
            woken.wake = left
        return effects

    def _run(self, pending: _Pending, at_us: int, *, apart: bool) -> None:
        """Run one transaction, with a savepoint of its own if it shall stand apart from the others.

        Raises:
            _HalfWrittenError: It failed after it had written, and does not stand apart.
        """
        transaction = self._make_transaction(self._db, at_us, self._next_seq)
        pending.effects = pending.failure = None
        if apart:
            self._db.execute("SAVEPOINT one")
        written = self._db.total_changes
        try:
            pending.result = pending.work(transaction)
        except Exception as error:
            if is_outage(error):
                raise  # SQLite may have rolled back the whole group already
            if self._db.total_changes != written:
                if not apart:
                    raise _HalfWrittenError from error
                self._db.execute("ROLLBACK TO one")
            pending.failure = error
        else:
            pending.effects = transaction.effects
            self._followers.stage(transaction.effects)
        if apart:
            self._db.execute("RELEASE one")

    def _abandon(self, group: list[_Pending], error: Exception) -> None:
        if self._db.in_transaction:
            self._db.rollback()
        passing = is_outage(error)
        if passing:
            self.outage.begin(error)
            error = StoreUnwritableError(self.outage.reason)
        else:
            _LOGGER.error("a group of %d transactions could not be committed", len(group), exc_info=error)
        for pending in group:
            if pending.answer is not None and not pending.answer.done():
                pending.answer.set_exception(error)
        self._followers.release(committed=False)
        if not passing:  # an outage leaves nothing on disk that memory does not have
            self._lost()

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq


def _wake(targets: Iterable[tuple[str, Lane]], tx: Transaction) -> None:
    """Write nothing, and wake some targets."""
    tx.effects.wake.extend(targets)
