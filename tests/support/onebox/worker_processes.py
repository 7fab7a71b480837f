"""What a running onebox says of its worker processes, and whether one has ended."""

from pathlib import Path
from typing import Any

from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


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
