"""Runs work items, a bounded number at a time and never two for the same key."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from onebox.hub.model import Lane

# Which lane each slot looks at first. A due retry gets every second slot however many first attempts wait,
# what has started gets three in eight so that it ends before more begins, and new work one in eight so that
# it never starves. A slot whose lane is empty goes to the most urgent that is not.
_ROTA: Final = (Lane.DUE, Lane.GOING, Lane.DUE, Lane.GOING, Lane.DUE, Lane.GOING, Lane.DUE, Lane.NEW)


_CANCEL_SECONDS: Final = 1.0  # for what is cancelled to notice; what ignores it is left behind


class Lanes[K]:
    """Keys that wait, by urgency."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[K]] = {lane: deque() for lane in Lane}
        self._slot = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

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
    """Hands keys to a handler.

    A key that is put while it runs runs once more afterwards; one that waits already is not added again.

    Args:
        limit: How many run at the same time.
        handle: Does the work for one key.
        done: Called after each run, with what `handle` raised or None.
    """

    def __init__(
        self,
        limit: int,
        handle: Callable[[K, Lane], Awaitable[None]],
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
            self._running[key] = asyncio.create_task(self._run(key, lane), context=self._context.copy())

    async def _run(self, key: K, lane: Lane) -> None:
        failure: Exception | None = None
        try:
            await self._handle(key, lane)
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner decides when to try again
            failure = error
        except asyncio.CancelledError:
            if not self._open:
                raise  # a stop gives the work back to the store
            failure = RuntimeError("the work was cancelled by something that it awaited")
        finally:
            del self._running[key]
            again = self._again.pop(key, None)
            if again is not None:
                self.put(key, again)
            self._fill()
            self._done(key, failure)
