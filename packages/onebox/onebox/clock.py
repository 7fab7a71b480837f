"""The one reader of time in onebox, handed in wherever an instant matters."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

# A wait is cut into pieces no longer than this, so that a stepped wall clock or a suspended machine
# delays a timer by at most one piece: the event loop counts monotonic time, timers are wall-clock instants.
_LONGEST_PIECE_SECONDS = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where time comes from, and how it is waited for."""

    def now(self) -> datetime:
        """Return the present instant, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed point, for durations; never goes back."""
        ...

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        """Return when `until` has come or `wake` is set, whichever is first.

        It may also return early: the caller looks at `now()` and at `wake` again. It does not clear `wake`.

        Args:
            until: Aware UTC instant; None waits for `wake` alone.
            wake: Ends the wait as soon as it is set.
        """
        ...


class SystemClock:
    """The machine's own clock, except that it never goes back.

    A wall clock can be stepped back, by NTP or by a person. Timers that were taken as due would then lie in
    the future again, and events would be stored before those that caused them. After such a step this clock
    runs at half speed until the wall clock has caught up. A step forward is followed at once.

    Args:
        wall: Returns nanoseconds since 1970.
        monotonic: Returns nanoseconds that never decrease.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()  # any thread may read it
        self._last_ns = wall()
        self._read_ns = monotonic()

    def now(self) -> datetime:
        """Return the time in UTC, no earlier than at any call before."""
        with self._lock:
            read_ns = self._monotonic()
            self._last_ns = max(self._wall(), self._last_ns + (read_ns - self._read_ns) // 2)
            self._read_ns = read_ns
            return _EPOCH + timedelta(microseconds=self._last_ns // 1000)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return self._monotonic() / 1e9

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        """Wait for the instant or the event; early after 30 s so that a stepped clock is noticed."""
        if until is None:
            await wake.wait()
            return
        seconds = (until - self.now()).total_seconds()
        if seconds <= 0 or wake.is_set():
            return
        try:
            async with asyncio.timeout(min(seconds, _LONGEST_PIECE_SECONDS)):
                await wake.wait()
        except TimeoutError:
            return


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._now = start
        self._moved = asyncio.Event()
        self._waits: list[datetime] = []

    def now(self) -> datetime:
        """Return the instant that the test has set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that the test has let pass."""
        return (self._now - self._start).total_seconds()

    @property
    def next_due(self) -> datetime | None:
        """The earliest instant that somebody waits for; None when nobody does."""
        return min(self._waits, default=None)

    def advance(self, by: timedelta) -> None:
        """Move on by `by` (not negative) and let everybody who waits look again.

        Raises:
            ValueError: `by` is negative.
        """
        if by < timedelta():
            raise ValueError(f"time does not go back: {by}")
        self.advance_to(self._now + by)

    def advance_to(self, instant: datetime) -> None:
        """Move on to `instant`; an instant in the past changes nothing."""
        self._now = max(self._now, instant)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        """Wait for the event, or until the test has moved the clock to `until`."""
        if until is None:
            await wake.wait()
            return
        self._waits.append(until)
        try:
            while self._now < until and not wake.is_set():
                await _first_of(self._moved, wake)
        finally:
            self._waits.remove(until)


async def _first_of(*events: asyncio.Event) -> None:
    """Return as soon as one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
