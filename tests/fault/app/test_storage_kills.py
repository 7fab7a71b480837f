"""The storage emulator is killed under load, again and again: what has a healthy dependency succeeds.

onebox starts it again after a growing pause, and says meanwhile that storage is away.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, eventually
from tests.support.app import System, operation, unexplained
from tests.support.target import Target

OPERATIONS = 120
CLIENTS = 6
KILLS = 4
TAKEN = {httpx.codes.OK, httpx.codes.ACCEPTED}

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def own_system(tmp_path: Path, target: Target) -> Iterator[System]:
    """The app with a storage emulator that onebox started."""
    system = System(tmp_path, target, AzureWebJobsStorage="UseDevelopmentStorage=true")
    with system.running():
        yield system


def kill_storage(system: System) -> None:
    """Kill the emulator, and the tether that ends it with onebox."""
    data = system.server.command[system.server.command.index("--data") + 1]
    command = [shutil.which("pgrep") or "pgrep", "-f", f"azurite.js --location {data}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    for pid in map(int, listed.stdout.split()):
        os.kill(pid, signal.SIGKILL)


def host_status(system: System) -> dict[str, Any]:
    status: dict[str, Any] = system.client.get("/admin/host/status").json()
    return status


def submit(system: System, key: str, number: int) -> str:
    """Post an operation as a client does, until it is taken."""
    # Its attempts have time enough on a busy machine: a timeout would count.
    body = operation(key, f"/fail/{number % 3}", dependency="crowded", deadline_seconds=600)

    def post() -> str | None:
        with httpx.Client(base_url=system.url, timeout=60, verify=PLAIN_HTTP) as client:
            answer = client.post("/api/operations", json=body)
        return answer.json()["operation_id"] if answer.status_code in TAKEN else None

    return eventually(post, f"{key} is taken", within_seconds=120)


def kill_while_the_operations_run(system: System) -> None:
    for _ in range(KILLS):
        kill_storage(system)
        status = eventually(
            lambda: status if (status := host_status(system))["state"] == "Error" else None,
            "the status says that storage is away",
        )
        assert "the storage emulator" in status["errors"][0]
        eventually(
            lambda: host_status(system)["state"] == "Running", "storage is there again", within_seconds=90
        )


def test_operations_with_a_healthy_dependency_succeed_while_storage_is_killed(
    own_system: System, key: str
) -> None:
    with ThreadPoolExecutor(CLIENTS) as clients:
        keys = [f"{key}-{number}" for number in range(OPERATIONS)]
        posts = [clients.submit(submit, own_system, name, number) for number, name in enumerate(keys)]
        kill_while_the_operations_run(own_system)
        ids = [post.result() for post in posts]
    for number, operation_id in enumerate(ids):
        document = own_system.until(operation_id, "succeeded", within_seconds=120)
        assert document["attempt_count"] == number % 3 + 1
        assert unexplained(document) == []
    letters = own_system.client.get("/api/dead-letters").json()
    assert letters["items"] == []
    for name in keys:
        assert own_system.target.received(name)["most_in_flight"] == 1
