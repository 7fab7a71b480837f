"""Writing to storage on a thread of its own, so that nothing that is counted or noted waits for storage."""

import atexit
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import batched, groupby
from operator import itemgetter, methodcaller
from typing import Final

from durable_retry.storage import tables

# The longest pause between writes while storage is away.
_MOST_PAUSE_SECONDS: Final = 60.0
# How long the end of a process waits for a write that is under way.
_LEAVE_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


class BackgroundWriter(ABC):
    """A thread that sleeps while nothing changes, writes a while after a change, and at the process's end."""

    def __init__(self, name: str, pause_seconds: float) -> None:
        self._name = name
        self._pause_seconds = pause_seconds
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_on = False

    @abstractmethod
    def _write(self) -> None:
        """Write by `replace` what is not written yet; where that raises, all of it stays."""

    def replace(self, table: str, rows: Iterable[tables.Row]) -> None:
        """Write rows, those of one partition together while the process may start threads."""
        if self._ending.is_set():
            tables.replace_each(table, rows)
            return
        ordered = sorted(rows, key=itemgetter("PartitionKey"))
        for _, of_partition in groupby(ordered, itemgetter("PartitionKey")):
            for some in batched(of_partition, tables.MOST_CHANGES, strict=False):
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
        with self._writing:
            try:
                self._write()
            except Exception as error:  # noqa: BLE001 - what is not written stays, and is written later
                if not self.is_over(error):
                    _log.warning("%s cannot be written: %s: %s", self._name, type(error).__name__, error)
                return False
            return True

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

    def _write_until_end(self) -> None:
        pause_seconds = self._pause_seconds
        while True:
            self._changed.wait()
            if self._ending.wait(pause_seconds):
                return
            self._changed.clear()
            if self.flush():
                pause_seconds = self._pause_seconds
            else:
                pause_seconds = min(2 * pause_seconds, _MOST_PAUSE_SECONDS)
                self._changed.set()
