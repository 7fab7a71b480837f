"""Heartbeats keep an attempt alive, and what they report is stored for the next one.

heartbeat = Heartbeat(30.0, store, earlier)
async with heartbeat.kept_alive(seconds_left):      # TimeoutError without one for 30 s
...  # the function, which calls `heartbeat.report(progress)`, also from a thread
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from durable_retry.base.foreign import plain_json
from durable_retry.features.handlers.rules.steps import progress_text
from durable_retry.runtime import clock

# The longest pause between two writes of what was reported: a crash loses what came after the last one.
_LONGEST_PAUSE_SECONDS: Final = 10.0

# How often the last report is written at the end, until storage takes it.
_LAST_TRIES: Final = 3


class Heartbeat:
    """The heartbeats of one attempt.

    Args:
        seconds: The longest time without one.
        store: Stores what was reported last, as JSON text; returns False where that must be repeated.
        progress: What an earlier attempt reported last; None when none did.
    """

    def __init__(self, seconds: float, store: Callable[[str], Awaitable[bool]], progress: Any) -> None:
        self.progress = progress
        self._seconds, self._store = seconds, store
        self._loop = asyncio.get_running_loop()
        self._limit: asyncio.Timeout | None = None
        self._ends_at = 0.0
        self._alive_until = clock.monotonic_seconds() + seconds
        self._latest: str | None = None
        self._reported = asyncio.Event()

    @property
    def seconds_left(self) -> float:
        """How long the attempt lives on without a report."""
        return self._alive_until - clock.monotonic_seconds()

    def missed(self) -> TimeoutError:
        """Return the error of an attempt that reported nothing in time."""
        return TimeoutError(f"no heartbeat within {self._seconds:g} s")

    def report(self, progress: Any) -> None:
        """Report progress; from the thread of the event loop or any other.

        Raises:
            InvalidInputError: It has no JSON form, or is too large.
            TimeoutError: The attempt is over.
        """
        text = progress_text(plain_json(progress, "/progress"))
        if self._limit is None:
            raise TimeoutError("this attempt is over; another one may run")
        self._alive_until = clock.monotonic_seconds() + self._seconds
        self._loop.call_soon_threadsafe(self._note, text, self._loop.time())

    def _note(self, text: str, at: float) -> None:
        self._latest = text
        self._reported.set()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(min(self._ends_at, at + self._seconds))

    def stop(self) -> None:
        """End the attempt as soon as possible: nothing that it reports counts any more."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(self._loop.time())

    @contextlib.asynccontextmanager
    async def kept_alive(self, seconds_left: float) -> AsyncIterator[asyncio.Timeout]:
        """Run a block that ends after `seconds_left`, and sooner when heartbeats stay away.

        Raises:
            TimeoutError: The block took too long.
        """
        self._ends_at = self._loop.time() + seconds_left
        CURRENT.set(self)
        writer = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(min(seconds_left, self._seconds)) as self._limit:
                yield self._limit
        except TimeoutError as error:
            if self._limit is not None and self._limit.expired() and self._loop.time() < self._ends_at:
                raise self.missed() from error.__cause__
            raise
        finally:
            self._limit = None
            writer.cancel()
            await asyncio.wait([writer])
            for _ in range(_LAST_TRIES):
                if await self._is_latest_stored():
                    break

    async def _write(self) -> None:
        while True:
            await self._reported.wait()
            self._reported.clear()
            if not await self._is_latest_stored():
                self._reported.set()
            await asyncio.sleep(min(self._seconds / 2, _LONGEST_PAUSE_SECONDS))

    async def _is_latest_stored(self) -> bool:
        """Store the latest report, unless that was done; return whether it is stored now."""
        text = self._latest
        if text is None:
            return True
        # The end of the attempt cancels the writer in the midst of this; then the report is still there.
        is_stored = await self._store(text)
        if is_stored and self._latest is text:
            self._latest = None
        return is_stored


CURRENT: Final[ContextVar[Heartbeat | None]] = ContextVar("heartbeat", default=None)
"""The heartbeats of the attempt that runs here; the test kit asks them what a slow answer means."""
