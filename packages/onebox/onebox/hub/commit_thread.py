"""The thread on which commits run while the disk is slow."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

type _Call = tuple[Callable[[], None], asyncio.AbstractEventLoop, asyncio.Future[None]]


class CommitThread:
    """Runs calls of one event loop on a further thread, which the first of them starts.

    An executor of `concurrent.futures` takes twice the processor time for the way there and back: it makes a
    future with locks of its own for each call, and asyncio chains another one to that.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], None]) -> None:
        """Run a call and wait for its end; it goes on if the caller is cancelled.

        Raises:
            Exception: What the call raised.
        """
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._serve, name="hub-commit", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        self._calls.put((call, loop, ended))
        await ended

    def close(self) -> None:
        """Wait for what runs, and end the thread."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, loop, ended = asked
            error: BaseException | None = None
            try:
                call()
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller gets it
                error = raised
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(_end, ended, error)


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return  # its caller was cancelled
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
