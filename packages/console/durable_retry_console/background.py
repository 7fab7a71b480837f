"""Writing to storage on a thread of its own, so that nothing that is counted or noted waits for storage."""

import atexit
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import batched, groupby
from operator import itemgetter, methodcaller
from typing import Final

from durable_retry.runtime import clock
from durable_retry.storage import tables

# The longest pause between writes while storage is away. A list that is read meanwhile has them written.
_MOST_PAUSE_SECONDS: Final = 30.0
# How long the end of a process waits for a write that is under way.
_LEAVE_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


class BackgroundWriter[K, V](ABC):
    """Holds what is to be written, by its key, until a thread has written it, or the process's end.

    Attributes:
        held: What waits, the first held first.
        failing_since: Since when storage has not taken what is written; None while it takes it.
        dropped_since: Since when too much waited for storage, so that something was dropped; None while none.
    """

    def __init__(
        self, name: str, pause_seconds: float, soon_seconds: float | None = None, most_held: int = 20_000
    ) -> None:
        """Make a writer that has not begun.

        Args:
            name: What it writes, for the log.
            pause_seconds: From the beginning of a write to that of the next one, at least.
            soon_seconds: From a change after a pause to its write; None for as long as the pause.
            most_held: The oldest that waits for storage beyond this is dropped.
        """
        self._name = name
        self._pause_seconds = self._least_pause_seconds = pause_seconds
        self._soon_seconds = pause_seconds if soon_seconds is None else soon_seconds
        self._most_held = most_held
        self.held: dict[K, V] = {}
        self._lock = threading.RLock()  # of what is held
        self._last_write = float("-inf")  # when it began, in monotonic seconds
        self.failing_since: datetime | None = None
        self.dropped_since: datetime | None = None
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._writing = threading.Lock()  # one write at a time
        self._thread: threading.Thread | None = None
        self._is_on = False

    @abstractmethod
    def _write(self, held: Mapping[K, V]) -> None:
        """Write by `replace` what was held; where that raises, all of it is held again."""

    def _is_older(self, value: V, known: V) -> bool:  # noqa: ARG002 - of most the latest is written
        """Whether what is held already under the same key stays in place of a value."""
        return False

    def _announce(self) -> None:  # noqa: B027 - most have nothing to say
        """Do what is to be done before a change waits longer than `soon_seconds`."""

    @property
    def _idle_seconds(self) -> float | None:
        """How long after a change it writes once more, also nothing; None for never."""
        return None

    @property
    def has_unwritten(self) -> bool:
        """Whether something is held, or being written."""
        return bool(self.held) or self._writing.locked()

    def hold(self, key: K, value: V) -> None:
        """Have something written; returns at once, from any thread."""
        with self._lock:
            is_first = not self.held
            self._put(key, value)
        if is_first:
            self.wake()

    def _put(self, key: K, value: V) -> None:
        known = self.held.get(key)
        if known is None or not self._is_older(value, known):
            self.held[key] = value
        while len(self.held) > self._most_held:
            del self.held[next(iter(self.held))]
            self.dropped_since = self.dropped_since or clock.now()

    def replace(self, table: str, rows: Iterable[tables.Row]) -> None:
        """Write rows, those of one partition together while the process may start threads."""
        ordered = sorted(rows, key=itemgetter("PartitionKey"))
        for _, of_partition in groupby(ordered, itemgetter("PartitionKey")):
            for some in batched(of_partition, tables.MOST_CHANGES, strict=False):
                if len(some) == 1 or self._ending.is_set():
                    # A transaction starts threads, which the interpreter refuses at the end of a process.
                    for row in some:
                        tables.with_table(table, methodcaller("upsert_entity", row, mode=tables.REPLACE))
                    continue
                changes = [("upsert", row, {"mode": tables.REPLACE}) for row in some]
                tables.with_table(table, methodcaller("submit_transaction", changes))

    def begin(self) -> None:
        """Write from now on; the thread starts with the first change."""
        self._is_on = True
        atexit.register(self.end)

    def wake(self) -> None:
        """Say that something changed; returns at once, from any thread."""
        if not self._is_on:
            return
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_until_end, name=self._name, daemon=True)
            self._thread.start()

    def flush(self) -> bool:
        """Write now; False when storage did not take all of it."""
        return self._attempt(self._write_held)

    def _attempt(self, action: Callable[[], None]) -> bool:
        with self._writing:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - what is not written stays, and is written later
                if not self.is_over(error):
                    _log.warning("%s cannot be written: %s: %s", self._name, type(error).__name__, error)
                return False
            return True

    def _write_held(self) -> None:
        with self._lock:
            held, self.held = self.held, {}
        self._last_write = clock.monotonic_seconds()
        try:
            self._write(held)
        except Exception:
            with self._lock:
                later, self.held = self.held, held
                for key, value in later.items():
                    self._put(key, value)
            self._pause_seconds = min(2 * self._pause_seconds, _MOST_PAUSE_SECONDS)
            self.failing_since = self.failing_since or clock.now()
            self._changed.set()
            raise
        self._pause_seconds, self.failing_since = self._least_pause_seconds, None

    def end(self) -> None:
        """Write what is left and stop."""
        atexit.unregister(self.end)
        self._is_on = False
        self._ending.set()
        self._changed.set()
        if self._writing.acquire(timeout=_LEAVE_SECONDS):
            self._writing.release()
            self.flush()

    def is_over(self, error: Exception) -> bool:
        """Whether a write failed only since the process ends: `end` follows and writes."""
        return isinstance(error, RuntimeError) and not self._ending.is_set()

    def _seconds_to_write(self) -> float:
        """Return how long the next write waits from now."""
        rest = self._last_write + self._pause_seconds - clock.monotonic_seconds()
        return max(self._soon_seconds, rest)

    def _write_until_end(self) -> None:
        while True:
            self._changed.wait(self._idle_seconds)
            wait_seconds = self._seconds_to_write()
            if wait_seconds > self._soon_seconds:
                self._attempt(self._announce)
            if self._ending.wait(wait_seconds):
                return
            self._changed.clear()
            self.flush()
