"""Where coroutines of the functions run: on a thread of their own, or where their caller runs."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

_LOG = logging.getLogger("onebox.functions")


class WorkerLoop:
    """Runs coroutines on one further thread.

    A function that blocks holds up other functions and the hub, which could run none of them meanwhile, but
    not the web server.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = False
        # A daemon: a function that blocks for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name="functions", daemon=True)

    def start(self) -> None:
        """Begin to run what is handed in."""
        self._thread.start()

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there to its end; a caller that is cancelled cancels it there.

        A caller that runs there already goes on in its own task.
        """
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await _Crossing(work, self._loop).result()

    def submit[T](self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine there; any thread may call this."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _serve(self) -> None:
        """Run until stopped: asyncio lets these two out of a task of the app's, which would end the loop."""
        while not self._stopping:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as escaped:
                _LOG.error("a task of the app raised %s: its event loop goes on", type(escaped).__name__)

    def stop(self) -> None:
        """Take nothing more; what still runs is left where it is."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)


class _Crossing[T]:
    """A coroutine on another thread's event loop, and its caller's future.

    What `run_coroutine_threadsafe` and `wrap_future` do together, without the locks of a future for which any
    thread may wait.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._caller = asyncio.get_running_loop()
        self._answer: asyncio.Future[T] = self._caller.create_future()
        self._task: asyncio.Task[None] | None = None

    async def result(self) -> T:
        """Run the coroutine and return its result; a caller that is cancelled cancels it."""
        self._loop.call_soon_threadsafe(self._begin)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(self._cancel)
            raise

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._carry_out())
        self._task.add_done_callback(self._end)

    async def _carry_out(self) -> None:
        """Run the coroutine; the caller gets its result before anything else runs here."""
        self._post(self._succeed, await self._work)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._work.close()  # it may not have begun
            self._post(self._answer.cancel)
        elif (error := task.exception()) is not None:
            self._post(self._fail, error)

    def _post(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            self._caller.call_soon_threadsafe(call, *arguments)

    def _succeed(self, result: T) -> None:
        if not self._answer.done():
            self._answer.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


class CallersLoop:
    """Runs coroutines where their caller runs: for a host whose functions run in other processes."""

    def start(self) -> None:
        """Do nothing."""

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return await work

    def stop(self) -> None:
        """Do nothing."""
