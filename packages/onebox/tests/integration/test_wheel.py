"""What a stranger gets: the wheel in an empty environment, beside an app that it has never seen."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port

PACKAGE = ROOT / "packages" / "onebox"
AZURITE = PACKAGE / "onebox" / "azurite"

# Installs a dozen packages from the index, which takes most of a minute.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Installed:
    """An environment that holds nothing but the wheel and what it requires.

    Attributes:
        onebox: The console script.
        caches: Where the emulator was installed; here it is the one of the source tree.
    """

    onebox: Path
    caches: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a stranger: nothing of this project is importable."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AZURE"))}
        return {**kept, "XDG_CACHE_HOME": str(self.caches)}

    def run(self, *arguments: str, cwd: Path) -> str:
        done = subprocess.run(
            [str(self.onebox), *arguments],
            cwd=cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(
        PACKAGE, source, ignore=shutil.ignore_patterns("node_modules", "*.egg-info", "__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([*pip, *wheels], check=True, timeout=120)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("onebox-*.whl")
    subprocess.run([*pip, "--python", str(python), "install", str(wheel)], check=True, timeout=500)
    locked = hashlib.sha256((AZURITE / "package-lock.json").read_bytes()).hexdigest()[:12]
    emulator = folder / "caches" / "onebox" / f"azurite-{locked}"
    emulator.mkdir(parents=True)
    (emulator / "node_modules").symlink_to(AZURITE / "node_modules")
    return Installed(folder / "venv" / "bin" / "onebox", folder / "caches")


@pytest.fixture
def first_app(installed: Installed, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """The app that `onebox new` writes, served with `--reload`."""
    app = tmp_path / "my-app"
    assert "Wrote a first app" in installed.run("new", str(app), cwd=tmp_path)
    options = ["--port", str(free_port()), "--storage-ports", "free", "--reload"]
    command = [str(installed.onebox), "start", "--app", str(app), "--data", str(tmp_path / "data"), *options]
    ready = f"http://127.0.0.1:{options[1]}/admin/host/status"
    server = ServerProcess(command, ready_url=ready, log=tmp_path / "log", env=installed.environ)
    server.start()
    yield server, app
    assert server.stop() == 0


def test_the_first_app_runs_shows_itself_and_reloads(first_app: tuple[ServerProcess, Path]) -> None:
    server, app = first_app
    url = server.ready_url.removesuffix("/admin/host/status")
    log = server.log.read_text()
    assert re.search(rf"onebox \d+\.\d+\.\d+ on {url}\n", log)
    assert "\nFunctions: 3; start with --verbose to list them\n" in log

    def greeted() -> list[str] | None:
        """The output of a new orchestration; None while a change is being loaded."""
        try:
            started = httpx.post(f"{url}/api/greetings", verify=PLAIN_HTTP).raise_for_status().json()
            ended = eventually(lambda: _ended(started["statusQueryGetUri"]), "the orchestration ends")
        except httpx.HTTPError:
            return None
        output: list[str] = ended["output"]
        return output

    assert greeted() == ["Hello, Berlin!", "Hello, Nairobi!", "Hello, Lima!"]
    script = app / "function_app.py"
    script.write_text(script.read_text().replace("Hello, ", "Good day, "))
    eventually(
        lambda: (greeted() or [""])[0] == "Good day, Berlin!", "the change is served", within_seconds=60
    )
    assert "POST /api/greetings" in server.log.read_text()


def _ended(url: str) -> dict[str, Any] | None:
    state: dict[str, Any] = httpx.get(url, verify=PLAIN_HTTP).raise_for_status().json()
    return state if state["runtimeStatus"] == "Completed" else None


def test_storage_runs_alone(installed: Installed, tmp_path: Path) -> None:
    command = [str(installed.onebox), "storage", "--data", str(tmp_path / "data"), "--storage-ports", "free"]
    with subprocess.Popen(command, env=installed.environ, stdout=subprocess.PIPE, text=True) as storage:
        assert storage.stdout is not None
        lines = {line.split(" ")[0]: line.strip() for line in iter(storage.stdout.readline, "\n")}
        try:
            table = lines["table"].split(" ")[1]
            assert httpx.get(table, verify=PLAIN_HTTP).status_code < 500
        finally:
            storage.terminate()
        assert storage.wait(timeout=20) == 0


def test_a_folder_that_has_an_app_is_left_alone(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"version": "2.0"}))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        installed.run("new", str(tmp_path), cwd=tmp_path)
    assert "already has host.json; choose another folder" in refused.value.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["host.json"]
