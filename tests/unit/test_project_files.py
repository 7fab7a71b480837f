"""Files that tools other than Python read: they name the same versions and the same commands."""

import json
import tomllib
from importlib.metadata import version
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

import onebox
import retryctl
from durable_retry.triggers.http.api import described
from scripts.processes import ROOT

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def yaml_of(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_description_of_the_api_has_the_version_of_the_project() -> None:
    assert described()["info"]["version"] == VERSION


def test_retryctl_has_the_version_of_the_project() -> None:
    assert retryctl.__version__ == version("retryctl") == VERSION


def test_onebox_has_the_version_of_the_project() -> None:
    assert onebox.__version__ == VERSION


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert f"## [{VERSION}] - 2" in (ROOT / "CHANGELOG.md").read_text()


def test_the_workflow_runs_what_ci_runs_and_may_only_read() -> None:
    workflow = yaml_of(".github/workflows/checks.yml")
    steps = workflow["jobs"]["checks"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert workflow["permissions"] == {"contents": "read"}


def test_actions_of_the_workflow_are_pinned_to_commits() -> None:
    uses = [step["uses"] for step in yaml_of(".github/workflows/checks.yml")["jobs"]["checks"]["steps"][:-1]]
    assert all(len(each.partition("@")[2]) == 40 for each in uses)


def test_hooks_run_from_the_environment_that_setup_makes() -> None:
    repositories = yaml_of(".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/python -m ") for hook in hooks)


def test_the_container_has_the_python_of_the_project() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    python = (ROOT / ".python-version").read_text().strip()
    assert container["image"].startswith(f"mcr.microsoft.com/devcontainers/python:{python}-")
    assert container["postCreateCommand"] == "make setup"


@pytest.mark.parametrize("name", ["settings", "extensions", "launch"])
def test_the_editor_can_read_its_files(name: str) -> None:
    assert json.loads((ROOT / ".vscode" / f"{name}.json").read_text())


def test_the_wheel_asks_for_every_package_that_is_deployed_in_a_range_that_holds_its_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["telemetry"]]
    ranges = {each.name: each.specifier for each in map(Requirement, asked)}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert ranges.keys() == pins.keys()
    assert all(ranges[name].contains(pin, prereleases=True) for name, pin in pins.items())
    assert all("<" in str(each) for each in ranges.values())


def test_the_command_line_comes_with_an_extra_of_the_same_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["cli"] == [f"retryctl=={VERSION}"]
