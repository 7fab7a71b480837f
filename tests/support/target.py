"""The flaky target as the tests see it."""

import sys
from pathlib import Path
from typing import Any

import httpx

from scripts.processes import PLAIN_HTTP, ServerProcess, free_port


class Target:
    def __init__(self, folder: Path, port: int | None = None) -> None:
        port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.server = ServerProcess(
            [sys.executable, "-m", "examples.flaky_target", "--port", str(port)],
            ready_url=f"{self.url}/counts",
            log=folder / "flaky_target.log",
            env={},
        )

    def totals(self) -> dict[str, int]:
        """How many requests came, per idempotency key."""
        keys: dict[str, int] = httpx.get(f"{self.url}/counts", verify=PLAIN_HTTP).json()["keys"]
        return keys

    def received(self, key: str) -> dict[str, Any]:
        """Every try of one key."""
        record: dict[str, Any] = httpx.get(f"{self.url}/counts/{key}", verify=PLAIN_HTTP).json()
        return record

    def outage(self, *, on: bool, status: int = 503) -> None:
        url = f"{self.url}/outage/{'on' if on else 'off'}"
        httpx.put(url, params={"status": status}, verify=PLAIN_HTTP).raise_for_status()
