"""Servers as child processes on free loopback ports, and polling with a deadline."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
POLL_SECONDS = 0.05


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually[T](look: Callable[[], T | None], what: str, *, within_seconds: float = 30.0) -> T:
    """Returns the first answer that is neither None nor False."""
    deadline = time.monotonic() + within_seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_seconds} s: {what}")
        time.sleep(POLL_SECONDS)


class ServerProcess:
    """A server that can be started, killed and started again on the same port."""

    def __init__(self, command: list[str], *, ready_url: str, log: Path, env: dict[str, str]) -> None:
        self.command = command
        self.ready_url = ready_url
        self.log = log
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        tethered = [sys.executable, "-m", "tools.tether", str(os.getpid()), "--", *self.command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                tethered, cwd=ROOT, env={**os.environ, **self.env}, stdout=log, stderr=log, process_group=0
            )
        eventually(self._ready, f"{self.ready_url} answers", within_seconds=START_SECONDS)

    def kill(self) -> None:
        """Ends it as a power cut would."""
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
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"{self.command} ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
            )
        try:
            return httpx.get(self.ready_url, timeout=2).status_code == 200
        except httpx.TransportError:
            return False
