"""The sample app in worker processes: what its tests ask of it."""

from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from scripts.processes import eventually
from tests.support.onebox.process import (
    SAMPLE,
    OneboxProcess,
)

APP = SAMPLE.parent / "workers"


def described(onebox: OneboxProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = onebox.client.get("/admin/host/status").json()["workers"]
    return found


def pids_of(onebox: OneboxProcess) -> list[int]:
    """The processes, once all of them run."""

    def look() -> list[int] | None:
        found = described(onebox)
        running = [each["pid"] for each in found if each["state"] == "Running"]
        return running if len(running) == len(found) else None

    return eventually(look, "all worker processes run")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as well."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def start(onebox: OneboxProcess, name: str, instance_id: str, given: Any) -> None:
    answer = onebox.client.post(f"/api/start/{name}/{instance_id}", json=given)
    assert answer.status_code == 200, answer.text


def failed(onebox: OneboxProcess, instance_id: str) -> str:
    state = onebox.until(instance_id, "Completed", "Failed")
    assert state["runtimeStatus"] == "Failed", state
    return str(state["output"])


def output_of(onebox: OneboxProcess, instance_id: str) -> Any:
    state = onebox.until(instance_id, "Completed", "Failed")
    assert state["runtimeStatus"] == "Completed", state
    return state["output"]


def answers_nothing(onebox: OneboxProcess) -> bool:
    """Whether no function answers within a second."""
    try:
        onebox.client.get("/api/pid", timeout=1)
    except httpx.ReadTimeout:
        return True
    return False


class blocking:  # noqa: N801 # reads as a verb
    """One worker process blocks its event loop."""

    def __init__(self, onebox: OneboxProcess) -> None:
        self._onebox = onebox
        self._caller = Thread(target=self.call)

    def call(self) -> None:
        """Ask for it; return when it has ended, or the host has."""
        with suppress(httpx.TransportError), httpx.Client(base_url=self._onebox.url, timeout=60) as client:
            client.post("/api/block?seconds=60")

    def __enter__(self) -> None:
        self._caller.start()
        # The one that blocks answers no more.
        eventually(
            lambda: len({self._onebox.client.get("/api/pid").text for _ in range(6)}) == 1, "one blocks"
        )

    def __exit__(self, *_: object) -> None:
        self._caller.join()
