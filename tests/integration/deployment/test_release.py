import json
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from durable_retry.features.openapi.routes import SHIPPED, documents
from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port
from scripts.release import build
from tests.support.commands import ran

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
from durable_retry_client import Client, Operation

@durable_retry.operation(dependency="ledger")
def add(left: int, right: int) -> int:
    return left + right

def use(client: Client) -> None:
    assert_type(add(1, right=2), int)
    submitted = client.submit(handler="add", input={"left": 1, "right": 2})
    assert_type(client.wait(submitted.operation_id, timeout_seconds=1), Operation)
    client.submit(handler="add", key=7)
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
        *(["durable_retry_client"] * 2),
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
    with zipfile.ZipFile(next(dist.glob("durable_retry-*.whl"))) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        assert f"{URL}/raw/v1/docs/pictures/operation-light.png" in archive.read(name).decode()


def test_the_engines_wheel_ships_the_description_of_the_api_with_the_console_and_without(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("durable_retry-*.whl"))) as archive:
        folder = f"{SHIPPED.relative_to(ROOT).as_posix()}/"
        shipped = {
            name.removeprefix(folder): archive.read(name)
            for name in archive.namelist()
            if name.startswith(folder)
        }
    assert shipped == documents()


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
    done = ran(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "user.py"], cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert [line.partition(": error: ")[0] for line in lines[:-1] if "error:" in line] == ["user.py:14"]
    assert 'incompatible type "int"' in done.stdout


OLDER = ("3.10", "3.11", "3.12")


def older_pythons() -> list[Path]:
    """The interpreters of this machine that the client is for and the app is not, found by their names."""
    named = [Path(found) for version in OLDER if (found := shutil.which(f"python{version}"))]
    built = [
        file for version in OLDER for file in Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")
    ]
    return [
        python for python in (*named, *built) if subprocess.run([python, "-V"], check=False).returncode == 0
    ]


@pytest.mark.skipif(
    not older_pythons(), reason="no Python older than the app's is here; the workflow has them"
)
def test_the_clients_wheel_works_on_older_pythons(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("durable_retry_client-*.whl")
    package = ROOT / "packages" / "client"
    if not (pythons := older_pythons()):
        pytest.skip("no Python older than the app's is here; the workflow parts.yml has them")
    for number, python in enumerate(pythons):
        own = tmp_path / str(number) / "bin" / "python"
        subprocess.run([python, "-m", "venv", own.parents[1]], check=True)
        install = ("-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, "pytest")
        subprocess.run([own, *install], check=True, timeout=300)
        options = ("-q", "-W", "error", "-p", "no:cacheprovider", "-c", package / "pyproject.toml")
        subprocess.run([own, "-m", "pytest", *options, package / "tests"], cwd=tmp_path, check=True)
