"""What runs next: work items by urgency, a bounded number at a time, and the timers that wake them."""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from onebox.hub.model import Lane

NEVER: Final = 2**63 - 1  # the largest instant that SQLite can hold

type Key = str | int
"""What to wake: an instance, an entity, or (an integer) an activity."""
# The lane that each slot looks at first. What has started ends before more begins: a due retry has one result
# and a start two answers, so five slots in eight are enough for them whatever is due or begins, and no result
# waits behind all timers that came due before it. A due retry gets two in eight however many first attempts
# wait, and new work one, so that it never starves. A slot whose lane is empty goes to the most urgent.
_ROTA: Final = (Lane.GOING, Lane.DUE, Lane.GOING, Lane.GOING, Lane.DUE, Lane.GOING, Lane.GOING, Lane.NEW)


_CANCEL_SECONDS: Final = 1.0  # for what is cancelled to notice; what ignores it is left behind


class Timers:
    """Knows what is due next.

    The store holds all timers; the heap holds those up to a horizon and is refilled from the store when it
    runs empty. So a million timers cost no more memory than the nearest few thousand. A finished instance's
    timers are not searched for: they wake nobody when their time comes.

    Args:
        load: Returns the next timers after an instant: at least `limit` if there are as many.
        limit: How many to load at a time.
    """

    def __init__(self, load: Callable[[int, int], list[tuple[int, str]]], limit: int = 5_000) -> None:
        self._load = load
        self._limit = limit
        self._stored: list[tuple[int, str]] = []
        self._horizon_us = -1
        self._trim_above = 4 * limit
        self._retries: list[tuple[int, Key]] = []

    def refill(self) -> None:
        """Forget what was loaded and begin from the store."""
        self._stored, self._horizon_us = [], -1
        self._load_more()

    def add(self, due_us: int, target: str) -> bool:
        """Note a timer that is in the store; return whether it is now the next one due."""
        if due_us > self._horizon_us:
            return False
        heapq.heappush(self._stored, (due_us, target))
        self._trim()
        return self._stored[0][0] == due_us

    def add_retry(self, due_us: int, key: Key) -> None:
        """Note that a work item that failed is to be tried again; a restart would do so anyway."""
        heapq.heappush(self._retries, (due_us, key))

    def next_due_us(self) -> int | None:
        """When the next timer is due; None when there is none."""
        if not self._stored:
            self._load_more()
        heads = [heap[0][0] for heap in (self._stored, self._retries) if heap]
        return min(heads, default=None)

    def pop_due(self, now_us: int) -> Iterator[Key]:
        """Remove what is due and yield whom to wake, earliest first."""
        while (next_us := self.next_due_us()) is not None and next_us <= now_us:
            is_retry = self._retries and self._retries[0][0] == next_us
            yield heapq.heappop(self._retries)[1] if is_retry else heapq.heappop(self._stored)[1]

    def _load_more(self) -> None:
        if self._horizon_us == NEVER:
            return
        rows = self._load(self._horizon_us, self._limit)
        self._horizon_us = max(row[0] for row in rows) if len(rows) > self._limit else NEVER
        self._stored = rows
        heapq.heapify(self._stored)

    def _trim(self) -> None:
        """Leave the far part to the store once too many have been added.

        Timers of one instant stay together, so it may be that little or nothing can go: the next try waits
        until there are twice as many, or each timer added would sort all the others.
        """
        if len(self._stored) <= self._trim_above:
            return
        self._stored.sort()
        self._horizon_us = self._stored[self._limit][0]
        self._stored = [entry for entry in self._stored if entry[0] <= self._horizon_us]
        self._trim_above = max(4 * self._limit, 2 * len(self._stored))


