"""The folder that holds everything onebox keeps: one process at a time, readable by its owner only."""

import fcntl
import logging
import os
from io import BufferedWriter
from pathlib import Path
from tempfile import TemporaryDirectory

from onebox import CannotStartError

_LOG = logging.getLogger("onebox")
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_LONGEST_SOCKET_PATH = 100  # bytes; the kernels take 104 (macOS) and 108 (Linux) with the final NUL
# Names that onebox gives; a folder with others in it is shared, and its own mode is left alone.
_OWN_NAMES = ("hub.", "azurite", "timers.", "keys.", "storage-", "lock")


class DataFolder:
    """A data folder, locked while in use; the kernel releases the lock however the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BufferedWriter | None = None
        self._elsewhere: TemporaryDirectory[str] | None = None

    @property
    def hub(self) -> Path:
        """The task hub's database."""
        return self.path / "hub.sqlite"

    @property
    def azurite(self) -> Path:
        """Azurite's files."""
        return self.path / "azurite"

    @property
    def storage_connection(self) -> Path:
        """The connection string of the storage emulator, for programs outside of the app."""
        return self.path / "storage-connection-string"

    @property
    def timers(self) -> Path:
        """The status of timers."""
        return self.path / "timers.json"

    @property
    def keys(self) -> Path:
        """The access keys."""
        return self.path / "keys.json"

    @property
    def socket(self) -> Path:
        """The task hub's gRPC socket: here, protected by modes, or in a private folder for long paths."""
        here = self.path / "hub.sock"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_PATH:
            return here
        if self._elsewhere is None:
            self._elsewhere = TemporaryDirectory(prefix="onebox-")  # mode 0700
        return Path(self._elsewhere.name) / "hub.sock"

    def take(self) -> None:
        """Create the folder when it is missing, lock it, and close it to other users of the machine.

        Raises:
            CannotStartError: Another onebox uses it, or it cannot be written.
        """
        try:
            self.create()
            self._lock = create_private(self.path / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._close_to_others()
        except BlockingIOError:
            self.release()
            raise CannotStartError(
                f"another onebox uses {self.path}; stop it, or choose another folder with --data"
            ) from None
        except OSError as error:
            self.release()
            raise CannotStartError(f"cannot use {self.path}: {error.strerror}") from None

    def create(self) -> None:
        """Create the folder when it is missing.

        Raises:
            CannotStartError: It cannot be.
        """
        try:
            self.path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError:
            raise CannotStartError(f"{self.path} is a file; choose a folder with --data") from None
        except OSError as error:
            raise CannotStartError(f"cannot use {self.path}: {error.strerror}") from None

    def _close_to_others(self) -> None:
        """Set the modes; the database exists before SQLite opens it, whose other files take over its mode."""
        self.azurite.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        if (self.path / "hub.sqlite.lock").exists() and not self.hub.exists():
            _LOG.warning("%s is gone since this folder was last used: the task hub begins empty", self.hub)
        create_private(self.hub)
        entries = list(self.path.iterdir())
        for entry in entries:
            if entry.name.startswith(_OWN_NAMES):
                entry.chmod(_FOLDER_MODE if entry.is_dir() else _FILE_MODE)
        if all(entry.name.startswith(_OWN_NAMES) for entry in entries):
            self.path.chmod(_FOLDER_MODE)
        elif self.path.stat().st_mode & 0o077:
            _LOG.warning("%s holds other files too: its mode is left as it is", self.path)

    def release(self) -> None:
        """Give up the lock."""
        if self._elsewhere is not None:
            self._elsewhere.cleanup()
            self._elsewhere = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def create_private(path: Path) -> Path:
    """Create a file that is missing, readable by its owner only; return its path."""
    path.touch(mode=_FILE_MODE)
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, synced, readable by its owner only: a reader sees the old text or the new.

    Raises:
        OSError: It cannot be written; the old text stays.
    """
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
