"""The lock on a data folder: the one lease that covers all work items.

The kernel lets go of it when its process ends, however it ends, so whoever gets it knows that nobody else
works on this hub: all that the store holds is his to take up.
"""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from onebox.hub.errors import HubInUse


class HubLock:
    """Held while a process serves a store."""

    def __init__(self, store_path: Path) -> None:
        self._path = store_path.with_name(store_path.name + ".lock")
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            HubInUse: Another process has it; the message says which, and where.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise HubInUse(
                f"the task hub in {self._path.parent} is served by another process (pid {owner}); "
                "stop it, or use another data folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go of the lock; the file stays, since removing it would race with the next owner."""
        if self._file is not None:
            self._file.close()
            self._file = None