class Lanes[K]:
    """Keys that wait, by urgency."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[K]] = {lane: deque() for lane in Lane}
        self._slot = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def count(self, lane: Lane) -> int:
        """Return how many keys wait in a lane."""
        return len(self._lanes[lane])

    def put(self, key: K, lane: Lane) -> None:
        """Add a key at the end of its lane."""
        self._lanes[lane].append(key)

    def pop(self) -> tuple[K, Lane]:
        """Take the next key.

        Raises:
            IndexError: Nothing waits.
        """
        preferred = _ROTA[self._slot % len(_ROTA)]
        self._slot += 1
        for lane in (preferred, *Lane):
            if self._lanes[lane]:
                return self._lanes[lane].popleft(), lane
        raise IndexError("pop from empty lanes")


class WorkQueue[K]:
    """Passes keys to a handler.

    A key that is put while it runs runs once more afterwards; one that waits already is not added again.

    Args:
        limit: How many run at the same time.
        handle: Does the work for one key.
        done: Called after each run, with what `handle` raised or None.
    """

    def __init__(
        self,
        limit: int,
        handle: Callable[[K, Lane], Coroutine[Any, Any, None]],
        *,
        done: Callable[[K, Exception | None], None],
    ) -> None:
        self._limit = limit
        self._handle = handle
        self._done = done
        self._lanes: Lanes[K] = Lanes()
        self._waiting: set[K] = set()
        self._running: dict[K, asyncio.Task[None]] = {}
        self._again: dict[K, Lane] = {}
        self._held: set[K] = set()
        self._open = self._paused = False
        # Each run has a copy of the hub's own context, never that of the client whose call made it ready.
        self._context = contextvars.copy_context()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._running and not self._held

    @property
    def due(self) -> int:
        """How many keys wait whose timer is due."""
        return self._lanes.count(Lane.DUE)

    def put(self, key: K, lane: Lane) -> None:
        """Have the handler look at a key."""
        if key in self._running or key in self._held:
            self._again[key] = min(lane, self._again.get(key, lane))
        elif key not in self._waiting:
            self._waiting.add(key)
            self._lanes.put(key, lane)
            self._fill()

    def hold(self, key: K) -> bool:
        """Keep the handler from a key until `release`, unless it runs or waits, or nothing is handed out.

        Returns:
            Whether the key is held.
        """
        if key in self._running or key in self._waiting or not self._open:
            return False
        self._held.add(key)
        return True

    def begin(self, key: K, work: Coroutine[Any, Any, None]) -> bool:
        """Run work for a key that is held, in the place of the handler and of `release`, if a slot is free.

        Returns:
            Whether it runs.
        """
        if self._paused or self._waiting or len(self._running) >= self._limit:
            return False
        self._held.discard(key)
        self._start(key, work)
        return True

    def release(self, key: K) -> None:
        """Let the handler look at a key again, if it was put meanwhile."""
        self._held.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self.put(key, again)

    def open(self) -> None:
        """Begin to hand out work."""
        self._open = True
        self._fill()

    def pause(self) -> None:
        """Start no more work until `resume`; what runs goes on."""
        self._paused = True

    def resume(self) -> None:
        """Start work again, unless the queue is closed."""
        self._paused = False
        self._fill()

    async def close(self, seconds: float) -> None:
        """Hand out no more; wait so long for what runs, then cancel it."""
        self._open = False
        if not self._running:
            return
        running = list(self._running.values())
        _, late = await asyncio.wait(running, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCEL_SECONDS)

    def _fill(self) -> None:
        while self._open and not self._paused and self._waiting and len(self._running) < self._limit:
            key, lane = self._lanes.pop()
            self._waiting.discard(key)
            self._start(key, self._handle(key, lane))

    def _start(self, key: K, work: Coroutine[Any, Any, None]) -> None:
        self._running[key] = asyncio.create_task(self._run(key, work), context=self._context.copy())

    async def _run(self, key: K, work: Coroutine[Any, Any, None]) -> None:
        failure: Exception | None = None
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner decides when to try again
            failure = error
        except asyncio.CancelledError:
            if not self._open:
                raise  # a stop gives the work back to the store
            failure = RuntimeError("the work was cancelled by something that it awaited")
        finally:
            del self._running[key]
            again = self._again.pop(key, None)
            if again is not None and failure is None:  # else the owner says when, and it then sees all
                self.put(key, again)
            self._fill()
            self._done(key, failure)
