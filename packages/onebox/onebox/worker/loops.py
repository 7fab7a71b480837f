"""The thread and event loop on which an app is served, and the limit of a function's time."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from onebox.worker.stalls import log_until

_LOG = logging.getLogger("onebox.functions")
_HELD_UP_SECONDS: Final = 5.0
_HELD_UP: Final = "the event loop has been held up for"


class WorkerLoop:
    """Runs coroutines on one further thread.

    Everything of one app runs there: its functions, the task hub, the web server and the listeners. So none
    of them waits for another thread. The main thread starts and stops them, and takes signals also while a
    function blocks this loop. The loop is uvloop's, as in the Azure worker for Python 3.13.
    """

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._stopped = threading.Event()
        self._passed = threading.Event()  # whether the loop has done what the watch asked it to
        # A daemon: a function that blocks for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name="functions", daemon=True)

    def start(self) -> None:
        """Begin to run what is handed in."""
        self._thread.start()

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there to its end; a caller that is cancelled cancels it."""
        return await asyncio.wrap_future(self.submit(work))

    def submit[T](self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine there; any thread may call this."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def watch(self, folder: Path, first_seconds: float = _HELD_UP_SECONDS) -> None:
        """Log which line of the app holds the loop up, after 5 s, 10 s, 20 s and so on.

        Args:
            folder: The app's.
            first_seconds: When to log first, and how long to wait between two looks at a loop that runs.
        """
        watch = threading.Thread(
            target=self._watch, args=(folder, first_seconds), name="watch the loop", daemon=True
        )
        watch.start()

    def _watch(self, folder: Path, first_seconds: float) -> None:
        while not self._stopped.wait(first_seconds):
            try:
                self._loop.call_soon_threadsafe(self._passed.set)
            except RuntimeError:
                return  # it is closed
            log_until(self._passed, _HELD_UP, self._thread, folder, first_seconds)
            self._passed.clear()  # not before the question: a stop in between must end the wait

    def _serve(self) -> None:
        """Run until stopped: asyncio lets these two out of a task of the app's, which would end the loop."""
        while not self._stopped.is_set():
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as escaped:
                _LOG.error("a task of the app raised %s: its event loop goes on", type(escaped).__name__)

    def stop(self) -> None:
        """Take nothing more; what still runs is left where it is."""
        self._stopped.set()
        self._passed.set()
        self._loop.call_soon_threadsafe(self._loop.stop)


@dataclass(eq=False, slots=True)
class _Run:
    """A run under a limit: its task, when it is out of time, and how often the task was cancelled before."""

    task: asyncio.Task[Any]
    due: float
    cancelling: int
    expired: bool = False


class AttemptClock:
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
