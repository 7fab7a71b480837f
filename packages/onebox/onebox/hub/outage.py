"""While the store cannot be written no work is taken; a small write is tried until it succeeds."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

from onebox.clock import Clock

_LOGGER = logging.getLogger(__name__)
_OUTAGE_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)
_DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FIRST_PAUSE: Final = timedelta(milliseconds=100)
_LONGEST_PAUSE: Final = timedelta(seconds=5)
_PROBATION: Final = timedelta(seconds=5)


class OutageChanged(Protocol):
    """What follows from an outage."""

    def __call__(self, *, outage: bool) -> None:
        """Act on its begin (True) or its end (False)."""
        ...


class StoreGoneError(Exception):
    """The store's file is not in its place any more."""


def ignore_outages(*, outage: bool) -> None:
    """Do nothing."""


def is_outage(error: Exception) -> bool:
    """Return whether SQLite failed for the store's sake, rather than for a mistake in a statement."""
    return _code_of(error) in _OUTAGE_CODES or is_damage(error)


def is_damage(error: Exception) -> bool:
    """Return whether the file is damaged, is no store, or is gone: no later try can succeed."""
    return isinstance(error, StoreGoneError) or _code_of(error) in _DAMAGE_CODES


def _code_of(error: Exception) -> int:
    if not isinstance(error, sqlite3.DatabaseError):
        return 0
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of the code is a detail


class Outage:
    """The present outage, if there is one, and the tries to end it.

    States: none → begun (`begin`, at a failed commit) → work goes on (`end`, at a commit that succeeds)
    → none, once nothing has failed for five seconds. What fails before that makes the same outage go on, with
    a longer pause: on a full disk a small write may succeed where the next large one fails. An outage that
    damage begins lasts until the process ends.

    Args:
        clock: Paces the tries.
        attempt: Writes something small; raises while the store cannot be written.
        changed: Called when work has to stop and when it may go on.
    """

    def __init__(self, clock: Clock, attempt: Callable[[], Awaitable[None]], changed: OutageChanged) -> None:
        self._clock = clock
        self._attempt = attempt
        self._changed = changed
        self._over = asyncio.Event()
        self._over.set()
        self._begun = asyncio.Event()  # set whenever `_over` is not
        self._trying: asyncio.Task[None] | None = None
        self.reason = ""
        self.is_lasting = False

    def begin(self, error: Exception) -> None:
        """Note that a commit has failed, or that the store is damaged; the log gets one line per outage."""
        damaged = is_damage(error)
        if self.is_lasting or not (self._over.is_set() or damaged):
            return
        is_known = bool(self.reason) and not damaged
        self.is_lasting = damaged
        if damaged:
            what = "gone" if isinstance(error, StoreGoneError) else "damaged"
            self.reason = f"the task hub's store is {what}: {error}"
            _LOGGER.error('%s; no work is taken, see docs/onebox.md, "A damaged store"', self.reason)
        elif not is_known:
            self.reason = f"the task hub's store cannot be written: {error}"
            _LOGGER.error("%s; no work is taken until it can", self.reason)
        self._over.clear()
        self._begun.set()
        self._changed(outage=True)
        if not (damaged or is_known):
            self._trying = asyncio.create_task(self._try())

    def end(self) -> None:
        """Note that a commit has succeeded."""
        if not self._over.is_set() and not self.is_lasting:
            self._over.set()
            self._begun.clear()
            self._changed(outage=False)

    async def over(self) -> None:
        """Wait until work may go on."""
        await self._over.wait()

    async def close(self) -> None:
        """Try no more."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait([self._trying])

    async def _try(self) -> None:
        pause = _FIRST_PAUSE
        while not self.is_lasting:
            await self._wait(pause, self._over)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                await self._attempt()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                _LOGGER.debug("still not: %s", error)
            await self._wait(_PROBATION, self._begun)
            if self._over.is_set():
                self.reason = ""
                _LOGGER.warning("the task hub's store can be written again")
                return

    async def _wait(self, duration: timedelta, change: asyncio.Event) -> None:
        """Wait for so long, or until something changes."""
        due = self._clock.now() + duration
        while self._clock.now() < due and not change.is_set():
            await self._clock.wait(due, change)
