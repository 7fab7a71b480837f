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

Under load workers' transactions wait up to 4 ms for a client's and share its commit (`ride.py`). A group that
has a client's is committed before anything follows it, since the client waits for that.

What a worker's transaction wakes may follow it into its group, where it reads what is not committed yet: the
entity the turn that calls it, the next turn the entity's answer. One sync then makes the whole chain durable,
and only after it does anything of it have an effect outside of the store. What a client's transaction wakes,
like a first turn, begins a chain in a later group: the client has its answer before.
"""

import asyncio
import contextvars
import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from onebox.clock import Clock
from onebox.faults import FaultPoint, FaultPoints
from onebox.hub.commit_thread import CommitThread
from onebox.hub.database import StoreFile, Transaction
from onebox.hub.group import LARGEST_GROUP, Basis, Followers, Group, NoFollowers, Pending
from onebox.hub.model import Effects, Lane, StoreUnwritableError
from onebox.hub.outage import Outage, OutageChanged, StoreGoneError, ignore_outages, is_outage
from onebox.hub.ride import Ride
from onebox.inline import InlinePolicy

_LOGGER = logging.getLogger(__name__)
_SLOW_COMMIT_SECONDS: Final = 0.002  # a longer one may not hold up the event loop
_COMMIT: Final = "commit"


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
        ride_seconds: How long workers' transactions may wait for a client's (at least 0); see `Ride`.
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
        ride_seconds: float = 0.0,
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
        self._waiting: deque[Pending] = deque()
        self._held_back: deque[asyncio.TimerHandle] = deque()  # until their clients have had their head start
        self._woken: list[tuple[str, Lane]] = []  # whom a later group has follow
        self._follow_by = math.inf  # when clients come first no longer
        self._ride = Ride(ride_seconds)
        self._more = asyncio.Event()  # set when something comes while a group waits for a client
        self._thread = CommitThread()
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
        self._waiting.append(Pending(work, answer, answers_first and self._holds_back))
        self._more.set()
        self._begin()
        result: T = await answer
        return result

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._write_groups(), context=self._context.copy())

    async def commit_surely[T](self, work: Callable[[Transaction], T], basis: Basis | None = None) -> T:
        """Commit what a worker has done and what that wakes, however long the store cannot be written.

        What has run must not run again for that.

        Args:
            work: Runs statements.
            basis: What the worker began with; None for what is on disk.

        Raises:
            FencedError: The basis was undone.
            Exception: As `commit`, except for `StoreUnwritableError`.
        """
        if basis is not None:
            work = basis.guarded(work)
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
        self._thread.close()

    async def _write_groups(self) -> None:
        while self._waiting or self._woken:
            # One pass of the loop first: whoever is ready to write in this round joins the group, and
            # clients of the group before pass their answers on.
            await asyncio.sleep(0)
            group = Group(self._db, self._clock, self._followers, self._begin_transaction)
            try:
                await self._fill(group)
                await self._write(group)
            except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
                self._abandon(group, error)
        self._task = None

    async def _fill(self, group: Group) -> None:
        """Run what waits, and let workers' transactions wait for what is likely to come soon.

        That is a client's transaction, and those of what goes on from this group's.
        """
        loop = asyncio.get_running_loop()
        until = math.inf
        while not self._run_waiting(group):
            self._ride.note_filled()
            until = min(until, loop.time() + self._ride.seconds)
            if not (self._ride.is_likely or group.basis.expected) or loop.time() >= until:
                return
            self._more.clear()
            alarm = loop.call_at(until, self._more.set)
            await self._more.wait()
            alarm.cancel()
        self._ride.note_client()

    def _run_waiting(self, group: Group) -> bool:
        """Run what waits; return whether a client's transaction was among it.

        What workers' transactions wake then follows in a later group, so that the client has its answer
        sooner, unless something has been put off for so long already.
        """
        more = [self._waiting.popleft() for _ in range(min(len(self._waiting), LARGEST_GROUP))]
        has_client = any(each.is_clients for each in more)
        woken: list[tuple[str, Lane]] = []
        if follow := not has_client or asyncio.get_running_loop().time() >= self._follow_by:
            woken, self._woken, self._follow_by = self._woken, woken, math.inf
        group.add(more, woken, follow=follow)
        return has_client

    async def _write(self, group: Group) -> None:
        self._faults(FaultPoint.GROUP_FILLED)
        await self._sync()
        if self._file is not None and (trouble := self._file.trouble):
            raise StoreGoneError(trouble)
        self.outage.end()
        self._faults(FaultPoint.GROUP_COMMITTED)
        # Whoever gets an answer goes on in the loop's next pass: after the effects are applied and
        # before the work begins that they make ready, for which no client waits.
        clients = [pending for pending in group.members if pending.is_clients]
        self._hold_back([each for pending in clients for each in pending.take_wakes()])
        self._defer(group.deferred)
        for pending in group.members:
            pending.answer_caller()
        for each in group.effects:
            self._apply(each)
        self._followers.release(committed=True)
        self._faults(FaultPoint.GROUP_DRAINED)

    def _hold_back(self, targets: list[tuple[str, Lane]]) -> None:
        """Wake what clients of the open group have woken, once they have had their head start."""
        if not self._head_start_seconds:
            self._defer(targets)
        elif targets:
            loop = asyncio.get_running_loop()
            self._held_back.append(
                loop.call_later(self._head_start_seconds, self._let_go, targets, context=self._context.copy())
            )

    def _let_go(self, targets: list[tuple[str, Lane]]) -> None:
        self._held_back.popleft()
        self._defer(targets)
        self._more.set()
        self._begin()

    def _defer(self, targets: list[tuple[str, Lane]]) -> None:
        """Have targets follow with a later group, after clients that come first."""
        if targets:
            self._woken += targets
            self._follow_by = min(self._follow_by, asyncio.get_running_loop().time() + self._ride.seconds)

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
            await self._thread.run(self._db.commit)

    def _abandon(self, group: Group, error: Exception) -> None:
        group.undo()
        passing = is_outage(error)
        if passing:
            self.outage.begin(error)
            error = StoreUnwritableError(self.outage.reason)
        else:
            size = len(group.members)
            _LOGGER.error("a group of %d transactions could not be committed", size, exc_info=error)
        for pending in group.members:
            if pending.answer is not None and not pending.answer.done():
                pending.answer.set_exception(error)
        self._followers.release(committed=False)
        if not passing:  # an outage leaves nothing on disk that memory does not have
            self._lost()
        if group.woken:
            self._apply(Effects(wake=group.woken))

    def _begin_transaction(self, at_us: int) -> Transaction:
        return self._make_transaction(self._db, at_us, self._next_seq)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
