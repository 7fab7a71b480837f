"""Azurite, the storage emulator, as a child process that ends when onebox does."""

import asyncio
import base64
import fcntl
import logging
import os
import secrets
import subprocess
import sys
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

from onebox import CannotStartError
from onebox.data_folder import create_private, write_private
from onebox.environment import ACCOUNTS
from onebox.storage.installation import azurite_command
from onebox.storage.ports import ACCOUNT, StoragePorts, free_ports

_LOG = logging.getLogger("onebox")

_LISTENING, _SERVICES = "successfully listening", 3
_OTHER_PORTS = "free it, or start with --storage-ports auto"
_START_SECONDS = 60.0
_STOP_SECONDS = 4.0
_HANDOVER_SECONDS = 15.0
_POLL_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
_HEALTHY_SECONDS = 60.0  # after so long a run the pause before a restart is the first one again
_KEY_BYTES = 64  # as many as the keys of real accounts have
ACCOUNT_KEY = "account.key"
"""The file that keeps the account's key."""
_TETHER = Path(__file__).parents[1] / "tether.py"


class PortChoice(StrEnum):
    """Where the emulator may listen."""

    AUTO = "auto"  # on the preferred ports; on free ones when those are taken
    FIXED = "fixed"  # on the preferred ports, or not at all
    FREE = "free"  # on free ports


class Azurite:
    """The emulator of one data folder.

    Args:
        data: Its folder.
        preferred: Where it shall listen.
        choice: Where it may listen else.
        key: The key of its account; None for the random one that the folder keeps. A page in any browser
            could sign requests with a key that is known.

    Attributes:
        ports: Where it listens, final after `start`.
        key: The key of its account, once started.
        trouble: Why it does not serve now; "" while it does.
    """

    def __init__(
        self,
        data: Path,
        preferred: StoragePorts,
        choice: PortChoice = PortChoice.FIXED,
        *,
        key: str | None = None,
    ) -> None:
        self._data = data
        self._choice = choice
        self.ports = preferred
        self.key = key
        self.trouble = ""
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def connection_string(self) -> str:
        """What a storage SDK needs to reach it, once started."""
        return self.ports.connection_with(self.key or "")

    async def start(self) -> None:
        """Start the emulator, wait until it serves, and start it again whenever it ends by itself.

        Raises:
            CannotStartError: Node or Azurite is missing, a port is taken, or it does not answer in time.
        """
        await self._start()
        self._choice = PortChoice.FIXED  # the app has the connection string
        self._keeping = asyncio.create_task(self._keep(self._process))

    async def _keep(self, process: asyncio.subprocess.Process | None) -> None:
        pause = _FIRST_PAUSE_SECONDS
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            if process is not None:
                self.trouble = f"the storage emulator ended with exit code {await process.wait()}"
                if clock() - began >= _HEALTHY_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
            _LOG.error("%s; it is started again in %.1f s", self.trouble, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            began = clock()
            try:
                await self._start()
            except (CannotStartError, OSError) as obstacle:
                process = None
                self.trouble = f"the storage emulator does not start: {obstacle}"
            else:
                process = self._process
                self.trouble = ""
                _LOG.warning("the storage emulator serves again")

    async def _start(self) -> None:
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_path = create_private(self._data / "azurite.log")
        with create_private(self._data / "lock").open("wb") as lock, log_path.open("wb") as log:
            # Before the ports are chosen: the emulator of a onebox that was killed may still hold them.
            await self._until_predecessor_is_gone(lock.fileno())
            self.key = self.key or _kept_key(self._data / ACCOUNT_KEY)
            command = await asyncio.to_thread(azurite_command, os.environ)
            self._choose_ports()
            self._process = await self._spawn(command, lock.fileno(), log)
            try:
                await self._until_it_serves(self._process, log_path)
            except asyncio.CancelledError:
                await self._end()
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
            # Not among the arguments, which every user of the machine sees.
            env={**os.environ, ACCOUNTS.name: f"{ACCOUNT}:{self.key}"},
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
            await self._end()
            raise CannotStartError(
                f"Azurite did not answer within {_START_SECONDS:g} s; see {log_path}"
            ) from None

    async def stop(self) -> None:
        """Stop the emulator if it runs; kill it after 4 s."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _kept_key(path: Path) -> str:
    key = path.read_text(encoding="ascii") if path.exists() else ""
    if not key:
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        write_private(path, key)
    return key


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
