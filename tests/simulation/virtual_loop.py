"""An asyncio loop whose time is its own: when nothing is ready, it jumps to the next timer.

A day of waits takes as long as what happens in it, and the same program runs the same way every time:
callbacks run in the order in which they became due, and there are no threads and no sockets.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, cast, override

_TASKS_KEPT: Final = 1_000
"""So many tasks are kept before those that have ended are forgotten."""


class StuckError(Exception):
    """Everything waits, and nothing will ever happen."""


class _Call:
    """A callback that is due now or later. asyncio's own handles take several times as long to make."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; `time` begins at 0.

    Attributes:
        tasks: Those that were made here, but for some that have ended. They are kept: nothing else keeps a
            task that waits for something which is forgotten.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[asyncio.Task[Any]] = []
        self._seconds = 0.0
        self._due: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = count()
        self._kept = _TASKS_KEPT

    @override
    def time(self) -> float:
        return self._seconds

    @override
    def call_soon[*Ts](
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(callback, args, copy_context() if context is None else context, self._seconds)
        self._due.append(call)
        return cast("asyncio.Handle", call)

    @override
    def call_soon_threadsafe[*Ts](
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # There are no threads.

    @override
    def call_at[*Ts](
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call = _Call(callback, args, copy_context() if context is None else context, when)
        heappush(self._timers, (when, next(self._number), call))
        return cast("asyncio.TimerHandle", call)

    @override
    def call_later[*Ts](
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._seconds + delay, callback, *args, context=context)

    @override
    def create_task[T](
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self.tasks.append(task)
        if len(self.tasks) > self._kept:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._kept = max(_TASKS_KEPT, 2 * len(self.tasks))
        return task

    def _run_once(self) -> None:
        """Run the next callback; when none is due, let the time pass until the next timer."""
        call = self._due.popleft() if self._due else self._next()
        if call.is_cancelled:
            return
        try:
            call.context.run(call.callback, *call.args)
        except Exception as error:  # noqa: BLE001 - as asyncio's handles do
            about = {"message": f"Exception in callback {call.callback}", "exception": error}
            self.call_exception_handler(about)

    def _next(self) -> _Call:
        if not self._timers:
            raise StuckError
        when, _, call = heappop(self._timers)
        if not call.is_cancelled:
            self._seconds = max(self._seconds, when)
        return call


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual loop to its end; whatever is left then is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_the_rest(loop)
        finally:
            loop.close()


def _cancel_the_rest(loop: VirtualLoop) -> None:
    left = [task for task in loop.tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))


def tasks_left() -> list[asyncio.Task[Any]]:
    """Return the tasks of the running virtual loop that have not ended, but for the present one."""
    loop, present = asyncio.get_running_loop(), asyncio.current_task()
    assert isinstance(loop, VirtualLoop)
    return [task for task in loop.tasks if task is not present and not task.done()]
