"""`python -m scripts.first_run`: follows the README on a fresh clone with empty package caches, and times it.

Clones the committed state into a temporary folder, runs `make run` there on free ports, posts the README's
operation and waits for its success. What it prints goes into docs/quick-start.md.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from scripts.processes import PLAIN_HTTP, ROOT, eventually, free_port

STEPS_WITHIN_SECONDS = 900.0
STOP_WITHIN_SECONDS = 30.0
CURL = re.compile(r"```sh\n(curl .*?)```", re.DOTALL)


class Watch:
    """Prints how long each step took."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()

    def step(self, name: str) -> None:
        """Print the time since the step before."""
        now = time.monotonic()
        print(f"{name:<46}{now - self.last:7.1f} s", flush=True)
        self.last = now

    def total(self) -> None:
        """Print the time since the beginning."""
        print(f"{'clone to first success':<46}{time.monotonic() - self.began:7.1f} s")


def main() -> None:
    """Run through it once."""
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder, watch = Path(name), Watch()
        clone = folder / "clone"
        command = ["git", "clone", "--quiet", str(ROOT), str(clone)]
        subprocess.run(command, check=True)  # noqa: S603 # this repository
        watch.step("git clone, from this disk")
        port, target_port = free_port(), free_port()
        with _make_run(clone, folder, port, target_port) as log:
            _until((clone / ".venv" / ".installed").exists, "the packages are installed", log)
            watch.step("make: environment, Python packages, Azurite")
            _until(lambda: "curl -i" in log.read_text(), "the app serves", log)
            watch.step("make: storage, task hub, app serve")
            _first_success(clone, port)
            watch.step("the README's curl: two failures, two waits")
            watch.total()


@contextmanager
def _make_run(clone: Path, folder: Path, port: int, target_port: int) -> Iterator[Path]:
    """Run `make run` without anybody's caches; give its log."""
    make = shutil.which("make") or sys.exit("first_run: make is needed")
    options = f"--port {port} --target-port {target_port} --storage-ports auto"
    caches = {"PIP_NO_CACHE_DIR": "1", "npm_config_cache": str(folder / "npm")}
    path = folder / "run.log"
    with path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 # our own command
            [make, "run", f"ARGS={options}"],
            cwd=clone,
            env=_without_our_environment() | caches,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        yield path
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_WITHIN_SECONDS)


def _without_our_environment() -> dict[str, str]:
    """Give the environment without the one that this program may run in."""
    left_out = str(ROOT / ".venv" / "bin")
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != left_out]
    kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return kept | {"PATH": os.pathsep.join(path)}


def _until(look: Callable[[], bool], what: str, log: Path) -> None:
    try:
        eventually(look, what, within_seconds=STEPS_WITHIN_SECONDS)
    except TimeoutError:
        sys.exit(f"first_run: {what}: not in time\n{log.read_text()}")


def _first_success(clone: Path, port: int) -> None:
    """Type the README's command, and read the place that it answers until the operation has succeeded."""
    found = CURL.search((clone / "README.md").read_text(encoding="utf-8"))
    if found is None:
        sys.exit("first_run: the README has no curl")
    command = found[1].replace("localhost:7071", f"localhost:{port}").replace("curl -i", "curl -s")
    answer = subprocess.run(command, shell=True, check=True, capture_output=True)  # noqa: S602 # the README's own
    url = json.loads(answer.stdout)["status_url"]
    eventually(
        lambda: httpx.get(url, verify=PLAIN_HTTP).json()["status"] == "succeeded",
        "it succeeds",
        within_seconds=120,
    )


if __name__ == "__main__":
    main()
