"""What `make release` builds, installed as a user does: into a fresh environment."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port
from scripts.release import build

pytestmark = pytest.mark.long

URL = "https://git.example.com/o/r"
APP = """
import azure.durable_functions as df
import azure.functions as func
import durable_retry

@durable_retry.operation(dependency="ledger")
def add(left: int, right: int) -> int:
    return left + right

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
durable_retry.register(app)
"""
USER = """
from typing import assert_type
import durable_retry
from durable_retry.client import Client, Operation

@durable_retry.operation(dependency="ledger")
def add(left: int, right: int) -> int:
    return left + right

def use(client: Client) -> None:
    submitted = client.submit(add, 1, right=2)
    assert_type(client.wait(submitted.operation_id, timeout_seconds=1), Operation)
    client.submit(add, "one", right=2)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder, URL, "v1")
    return folder


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wheels = [str(wheel) for wheel in sorted(dist.glob("*.whl"))]
    command = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *wheels]
    subprocess.run([*map(str, command)], check=True, timeout=300)
    return python


def test_each_package_has_a_wheel_and_an_sdist_whose_page_leads_to_the_tag(dist: Path) -> None:
    assert sorted(file.name.partition("-")[0] for file in dist.iterdir()) == [
        *(["durable_retry"] * 2),
        *(["durable_retry_console"] * 2),
        *(["onebox"] * 2),
        *(["retryctl"] * 2),
    ]
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            page = archive.read(name).decode()
        assert "](docs/" not in page
        assert '="docs/' not in page
    with zipfile.ZipFile(next(dist.glob("durable_retry*.whl"))) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        assert f"{URL}/raw/v1/docs/pictures/operation-light.png" in archive.read(name).decode()


def test_a_foreign_app_is_served_from_the_wheels(python: Path, tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(APP)
    (tmp_path / "dependencies.toml").write_text("[dependencies.ledger]\n")
    task_hub = {"extensions": {"durableTask": {"entityMessageReorderWindowInMinutes": 0}}}
    (tmp_path / "host.json").write_text(json.dumps({"version": "2.0", **task_hub}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python), "-P", "-m", "onebox", "start", "--app", str(tmp_path), "--port", str(port)]
    server = ServerProcess(
        [*command, "--data", str(tmp_path / "data"), "--storage-ports", "free"],
        ready_url=f"{url}/admin/host/status",
        log=tmp_path / "onebox.log",
        env={"AzureWebJobsStorage": "UseDevelopmentStorage=true"},
    )
    server.start()
    try:
        body = {"handler": "add", "input": {"left": 1, "right": 2}, "key": "sum"}
        with httpx.Client(base_url=url, verify=PLAIN_HTTP) as client:
            status_url = client.post("/api/operations", json=body).json()["status_url"]
            done = eventually(
                lambda: (found := client.get(status_url).json())["status"] == "succeeded" and found,
                "it succeeds",
                within_seconds=60,
            )
        assert done["result"] == {"value": 3}
    finally:
        server.stop()


def test_a_type_checker_sees_the_installed_packages_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line.partition(": error: ")[0] for line in lines[:-1] if "error:" in line] == ["user.py:13"]
    assert 'incompatible type "str"' in done.stdout
