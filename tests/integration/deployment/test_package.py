import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.package import deployed_files, write
from scripts.processes import ROOT
from tests.support.commands import ran
from tests.support.packages import install_packages

INDEXING = ROOT / "tests" / "integration" / "deployment" / "indexing.py"

ENVIRONMENT = {
    "AzureWebJobsStorage__accountName": "retries",
    "AzureWebJobsStorage__credential": "managedidentity",
    "FLAKY_TARGET_URL": "https://flaky-target.invalid",
}


def loaded(folder: Path, dependencies: str | None = None) -> dict[str, Any]:
    """Load the deployment with its own packages in a new interpreter, and return what it finds."""
    app, packages = folder / "app", folder / "packages"
    packages.mkdir()
    write(app, "storage")
    install_packages(app, packages)
    if dependencies is not None:
        (app / "dependencies.toml").write_text(dependencies)
    command = [sys.executable, "-I", "-S", "-B", str(INDEXING), str(app), str(packages)]
    done = ran(command, env=ENVIRONMENT, cwd=app, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an interpreter finds that has the deployment and nothing else of this machine."""
    return loaded(tmp_path_factory.mktemp("deployment"))


def test_the_deployed_files_load_with_the_deployed_packages(indexed: dict[str, Any]) -> None:
    assert {"api_operations", "operations_queue", "operation", "attempt", "api_dashboard"} <= set(
        indexed["functions"]
    )


def test_every_import_that_comes_later_is_deployed_too(indexed: dict[str, Any]) -> None:
    assert indexed["missing"] == []


def test_the_description_of_the_api_is_shipped(indexed: dict[str, Any]) -> None:
    assert indexed["ships_description"]


def test_loading_pays_for_no_identity(indexed: dict[str, Any]) -> None:
    assert "durable_retry.storage.clients" in indexed["loaded"]
    assert "azure.identity" not in indexed["loaded"]


def test_only_the_app_is_deployed() -> None:
    assert {file.parts[0] for file in deployed_files()} == {
        "activities",
        "constraints.txt",
        "dependencies.toml",
        "durable_retry",
        "entities",
        "function_app.py",
        "host.json",
        "orchestrators",
        "packages",
        "requirements.txt",
    }


def test_of_the_packages_the_console_alone_is_deployed_and_it_whole() -> None:
    console = Path("packages/console")
    whole = {
        file.relative_to(ROOT)
        for file in (ROOT / console / "durable_retry_console").rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert {file for file in deployed_files() if file.parts[0] == "packages"} == {
        *whole,
        *(console / name for name in ("README.md", "pyproject.toml")),
    }


@pytest.mark.long
def test_an_app_with_dependencies_of_its_own_starts(tmp_path: Path) -> None:
    mine = '[dependencies.mine]\nbase_url = "https://mine.invalid"\n'
    assert "api_operations" in loaded(tmp_path, dependencies=mine)["functions"]
