"""Child processes that serve on free loopback ports, and polling with a deadline."""

import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import httpx

from onebox.storage.ports import StoragePorts

ROOT = Path(__file__).parents[1]
START_SECONDS = 120.0
LOG_END = 4000  # characters of a log that a message shows
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 0.5
FIRST_PORT, LAST_PORT = 11_000, 32_000
NEIGHBOURS = 64  # processes that can run side by side, each with 328 ports of its own
PATIENCE = "PATIENCE"  # an environment variable, by which tests on a slow host wait longer
FIRST_SERVER_ERROR = 500
PLAIN_HTTP = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""`verify` for clients of loopback servers without TLS: it has no certificates. By default each client loads
the trusted ones, which takes longer than hundreds of requests."""


class ServerDidNotStartError(Exception):
    """It ended instead; the message holds the end of its log."""


def _ports() -> Iterator[int]:
    """Yields ports that neither another process of ours nor the kernel takes before the server starts.

    They lie below the ports that the kernel gives to outgoing connections. Processes that run side by side
    have different ports, and each repeats one only after all its others.
    """
    own = range(FIRST_PORT + os.getpid() % NEIGHBOURS, LAST_PORT, NEIGHBOURS)
    start = secrets.randbelow(len(own))
    yield from cycle([*own[start:], *own[:start]])


_PORTS = _ports()


def free_port() -> int:
    """Returns a loopback port that nobody listens on right now."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports never end")


def find_chromium() -> str | None:
    """Returns the program of a Chromium, the one without windows first: it takes half the processor time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((program for name in names if (program := shutil.which(name))), None)


def free_storage_ports() -> StoragePorts:
    """Returns ports for an Azurite, chosen as `free_port` does."""
    return StoragePorts(blob=free_port(), queue=free_port(), table=free_port())


def eventually[T](look: Callable[[], T | None], what: str, *, within_seconds: float = 30.0) -> T:
    """Looks again and again until there is an answer.

    Args:
        look: Called up to 20 times a second at first, and twice a second in the end.
        what: What is waited for, for the message.
        within_seconds: How long to go on, above 0; `PATIENCE` times as long where the environment has that.

    Returns:
        The first answer that is neither None nor False.

    Raises:
        TimeoutError: There was none in time.
    """
    within_seconds *= float(os.environ.get(PATIENCE, "1"))
    deadline = time.monotonic() + within_seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_seconds} s: {what}")
        waited = within_seconds - (deadline - time.monotonic())
        time.sleep(min(max(POLL_SECONDS, waited / 10), LONGEST_POLL_SECONDS))


class ServerProcess:
    """A server that can be started, killed and started again on the same port.

    Attributes:
        command: The program and its arguments.
        ready_url: Is answered, by anything below 500, once the server serves.
        log: The file that its output is appended to.
        env: What is set beside this process's own environment.
        process: None while it is not running.
    """

    def __init__(self, command: list[str], *, ready_url: str, log: Path, env: dict[str, str]) -> None:
        self.command = command
        self.ready_url = ready_url
        self.log = log
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and returns once it serves.

        Raises:
            ServerDidNotStartError: It ended instead.
            TimeoutError: It does not answer.
        """
        self.launch()
        self.until_ready()

    def launch(self) -> None:
        """Starts it; `until_ready` waits for it."""
        tethered = [sys.executable, "-m", "scripts.tether", str(os.getpid()), "--", *self.command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 # our own commands
                tethered, cwd=ROOT, env={**os.environ, **self.env}, stdout=log, stderr=log, process_group=0
            )

    def until_ready(self) -> None:
        """Returns once it serves.

        Raises:
            ServerDidNotStartError: It ended instead.
            TimeoutError: It does not answer.
        """
        try:
            eventually(self._ready, f"{self.ready_url} answers", within_seconds=START_SECONDS)
        except Exception:
            self.kill()
            raise

    def kill(self) -> None:
        """Kills it, without time to write anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Asks it to end and returns its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(how)
        code = self.process.wait(timeout=20)
        self.process = None
        return code

    def _ready(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise ServerDidNotStartError(f"{self.command} ended:\n{self.log.read_text()[-LOG_END:]}")
        verify = PLAIN_HTTP if self.ready_url.startswith("http://") else True
        try:
            return httpx.get(self.ready_url, timeout=2, verify=verify).status_code < FIRST_SERVER_ERROR
        except httpx.TransportError:
            return False


@contextmanager
def running(server: ServerProcess) -> Iterator[None]:
    """Let a server run for a while.

    Raises:
        ServerDidNotStartError: It ended instead.
    """
    server.start()
    try:
        yield
    finally:
        server.stop()
