"""An event loop for the app's functions, so that one that blocks holds up neither hub nor server."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class WorkerLoop:
    """Runs coroutines on one further thread, as the worker process of the host does on its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a function that blocks for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, name="functions", daemon=True)

    def start(self) -> None:
        """Begin to run what is handed in."""
        self._thread.start()

    async def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there to its end; a caller that is cancelled cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        """Take nothing more; what still runs is left where it is."""
        self._loop.call_soon_threadsafe(self._loop.stop)
