"""Keeps the hub going: what is ready, what is due, and what to do when something breaks."""

import asyncio
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice
from typing import Any, Final

from onebox.clock import Clock
from onebox.faults import FaultPoint, FaultPoints
from onebox.hub.archive import Archiver
from onebox.hub.clock_repair import TOLERATED_US, repair
from onebox.hub.database import StoreFile, Transaction, is_entity
from onebox.hub.dispatch import Key, Timers, WorkQueue
from onebox.hub.group import Basis
from onebox.hub.invoker import InvocationLostError, Invoker
from onebox.hub.model import Effects, FencedError, Lane, now_us, to_datetime
from onebox.hub.outage import is_damage
from onebox.hub.reading import Reader
from onebox.hub.settings import HubSettings
from onebox.hub.workers import NotImmediateError, Workers, log_failure
from onebox.hub.writer import Writer

_LOGGER = logging.getLogger(__name__)
_FIRST_RETRY_US: Final = 100_000
_LONGEST_RETRY_US: Final = 30_000_000
_MOST_DUE: Final = 1_000  # taken up at once, of timers that are due: the others wait in the store
_DOUBLINGS: Final = 10  # after which the longest is reached in any case


class Waiters:
    """Wakes whoever watches an instance when its status changes."""

    def __init__(self) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def watch(self, instance_id: str) -> asyncio.Event:
        """Return an event that is set at each change, until `unwatch`."""
        changed = asyncio.Event()
        self._events[instance_id].add(changed)
        return changed

    def unwatch(self, instance_id: str, changed: asyncio.Event) -> None:
        """Stop watching."""
        self._events[instance_id].discard(changed)
        if not self._events[instance_id]:
            del self._events[instance_id]

    def notify(self, instance_id: str) -> None:
        """Say that an instance's status has changed."""
        for changed in self._events.get(instance_id, ()):
            changed.set()


