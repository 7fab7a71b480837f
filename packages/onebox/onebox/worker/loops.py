"""Where coroutines of the functions run, on a thread of their own or where their caller runs; their time."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
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

    async def run[T](self, work: Coroutine[Any, Any, T], *, shielded: bool = False) -> T:
        """Run a coroutine there to its end.

        A caller that runs there already goes on in its own task.

        Args:
            work: The coroutine.
            shielded: Whether it goes on when its caller is cancelled, which cancels it otherwise.
        """
        if asyncio.get_running_loop() is self._loop:
            return await asyncio.shield(work) if shielded else await work
        return await _Crossing(work, self._loop, shielded=shielded).result()

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

    def __init__(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, *, shielded: bool
    ) -> None:
        self._work = work
        self._loop = loop
        self._shielded = shielded
        self._caller = asyncio.get_running_loop()
        self._answer: asyncio.Future[T] = self._caller.create_future()
        self._task: asyncio.Task[None] | None = None

    async def result(self) -> T:
        """Run the coroutine and return its result; a caller that is cancelled cancels it, unless shielded."""
        self._loop.call_soon_threadsafe(self._begin)
        try:
            return await self._answer
        except asyncio.CancelledError:
            if not self._shielded:
                self._loop.call_soon_threadsafe(self._cancel)
            raise

    def _begin(self) -> None:
        # Eagerly: what need not wait is done in this pass of the loop.
        self._task = asyncio.Task(self._carry_out(), loop=self._loop, eager_start=True)

    async def _carry_out(self) -> None:
        """Run the coroutine; the caller gets its result before anything else runs here."""
        try:
            result = await self._work
        except asyncio.CancelledError:
            self._post(self._answer.cancel)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's
            self._post(self._fail, error)
        else:
            self._post(self._succeed, result)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _post(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            self._caller.call_soon_threadsafe(call, *arguments)

    def _succeed(self, result: T) -> None:
        if not self._answer.done():
            self._answer.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


@dataclass(eq=False, slots=True)
class _Run:
    """A run under a limit: its task, when it is out of time, and how often the task was cancelled before."""

    task: asyncio.Task[Any]
    due: float
    cancelling: int
    expired: bool = False


class TimeLimit:
    """Ends what takes longer than a limit, by one timer for all that runs.

    What `asyncio.timeout` does, without a timer for each run that is nearly always taken back. All runs have
    the same limit, so the oldest is the next to end. Used on one event loop.

    Args:
        seconds: The limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._runs: dict[_Run, None] = {}
        self._is_set = False

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine.

        Raises:
            TimeoutError: It was cancelled because it took longer.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine is awaited by a task
        loop = asyncio.get_running_loop()
        run = _Run(task, loop.time() + self._seconds, task.cancelling())
        self._runs[run] = None
        if not self._is_set:
            self._is_set = True
            loop.call_at(run.due, self._look, loop)
        try:
            return await work
        except asyncio.CancelledError as cancelled:
            if run.expired and task.cancelling() - 1 <= run.cancelling:
                raise TimeoutError from cancelled
            raise  # somebody else has cancelled it
        finally:
            self._runs.pop(run, None)
            if run.expired:
                task.uncancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is out of time, and look again when the oldest of the others will be."""
        now = loop.time()
        while self._runs:
            oldest = next(iter(self._runs))
            if oldest.due > now:
                loop.call_at(oldest.due, self._look, loop)
                return
            del self._runs[oldest]
            oldest.expired = True
            oldest.task.cancel()
        self._is_set = False


class CallersLoop:
    """Runs coroutines where their caller runs: for a host whose functions run in other processes."""

    def start(self) -> None:
        """Do nothing."""

    async def run[T](self, work: Coroutine[Any, Any, T], *, shielded: bool = False) -> T:
        """Run a coroutine to its end; see `WorkerLoop.run`."""
        return await asyncio.shield(work) if shielded else await work

    def stop(self) -> None:
        """Do nothing."""
