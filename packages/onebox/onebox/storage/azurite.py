"""Azurite, the storage emulator, as a child process that ends when onebox does."""

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

from onebox import CannotStartError
from onebox.storage.installation import azurite_command
from onebox.storage.ports import StoragePorts, free_ports

_LOG = logging.getLogger("onebox")

_LISTENING, _SERVICES = "successfully listening", 3
_OTHER_PORTS = "free it, or start with --storage-ports auto"
_START_SECONDS = 60.0
_STOP_SECONDS = 4.0
_HANDOVER_SECONDS = 15.0
_POLL_SECONDS = 0.05
_TETHER = Path(__file__).parents[1] / "tether.py"


class PortChoice(StrEnum):
    """Where the emulator may listen."""

    AUTO = "auto"  # on the preferred ports; on free ones when those are taken
    FIXED = "fixed"  # on the preferred ports, or not at all
    FREE = "free"  # on free ports


class Azurite:
    """The emulator of one data folder.

    Attributes:
        ports: Where it listens, final after `start`.
    """

    def __init__(self, data: Path, preferred: StoragePorts, choice: PortChoice = PortChoice.FIXED) -> None:
        self._data = data
        self._choice = choice
        self.ports = preferred
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the emulator and wait until it serves.

        Raises:
            CannotStartError: Node or Azurite is missing, a port is taken, or it does not answer in time.
        """
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_path = self._data / "azurite.log"
        with (self._data / "lock").open("wb") as lock, log_path.open("wb") as log:
            # Before the ports are chosen: the emulator of a onebox that was killed may still hold them.
            await self._until_predecessor_is_gone(lock.fileno())
            command = await asyncio.to_thread(azurite_command, os.environ)
            self._choose_ports()
            self._process = await self._spawn(command, lock.fileno(), log)
            try:
                await self._until_it_serves(self._process, log_path)
            except asyncio.CancelledError:
                await self.stop()
                raise
            except _PortTakenError:
                # Another emulator was quicker on the ports that were free a moment ago.
                if self._choice is PortChoice.FIXED:
                    raise
                log.truncate(0)
                log.seek(0)
                self.ports = free_ports()
                self._process = await self._spawn(command, lock.fileno(), log)
                await self._until_it_serves(self._process, log_path)

    def _choose_ports(self) -> None:
        if self._choice is PortChoice.FREE:
            self.ports = free_ports()
        elif taken := self.ports.taken():
            if self._choice is PortChoice.FIXED:
                raise CannotStartError(f"storage port {taken[0]} is in use; {_OTHER_PORTS}")
            self.ports = free_ports()
            _LOG.info(
                "storage port %s belongs to another process: own storage on ports %s", taken[0], self.ports
            )

    async def _spawn(self, command: list[str], lock: int, log: BufferedWriter) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(_TETHER),
            str(os.getpid()),
            *command,
            "--location",
            str(self._data),
            *self.ports.options,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            umask=0o077,
            start_new_session=True,  # Ctrl-C must not reach it: storage stops last
        )

    async def _until_predecessor_is_gone(self, lock: int) -> None:
        """Wait for the emulator of a onebox that was killed: it may still write its files.

        Every emulator inherits the lock, so the kernel releases it when the last process that holds it ends.

        Raises:
            CannotStartError: It does not end in time.
        """
        try:
            async with asyncio.timeout(_HANDOVER_SECONDS):
                while not _locked(lock):  # noqa: ASYNC110 # another process sets no event
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise CannotStartError(f"another Azurite still uses {self._data}; stop it first") from None

    async def _until_it_serves(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                # Read its log: an answering port could be another emulator's.
                while _services_listening(log_path) < _SERVICES:
                    if process.returncode is not None:
                        raise _ended(log_path)
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            await self.stop()
            raise CannotStartError(
                f"Azurite did not answer within {_START_SECONDS:g} s; see {log_path}"
            ) from None

    async def stop(self) -> None:
        """Stop the emulator if it runs; kill it after 4 s."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _services_listening(log_path: Path) -> int:
    return log_path.read_text(encoding="utf-8", errors="replace").count(_LISTENING)


class _PortTakenError(CannotStartError):
    """The emulator could not bind one of its ports."""


def _ended(log_path: Path) -> CannotStartError:
    text = log_path.read_text(encoding="utf-8", errors="replace")
    if "EADDRINUSE" in text:
        return _PortTakenError(f"a storage port is in use; {_OTHER_PORTS}")
    lines = (line.strip() for line in reversed(text.split("\n")))
    last = next(filter(None, lines), f"it wrote nothing; see {log_path}")
    return CannotStartError(f"Azurite ended at once: {last}")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
