"""The folder that holds everything onebox keeps, owned by one process at a time."""

import fcntl
from io import BufferedWriter
from pathlib import Path

from onebox.errors import CannotStartError


class DataFolder:
    """A data folder, locked while in use; the kernel lets go of the lock however the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BufferedWriter | None = None

    @property
    def hub(self) -> Path:
        """The task hub's database."""
        return self.path / "hub.sqlite"

    @property
    def azurite(self) -> Path:
        """Azurite's files."""
        return self.path / "azurite"

    @property
    def timers(self) -> Path:
        """When timers fired and fire."""
        return self.path / "timers.json"

    @property
    def keys(self) -> Path:
        """The access keys."""
        return self.path / "keys.json"

    def take(self) -> None:
        """Make the folder when it is missing and lock it.

        Raises:
            CannotStartError: Another onebox uses it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStartError(
                f"another onebox uses {self.path}; choose another folder with --data"
            ) from None
        except OSError as error:
            raise CannotStartError(f"cannot use {self.path}: {error.strerror}") from None

    def release(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
