"""Where coroutines of the functions run: on a thread of their own, or where their caller runs."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
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
        return await asyncio.wrap_future(self.submit(work))

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


class CallersLoop:
    """Runs coroutines where their caller runs: for a host whose functions run in other processes."""

    def start(self) -> None:
        """Do nothing."""

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return await work

    def stop(self) -> None:
        """Do nothing."""
