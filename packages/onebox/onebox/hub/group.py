"""One group of transactions: what has run in it, what followed, and what happens once it is on disk."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from onebox.clock import Clock
from onebox.hub.database import Transaction
from onebox.hub.model import Effects, FencedError, Lane, now_us
from onebox.hub.outage import is_outage

LARGEST_GROUP: Final = 256  # bounds how long the event loop runs statements without a break
_MOST_FOLLOWERS: Final = 64  # of one group, likewise


@dataclass(slots=True, eq=False)
class Basis:
    """What a group has written, for work that goes on from there before the group is committed.

    Attributes:
        expected: How many transactions of such work are still to come.
        is_void: Whether the group was undone.
    """

    expected: int = 0
    is_void: bool = False

    def guarded[T](self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Note that a transaction of such work comes; return one that raises once the group is undone."""
        self.expected -= 1

        def run(tx: Transaction) -> T:
            if self.is_void:
                raise FencedError("the group on which it rests was undone")
            return work(tx)

        return run


class Followers(Protocol):
    """What may join a group because a transaction of the group wakes it."""

    def stage(self, effects: Effects) -> None:
        """Note what a transaction of the open group has made void."""
        ...

    def follow(self, target: str, lane: Lane, basis: Basis) -> Callable[[Transaction], None] | None:
        """Return a target's work, to be run at once; None leaves the target to be woken after the commit.

        Until `release` nobody else works on it. Work that has to be waited for begins, and writes in a
        transaction of its own that the basis expects.
        """
        ...

    def release(self, *, committed: bool) -> None:
        """Let others work on the targets of the group, which is on disk or undone."""
        ...


class NoFollowers:
    """Leaves everything to be woken after the commit."""

    def stage(self, effects: Effects) -> None:
        """Do nothing."""

    def follow(self, _target: str, _lane: Lane, _basis: Basis) -> None:
        """Return nothing."""

    def release(self, *, committed: bool) -> None:
        """Do nothing."""


class _HalfWrittenError(Exception):
    """A transaction failed after it had written, and nothing separates it from the others of its group."""


@dataclass(slots=True)
class Pending:
    """A transaction that is to be run, and what became of it.

    Attributes:
        work: Runs statements.
        answer: What its caller awaits; None for a follower, whose failure leaves it to be woken.
        is_clients: Whether its caller goes on before anything runs that the transaction wakes.
    """

    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any] | None = None
    is_clients: bool = False
    result: Any = None
    failure: Exception | None = None
    effects: Effects | None = None

    def take_wakes(self) -> list[tuple[str, Lane]]:
        """Take out of the effects whom the transaction wakes."""
        if self.effects is None:
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


class Group:
    """Runs transactions between one BEGIN and its COMMIT, which is the writer's to give.

    Attributes:
        members: The transactions that were added, in their order.
        woken: Whom earlier groups had woken.
        deferred: Whom workers' transactions have woken, and who is left to a later group.
        effects: What waits for the commit: of the members and of what followed them.
        basis: For work that goes on from here.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        clock: Clock,
        followers: Followers,
        transaction: Callable[[int], Transaction],
    ) -> None:
        self._db = db
        self._clock = clock
        self._followers = followers
        self._transaction = transaction
        self._is_apart = False  # whether each transaction has a savepoint of its own
        self._followed = 0
        self.basis = Basis()
        self.members: list[Pending] = []
        self.woken: list[tuple[str, Lane]] = []
        self.deferred: list[tuple[str, Lane]] = []
        self.effects: list[Effects] = []

    def add(self, more: list[Pending], woken: list[tuple[str, Lane]], *, follow: bool) -> None:
        """Run transactions and, if asked, what they wake.

        One that fails after it has written undoes the group, which then runs again with savepoints.

        Args:
            more: The transactions.
            woken: Whom earlier groups have woken; they follow with this one.
            follow: Whether what workers' transactions wake follows, too, or is left to a later group.
        """
        self.members += more
        self.woken += woken
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        try:
            self._run_all(more, woken, follow=follow)
        except _HalfWrittenError:
            self.undo()
            self._followers.release(committed=False)
            self.basis = Basis()
            self._is_apart, self.effects, self.deferred, self._followed = True, [], [], 0
            self._db.execute("BEGIN IMMEDIATE")
            self._run_all(self.members, self.woken, follow=follow)

    def undo(self) -> None:
        """Take everything back."""
        if self._db.in_transaction:
            self._db.rollback()
        self.basis.is_void = True

    def _run_all(self, pendings: list[Pending], woken: list[tuple[str, Lane]], *, follow: bool) -> None:
        at_us = now_us(self._clock)
        todo = deque([Effects(wake=list(woken))] if woken else [])
        self.effects += todo
        for pending in pendings:
            self._run(pending, at_us)
            if pending.effects is None:
                continue
            self.effects.append(pending.effects)
            if pending.is_clients:
                continue
            if follow:
                todo.append(pending.effects)
            else:
                self.deferred += pending.take_wakes()
        self._follow(todo, at_us)

    def _follow(self, todo: deque[Effects], at_us: int) -> None:
        """Run what the transactions wake, and what that wakes."""
        while todo:
            woken = todo.popleft()
            left: list[tuple[str, Lane]] = []
            for target, lane in woken.wake:
                follower = self._run_follower(target, lane, at_us)
                if follower is None:
                    left.append((target, lane))
                else:
                    todo.append(follower)
                    self.effects.append(follower)
            woken.wake = left

    def _run_follower(self, target: str, lane: Lane, at_us: int) -> Effects | None:
        """Run a target's work; return its effects, None if the target is left to be woken."""
        if self._followed >= _MOST_FOLLOWERS:
            return None
        if (work := self._followers.follow(target, lane, self.basis)) is None:
            return None
        self._followed += 1
        follower = Pending(work)
        self._run(follower, at_us)
        return follower.effects

    def _run(self, pending: Pending, at_us: int) -> None:
        """Run one transaction.

        Raises:
            _HalfWrittenError: It failed after it had written, and does not stand apart.
        """
        transaction = self._transaction(at_us)
        pending.effects = pending.failure = None
        if self._is_apart:
            self._db.execute("SAVEPOINT one")
        written = self._db.total_changes
        try:
            pending.result = pending.work(transaction)
        except Exception as error:
            if is_outage(error):
                raise  # SQLite may have rolled back the whole group already
            if self._db.total_changes != written:
                if not self._is_apart:
                    raise _HalfWrittenError from error
                self._db.execute("ROLLBACK TO one")
            pending.failure = error
        else:
            pending.effects = transaction.effects
            self._followers.stage(transaction.effects)
        if self._is_apart:
            self._db.execute("RELEASE one")
