"""An asyncio loop whose time is its own: when nothing is ready, it jumps to the next timer.

A day of waits takes as long as what happens in it, and the same program runs the same way every time:
callbacks run in the order in which they became due, and there are no threads and no sockets.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, override


class StuckError(Exception):
    """Everything waits, and nothing will ever happen."""


class _NoSockets(selectors.SelectSelector):
    """Waits for nothing: it lets the time pass instead."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError
        self.seconds += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time` begins at 0."""

    def __init__(self) -> None:
        self._clock = _NoSockets()
        super().__init__(self._clock)

    @override
    def time(self) -> float:
        return self._clock.seconds


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual loop to its end; whatever is left then is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
