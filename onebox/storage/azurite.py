"""Azurite, the storage emulator, as a child process that does not outlive us."""

import asyncio
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from onebox.environment import BLOB_PORT, QUEUE_PORT, TABLE_PORT
from onebox.errors import CannotStartError

LOOPBACK = "127.0.0.1"
_ACCOUNT = "devstoreaccount1"
# The emulator's well-known key: public, the same everywhere, no secret.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_OLDEST_NODE = 20
_START_SECONDS = 60.0
_STOP_SECONDS = 4.0
_HANDOVER_SECONDS = 15.0
_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 130
"""Azurite's own 5 s end a connection just when a client takes it from its pool; a POST is not sent again."""
_BUNDLED = Path(__file__).parents[1] / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
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
        services = (("Blob", self.blob), ("Queue", self.queue), ("Table", self.table))
        endpoints = "".join(f"{name}Endpoint=http://{LOOPBACK}:{port}/{_ACCOUNT};" for name, port in services)
        return f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{endpoints}"

    @property
    def options(self) -> list[str]:
        """How the emulator is told of these ports, and of what holds wherever it is started."""
        pairs: dict[str, str] = {}
        for name, port in (("blob", self.blob), ("queue", self.queue), ("table", self.table)):
            pairs |= {f"--{name}Host": LOOPBACK, f"--{name}Port": str(port)}
            pairs |= {f"--{name}KeepAliveTimeout": str(_KEEP_ALIVE_SECONDS)}
        options = [text for pair in pairs.items() for text in pair]
        return [*options, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

    def all_answer(self) -> bool:
        """Tell whether something listens on each of the ports."""
        return all(_listens(port) for port in (self.blob, self.queue, self.table))

    def taken(self) -> list[int]:
        """Return the ports on which something listens."""
        return [port for port in (self.blob, self.queue, self.table) if _listens(port)]


def ports_from(settings: Mapping[str, str]) -> StoragePorts:
    """Return the well-known ports, unless AZURITE_BLOB_PORT, _QUEUE_PORT or _TABLE_PORT say otherwise.

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


class Azurite:
    """One emulator, found or started, on given ports."""

    def __init__(self, data: Path, ports: StoragePorts) -> None:
        self._data = data
        self.ports = ports
        self._process: asyncio.subprocess.Process | None = None

    @property
    def started(self) -> bool:
        """Whether this object started it, rather than found it running."""
        return self._process is not None

    async def start(self) -> None:
        """Start the emulator, unless one already answers on the ports, and wait until it serves.

        Raises:
            CannotStartError: Node or Azurite is missing, a port is taken, or it does not answer in time.
        """
        self._data.mkdir(parents=True, exist_ok=True)
        log_path = self._data / "azurite.log"
        with (self._data / "lock").open("wb") as lock, log_path.open("wb") as log:
            await self._until_predecessor_is_gone(lock.fileno())
            if self.ports.all_answer():
                return
            if taken := self.ports.taken():
                raise CannotStartError(
                    f"storage port {taken[0]} is in use; free it, or start with --storage-ports auto"
                )
            self._process = await self._spawn(lock.fileno(), log)
        await self._until_it_serves(self._process, log_path)

    async def _spawn(self, lock: int, log: BufferedWriter) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(_TETHER),
            str(os.getpid()),
            *_command(self._data, self.ports),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
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
                while not self.ports.all_answer():
                    if process.returncode is not None:
                        raise CannotStartError(f"Azurite ended at once: {_last_line(log_path)}")
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


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), f"it said nothing; see {path}")


def _command(data: Path, ports: StoragePorts) -> list[str]:
    return [*_program(), "--location", str(data), *ports.options]


def _program() -> list[str]:
    if _BUNDLED.is_file():
        return [_node(), str(_BUNDLED)]
    on_path = shutil.which("azurite")
    if on_path is None:
        raise CannotStartError("Azurite is not installed: run `make setup`, or `npm install -g azurite`")
    return [on_path]


def _node() -> str:
    """Return Node's path: the one on PATH when it is new enough, else the one in our own environment."""
    beside_python = Path(sys.executable).parent / "node"
    for candidate in (shutil.which("node"), str(beside_python)):
        if candidate and _node_version(candidate) >= _OLDEST_NODE:
            return candidate
    raise CannotStartError(
        f"Node {_OLDEST_NODE} or newer is needed for Azurite: install it, or run `make setup`"
    )


def _node_version(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 # found on PATH or in our environment
        return int(answer.stdout.strip().removeprefix("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
