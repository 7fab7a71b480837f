"""Keeps the hub going: what is ready, what is due, and what to do when something breaks."""

import asyncio
import logging
import sqlite3
from collections import defaultdict
from typing import Final

from onebox.clock import Clock
from onebox.hub.dispatch import WorkQueue
from onebox.hub.faults import FaultPoint, FaultPoints
from onebox.hub.instants import now_us, to_datetime
from onebox.hub.invoker import Invoker
from onebox.hub.model import Effects, Lane
from onebox.hub.settings import HubSettings
from onebox.hub.store.reading import Reader
from onebox.hub.store.transaction import is_entity
from onebox.hub.store.writer import Writer
from onebox.hub.timers import Key, Timers
from onebox.hub.waiters import Waiters
from onebox.hub.workers import Workers

_LOGGER = logging.getLogger(__name__)
_FIRST_RETRY_US: Final = 100_000
_LONGEST_RETRY_US: Final = 30_000_000
_DOUBLINGS: Final = 10  # after which the longest is reached in any case


class Engine:
    """Applies what transactions have decided: wakes, timers, tasks.

    All of its memory can be rebuilt from the store (`recover`), which is what a start does, and what happens
    when a commit succeeded but its effects were lost.
    """

    def __init__(
        self,
        *,
        db: sqlite3.Connection,
        reader: Reader,
        invoker: Invoker,
        clock: Clock,
        settings: HubSettings,
        faults: FaultPoints,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._settings = settings
        self._faults = faults
        self._failures: defaultdict[Key, int] = defaultdict(int)
        self._timer_moved = asyncio.Event()
        self._quiet = asyncio.Event()
        self._timers = Timers(reader.timers)
        self._ticking: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        self.writer = Writer(
            db, clock, apply=self._apply, lost=self.recover, faults=faults, first_seq=reader.last_seq()
        )
        self.workers = Workers(
            reader=reader,
            writer=self.writer,
            invoker=invoker,
            clock=clock,
            settings=settings,
            faults=faults,
            retry=lambda key: self.wake(key, Lane.GOING),
        )
        self._turns = WorkQueue[str](settings.max_turns, self.workers.turn, done=self._done)
        self._batches = WorkQueue[str](settings.max_batches, self.workers.batch, done=self._done)
        self._activities = WorkQueue[int](settings.max_activities, self.workers.activity, done=self._done)

    async def start(self) -> None:
        """Take up everything that the store holds."""
        self.recover()
        for queue in (self._turns, self._batches, self._activities):
            queue.open()
        self._ticking = asyncio.create_task(self._tick())

    async def drain(self) -> None:
        """Take no more work; what does not end in time is given back to the store."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
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
            next_us = self._timers.next_due_us()
            if self.is_idle and (next_us is None or next_us > now_us(self._clock)):
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

    def recover(self) -> None:
        """Look at the store anew; what is queued or running already is not queued twice."""
        self._timers.refill()
        targets = self._reader.ready_targets(now_us(self._clock))
        tasks = self._reader.ready_tasks()
        for target, lane in targets:
            self.wake(target, lane)
        for seq, lane in tasks:
            self._activities.put(seq, lane)
        if targets or tasks:
            _LOGGER.info("taking up %d inboxes and %d activities from the store", len(targets), len(tasks))
        self._timer_moved.set()

    def wake(self, key: Key, lane: Lane) -> None:
        """Have somebody look at an instance, an entity or an activity."""
        if isinstance(key, int):
            self._activities.put(key, lane)
        elif is_entity(key):
            self._batches.put(key, lane)
        else:
            self._turns.put(key, lane)

    def _apply(self, effects: Effects) -> None:
        """Do what a transaction that is now on disk has decided."""
        for instance_id in effects.dropped:
            self.workers.cache.drop(instance_id)
        for due_us, target in effects.timers:
            if self._timers.add(due_us, target):
                self._timer_moved.set()
        for seq, lane in effects.tasks:
            self._activities.put(seq, lane)
        for target, lane in effects.wake:
            self.wake(target, lane)
        for instance_id in effects.changed:
            self.waiters.notify(instance_id)

    def _done(self, key: Key, error: Exception | None) -> None:
        if error is not None:
            self._try_again(key, error)
        else:
            self._failures.pop(key, None)
        if self.is_idle:
            self._quiet.set()

    def _try_again(self, key: Key, error: Exception) -> None:
        """Queue a work item again, later each time, for as long as it takes."""
        count = min(self._failures[key], _DOUBLINGS)
        self._failures[key] += 1
        delay_us = min(_FIRST_RETRY_US * 2**count, _LONGEST_RETRY_US)
        _LOGGER.warning("work on '%s' failed, again in %.1f s", key, delay_us / 1e6, exc_info=error)
        if isinstance(key, str):
            self.workers.cache.drop(key)
        self._timers.add_retry(now_us(self._clock) + delay_us, key)
        self._timer_moved.set()

    async def _tick(self) -> None:
        """Wake what is due; the only place that waits for time."""
        while True:
            self._timer_moved.clear()
            try:
                self._wake_due()
                next_us = self._timers.next_due_us()
            except Exception:
                _LOGGER.exception("timers could not be handed over, looking at the store anew")
                self.recover()
                next_us = now_us(self._clock) + _FIRST_RETRY_US
            until = None if next_us is None else to_datetime(next_us)
            await self._clock.wait(until, self._timer_moved)

    def _wake_due(self) -> None:
        at_us = now_us(self._clock)
        for key in self._timers.pop_due(at_us):
            self._faults(FaultPoint.TIMER_DUE)
            self.wake(key, Lane.DUE)
