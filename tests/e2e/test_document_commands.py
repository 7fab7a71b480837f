"""Every command of the documents, in a copy of the repository that `make run` serves.

The commands of a page run in one shell, in their order, as a reader would type them; `localhost:7071` and
`localhost:7072` become the ports of this run. A `curl` that is answered 400 or above fails.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.processes import ROOT, ServerProcess, eventually, free_port
from scripts.run import port_in_use
from tests.support.documents import Document, documents

pytestmark = pytest.mark.long

PRELUDE = """
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"""
LEFT_OUT = ("tests/", "bench/")
"""What the app does without, and `--reload` need not watch."""


@dataclass(frozen=True)
class Checkout:
    folder: Path
    port: int
    target_port: int

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        text = script.replace(":7071", f":{self.port}").replace(":7072", f":{self.target_port}")
        bin_folder = self.folder / ".venv" / "bin"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", PRELUDE + text],  # noqa: S607 # bash as it is found
            cwd=self.folder,
            env=os.environ
            | {
                "PATH": f"{bin_folder}:{os.environ['PATH']}",
                "DURABLE_RETRY_URL": f"http://localhost:{self.port}",
            },
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )


def copied_to(folder: Path) -> Path:
    """Copies what is or will be in the repository; what `make setup` made is shared."""
    listed = subprocess.run(  # the repository's own, not a package's
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 # git as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if not name.startswith(LEFT_OUT) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    example = folder / "local.settings.example.json"
    shutil.copy(example, folder / "local.settings.json")  # as `make setup` does
    (folder / "mine").mkdir()
    shutil.copy(folder / "dependencies.toml", folder / "mine")
    (folder / "mine/handlers.py").touch()
    for made in (".venv", "packages/onebox/onebox/azurite/node_modules"):
        (folder / made).symlink_to(ROOT / made)
    return folder


def served_from(folder: Path) -> tuple[Checkout, ServerProcess]:
    """What `make run` serves, on other ports and with an eye on the files; started."""
    found = Checkout(copied_to(folder), free_port(), free_port())
    options = f"--port {found.port} --target-port {found.target_port} --storage-ports auto --reload"
    # What `make run` does after `make setup`, which would set up anew here what is only lent.
    serve = f"cd {found.folder} && exec .venv/bin/python -m scripts.run {options}"
    server = ServerProcess(
        [shutil.which("bash") or "bash", "-c", serve],
        ready_url=f"http://127.0.0.1:{found.port}/admin/host/status",
        log=found.folder.with_suffix(".log"),
        env={},
    )
    server.start()
    return found, server


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """What the documents' commands are run against."""
    found, server = served_from(tmp_path_factory.mktemp("checkout"))
    yield found
    assert server.stop() == 0


def script_of(document: Document) -> str:
    """The commands of a page that are to be run."""
    return "\n".join(block.text for block in document.blocks("sh") if not block.marks)


WITH_COMMANDS = [document for document in documents() if script_of(document)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("document", WITH_COMMANDS, ids=lambda document: document.name)
def test_every_command_of_a_document_runs(document: Document, checkout: Checkout) -> None:
    ran = checkout.run(script_of(document))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_kill_of_the_quick_start_ends_the_app(tmp_path: Path) -> None:
    served, server = served_from(tmp_path / "served")
    kill = "pkill -9 -f 'onebox start.*--port 7071'".replace("7071", str(served.port))
    assert served.run(kill).returncode == 0
    eventually(lambda: not port_in_use(served.port), "the app is gone")
    server.stop()


@pytest.mark.parametrize(
    ("target", "recipe"),
    [("run", ".venv/bin/python -m scripts.run --port 1"), ("test", "scripts/check.sh --port 1")],
)
def test_make_run_and_make_test_are_what_is_run_here_and_by_ci(target: str, recipe: str) -> None:
    listed = subprocess.run(
        ["make", "--dry-run", target, "ARGS=--port 1"],  # noqa: S607 # make as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert recipe in listed.stdout


def test_a_command_that_fails_is_noticed(checkout: Checkout) -> None:
    assert checkout.run("curl http://localhost:7071/api/nothing-of-the-kind").returncode != 0
    assert checkout.run("false\ntrue").returncode != 0
