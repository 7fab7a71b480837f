import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, ServerProcess, eventually, free_port
from scripts.run import port_in_use
from tests.support.documents import readme_curl

pytestmark = pytest.mark.long


class Run:
    """`python -m scripts.run` on free ports."""

    def __init__(self, folder: Path) -> None:
        self.port, self.target_port = free_port(), free_port()
        self.ports = [self.port, self.target_port]
        options = [
            "--port",
            str(self.port),
            "--target-port",
            str(self.target_port),
            "--data",
            str(folder / "data"),
        ]
        self.server = ServerProcess(
            [sys.executable, "-m", "scripts.run", *options, "--storage-ports", "auto"],
            ready_url=f"http://127.0.0.1:{self.port}/admin/host/status",
            log=folder / "run.log",
            env={},
        )

    def all_gone(self) -> bool:
        return not any(port_in_use(port) for port in self.ports)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    run.server.start()
    yield run
    run.server.stop()


def curl(run: Run) -> tuple[str, dict[str, Any]]:
    """Runs the README's command with the port replaced; returns the head and the body of the answer."""
    command = readme_curl().replace("localhost:7071", f"localhost:{run.port}")
    ended = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=True, timeout=120
    )
    head, _, body = ended.stdout.replace("\r\n", "\n").partition("\n\n")
    return head.lower(), json.loads(body)


def test_the_readmes_curl_works_as_printed_and_the_end_leaves_nothing_behind(run: Run) -> None:
    eventually(lambda: "curl -i" in run.server.log.read_text(), "it prints what to try")
    head, body = curl(run)
    assert head.startswith("http/1.1 202 accepted")
    assert set(body) == {"operation_id", "key", "status", "status_url"}
    assert f"location: {body['status_url']}" in head

    def ended() -> dict[str, Any] | None:
        document: dict[str, Any] = httpx.get(body["status_url"], verify=PLAIN_HTTP).json()
        return document if document["status"] == "succeeded" else None

    done = eventually(ended, "the operation succeeded", within_seconds=60)
    assert done["attempt_count"] == 3
    assert done["result"]["json"]["received"] == {"amount": 5}
    counts = httpx.get(f"http://127.0.0.1:{run.target_port}/counts", verify=PLAIN_HTTP).json()
    assert counts["keys"] == {"first": 3}

    head, _ = curl(run)
    assert head.startswith("http/1.1 200")
    assert "warning" not in run.server.log.read_text().lower()
    assert re.search("^idempotent-replayed: true$", head, re.MULTILINE)

    assert run.server.stop() == 0
    assert run.all_gone()


def test_a_killed_run_takes_its_children_with_it(run: Run) -> None:
    run.server.kill()
    eventually(run.all_gone, "every port is free again")


def test_a_taken_port_is_said_before_anything_starts(run: Run, tmp_path: Path) -> None:
    again = Run(tmp_path)
    command = [
        sys.executable,
        "-m",
        "scripts.run",
        "--port",
        str(run.port),
        "--target-port",
        str(again.target_port),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 1
    assert f"port {run.port} is in use" in ended.stderr
    assert "Traceback" not in ended.stderr