class Engine:
    """Applies what transactions have decided: wakes, timers, tasks.

    All of its memory can be rebuilt from the store (`_recover`), which is what a start does, and what happens
    when a commit succeeded but its effects were lost.

    Attributes:
        dies: Whether the next stop stands for the death of the host (of a meaning on Azure's terms only).
    """

    def __init__(
        self,
        *,
        db: sqlite3.Connection,
        file: StoreFile,
        reader: Reader,
        invoker: Invoker,
        clock: Clock,
        settings: HubSettings,
        faults: FaultPoints,
        workers: Callable[..., Workers] = Workers,
        transaction: Callable[..., Transaction] = Transaction,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._settings = settings
        self._faults = faults
        self._failures: defaultdict[Key, int] = defaultdict(int)
        self._pausing_until_us: dict[Key, int] = {}  # what has failed, and when it is tried again
        self._is_stale = True  # whether the store may hold what was not taken up
        self._misses = 0  # looks at the store that failed, one after the other
        self._next_look_us = 0
        self._timer_moved = asyncio.Event()
        self._is_full = False  # whether so many keys wait that timers are left in the store
        self._quiet = asyncio.Event()
        self._timers = Timers(reader.timers)
        self._ticking: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        self.dies = False
        self._held: set[str] = set()
        self.writer = Writer(
            db,
            clock,
            apply=self._apply,
            lost=self._lose,
            faults=faults,
            file=file,
            first_seq=reader.last_seq(),
            followers=self,
            head_start_seconds=settings.head_start_seconds,
            ride_seconds=settings.ride_seconds,
            outage=self._pause_during,
            transaction=transaction,
        )
        self.workers = workers(
            reader=reader,
            inside=Reader(db),
            writer=self.writer,
            invoker=invoker,
            clock=clock,
            settings=settings,
            faults=faults,
            retry=lambda key: self.wake(key, Lane.GOING),
        )
        self._archiver = Archiver(reader.each, self.writer, settings.archive_after_seconds)
        self._turns = WorkQueue[str](settings.max_turns, self.workers.turn, done=self._done)
        self._batches = WorkQueue[str](settings.max_batches, self.workers.batch, done=self._done)
        self._activities = WorkQueue[int](settings.max_activities, self.workers.activity, done=self._done)

    async def start(self) -> None:
        """Take up everything that the store holds."""
        newest_us = 0 if self._settings.azure is not None else self._reader.newest_us()
        if newest_us > now_us(self._clock) + TOLERATED_US:
            await self.writer.commit(partial(repair, newest_us=newest_us))
        self._hand_over()
        for queue in (self._turns, self._batches, self._activities):
            queue.open()
        self._ticking = asyncio.create_task(self._tick())
        self._archiver.start()

    def _pause_during(self, *, outage: bool) -> None:
        """Take no work while nothing can be committed; go on when it can."""
        for queue in (self._turns, self._batches, self._activities):
            if outage:
                queue.pause()
            else:
                queue.resume()

    async def drain(self) -> None:
        """Take no more work; what does not end in time is given back to the store."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        await self._archiver.close()
        seconds = self._settings.stop_seconds
        queues = (self._turns, self._batches, self._activities)
        await asyncio.gather(*(queue.close(seconds) for queue in queues))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready, running or being committed; timers may still be pending."""
        queues = (self._turns, self._batches, self._activities)
        return all(queue.is_idle for queue in queues) and self.writer.is_idle

    async def settled(self) -> None:
        """Return once nothing can happen before the clock moves or somebody asks for something."""
        while True:
            next_us = self._next_look_us or self._timers.next_due_us()
            is_waiting = not self._timer_moved.is_set()  # for the instant that is next now
            if self.is_idle and is_waiting and (next_us is None or next_us > now_us(self._clock)):
                return
            self._quiet.clear()
            await self._quiet_soon()

    async def _quiet_soon(self) -> None:
        """Wait for the queues to run empty; look again soon, for due timers on their way say nothing."""
        try:
            async with asyncio.timeout(0.005):
                await self._quiet.wait()
        except TimeoutError:
            return

    def _lose(self) -> None:
        """Have the store looked at anew: effects of a commit may be lost."""
        self._is_stale = True
        self._timer_moved.set()

    def _recover(self) -> None:
        """Take up what the store holds; what is queued or running already is not queued twice."""
        self._timers.refill()
        targets = self._reader.ready_targets(now_us(self._clock))
        tasks = self._reader.ready_tasks()
        self._is_stale = False
        for target, lane in targets:
            self.wake(target, lane)
        for seq, lane in tasks:
            self._take_up(seq, lane)
        if targets or tasks:
            _LOGGER.info("taking up %d inboxes and %d activities from the store", len(targets), len(tasks))

    def _take_up(self, seq: int, lane: Lane) -> None:
        """Have an activity run that was in the store already."""
        self.wake(seq, lane)

    def wake(self, key: Key, lane: Lane) -> None:
        """Have an instance, an entity or an activity looked at; one that has failed keeps its pause."""
        if key in self._pausing_until_us:
            return
        if isinstance(key, int):
            self._activities.put(key, lane)
        else:
            self._queue_of(key).put(key, lane)

    def stage(self, effects: Effects) -> None:
        """Drop cached histories that a transaction of the open group has made void; see `Followers`."""
        for instance_id in effects.dropped:
            self.workers.cache.drop(instance_id)

    def follow(self, target: str, lane: Lane, basis: Basis) -> Callable[[Transaction], None] | None:
        """Return a target's work unless it is busy or has failed; see `Followers`."""
        if target in self._pausing_until_us:
            return None
        if target not in self._held and not self._queue_of(target).hold(target):
            return None
        self._held.add(target)
        work = self.workers.follow_batch if is_entity(target) else self.workers.follow_turn

        def run(tx: Transaction) -> None:
            rest = work(tx, target, lane, basis)
            if rest is not None:
                self._begin(target, rest, basis)

        return run

    def _begin(self, target: str, work: Coroutine[Any, Any, None], basis: Basis) -> None:
        """Begin what has to be waited for.

        Raises:
            NotImmediateError: No slot is free.
        """
        if not self._queue_of(target).begin(target, work):
            work.close()
            raise NotImmediateError
        self._held.discard(target)
        basis.expected += 1

    def release(self, *, committed: bool) -> None:
        """Let others work on the targets of the group; see `Followers`."""
        if not committed:
            self.workers.cache.clear()  # it was ahead of the store
        held, self._held = self._held, set()
        for target in held:
            self._queue_of(target).release(target)

    def _queue_of(self, target: str) -> WorkQueue[str]:
        return self._batches if is_entity(target) else self._turns

    def _apply(self, effects: Effects) -> None:
        """Do what a transaction that is now on disk has decided."""
        for instance_id in effects.dropped:
            self.workers.cache.drop(instance_id)
        for due_us, target in effects.timers:
            if self._timers.add(due_us, target):
                self._timer_moved.set()
        for seq, lane in effects.tasks:
            self.wake(seq, lane)
        for target, lane in effects.wake:
            self.wake(target, lane)
        for instance_id in effects.changed:
            self.waiters.notify(instance_id)
        if effects.changed or effects.dropped:
            self._archiver.note()
        for head, failure in effects.failed:
            log_failure(head, failure)
        for target in effects.followed:
            self._note_followed(target)

    def _note_followed(self, target: str) -> None:
        point = FaultPoint.BATCH_COMMITTED if is_entity(target) else FaultPoint.TURN_COMMITTED
        try:
            self._faults(point)
        except Exception as error:  # noqa: BLE001 - as if its handler had raised after the commit
            self._try_again(target, error)

    def _done(self, key: Key, error: Exception | None) -> None:
        if error is not None:
            self._try_again(key, error)
        else:
            self._failures.pop(key, None)
        if self._is_full:
            self._timer_moved.set()
        if self.is_idle:
            self._quiet.set()

    def _try_again(self, key: Key, error: Exception) -> None:
        """Queue a work item again, later each time, for as long as it takes."""
        if is_damage(error):
            self.writer.outage.begin(error)
            return
        self._failures[key] += 1
        pause_us = _pause_us(self._failures[key])
        level = logging.DEBUG if isinstance(error, FencedError) else logging.WARNING
        is_lost = isinstance(error, InvocationLostError)
        why, trace = (f": {error}", None) if is_lost else ("", error)
        _LOGGER.log(level, "work on '%s' failed, again in %.1f s%s", key, pause_us / 1e6, why, exc_info=trace)
        if isinstance(key, str):
            self.workers.cache.drop(key)
        self._pausing_until_us[key] = now_us(self._clock) + pause_us
        self._timers.add_retry(self._pausing_until_us[key], key)
        self._timer_moved.set()

    async def _tick(self) -> None:
        """Wake what is due; the only place that waits for time."""
        while True:
            self._timer_moved.clear()
            next_us = self._hand_over()
            until = None if next_us is None else to_datetime(next_us)
            await self._clock.wait(until, self._timer_moved)

    def _hand_over(self) -> int | None:
        """Wake what is due; return when to look again, None for as soon as there is a timer."""
        if self.writer.outage.is_lasting or now_us(self._clock) < self._next_look_us:
            return self._next_look_us or None
        try:
            if self._is_stale:
                self._recover()
            self._wake_due()
            next_us = self._timers.next_due_us()
            # Only what waits here wakes the next look: a timer that came due meanwhile is looked at now.
            self._is_full = self._due() >= _MOST_DUE
        except Exception as error:
            self._is_stale = True
            if is_damage(error):
                self.writer.outage.begin(error)
                return None
            self._misses += 1
            _LOGGER.exception("timers could not be handed over, looking at the store anew")
            self._next_look_us = now_us(self._clock) + _pause_us(self._misses)
            return self._next_look_us
        self._misses = self._next_look_us = 0
        return None if self._is_full else next_us

    def _due(self) -> int:
        """Return how many keys wait whose timer is due."""
        return sum(queue.due for queue in (self._turns, self._batches, self._activities))

    def _wake_due(self) -> None:
        at_us = now_us(self._clock)
        for key in islice(self._timers.pop_due(at_us), max(_MOST_DUE - self._due(), 0)):
            if self._pausing_until_us.get(key, 0) <= at_us:
                self._pausing_until_us.pop(key, None)
                self._faults(FaultPoint.TIMER_DUE)
                self.wake(key, Lane.DUE)


def _pause_us(failures: int) -> int:
    """Return how long to wait after so many failures (at least 1), one after the other."""
    return min(_FIRST_RETRY_US << min(failures - 1, _DOUBLINGS), _LONGEST_RETRY_US)
