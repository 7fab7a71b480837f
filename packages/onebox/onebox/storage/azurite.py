"""Azurite, the storage emulator, as a child process that does not outlive onebox."""

import asyncio
import fcntl
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

from onebox.environment import BLOB_PORT, QUEUE_PORT, TABLE_PORT
from onebox.errors import CannotStartError
from onebox.storage.node import azurite_command

_LOG = logging.getLogger("onebox")

LOOPBACK = "127.0.0.1"
_ACCOUNT = "devstoreaccount1"
# The emulator's well-known key: public, the same everywhere, no secret.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LISTENING, _SERVICES = "successfully listening", 3
_OTHER_PORTS = "free it, or start with --storage-ports auto"
_START_SECONDS = 60.0
_STOP_SECONDS = 4.0
_HANDOVER_SECONDS = 15.0
_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 130
"""Azurite's own 5 s end a connection just when a client takes it from its pool; a POST is not sent again."""
_TETHER = Path(__file__).parents[1] / "tether.py"


@dataclass(frozen=True)
class StoragePorts:
    """The loopback ports of the emulator's three services."""

    blob: int = int(BLOB_PORT.default)
    queue: int = int(QUEUE_PORT.default)
    table: int = int(TABLE_PORT.default)

    @property
    def connection_string(self) -> str:
        """What a storage SDK needs to reach the emulator on these ports."""
        endpoints = "".join(f"{name.title()}Endpoint={url};" for name, url in self.endpoints.items())
        return f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{endpoints}"

    @property
    def options(self) -> list[str]:
        """The emulator's command line: these ports, and the options that every start has."""
        pairs: dict[str, str] = {}
        for name, port in (("blob", self.blob), ("queue", self.queue), ("table", self.table)):
            pairs |= {f"--{name}Host": LOOPBACK, f"--{name}Port": str(port)}
            pairs |= {f"--{name}KeepAliveTimeout": str(_KEEP_ALIVE_SECONDS)}
        options = [text for pair in pairs.items() for text in pair]
        return [*options, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

    def all_answer(self) -> bool:
        """Return whether something listens on each of the ports."""
        return all(_listens(port) for port in (self.blob, self.queue, self.table))

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The URL of each service."""
        services = {"blob": self.blob, "queue": self.queue, "table": self.table}
        return {name: f"http://{LOOPBACK}:{port}/{_ACCOUNT}" for name, port in services.items()}

    def __str__(self) -> str:
        """Return the port numbers as a person reads them."""
        return f"{self.blob}, {self.queue}, {self.table}"

    def taken(self) -> list[int]:
        """Return the ports on which something listens."""
        return [port for port in (self.blob, self.queue, self.table) if _listens(port)]


def ports_from(settings: Mapping[str, str]) -> StoragePorts:
    """Return the well-known ports, unless AZURITE_BLOB_PORT, _QUEUE_PORT or _TABLE_PORT are set.

    Raises:
        CannotStartError: One of them is not a number.
    """
    try:
        return StoragePorts(
            blob=int(BLOB_PORT.get(settings)),
            queue=int(QUEUE_PORT.get(settings)),
            table=int(TABLE_PORT.get(settings)),
        )
    except ValueError as mistake:
        raise CannotStartError(f"AZURITE_..._PORT must be a number: {mistake}") from None


def free_ports() -> StoragePorts:
    """Return three ports that are free now; they are held together, so that they differ."""
    sockets = [socket.socket() for _ in range(3)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return StoragePorts(*(each.getsockname()[1] for each in sockets))
    finally:
        for each in sockets:
            each.close()


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
            # Before the ports are looked at: the emulator of a onebox that was killed may still have them.
            await self._until_predecessor_is_gone(lock.fileno())
            command = await asyncio.to_thread(azurite_command, os.environ)
            self._choose_ports()
            self._process = await self._spawn(command, lock.fileno(), log)
            try:
                await self._until_it_serves(self._process, log_path)
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
            start_new_session=True,  # the terminal's Ctrl-C is ours alone, so that storage goes last
        )

    async def _until_predecessor_is_gone(self, lock: int) -> None:
        """Wait for the emulator of a onebox that was killed a moment ago: it still writes its files.

        Every emulator inherits the lock, so the kernel gives it back when the last process that has it ends.

        Raises:
            CannotStartError: It does not end: another onebox serves this data folder.
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
                # Its own words, not an answering port: that could be another emulator's.
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
        """Stop the emulator if this object started it."""
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


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
