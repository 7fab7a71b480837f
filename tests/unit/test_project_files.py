"""Files that tools other than Python read: they name the same versions and the same commands."""

import json
import re
import subprocess
import sys
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

WORKFLOWS = [str(file.relative_to(ROOT)) for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
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


def test_actions_of_the_workflows_are_pinned_to_commits() -> None:
    jobs = [job for file in WORKFLOWS for job in yaml_of(file)["jobs"].values()]
    uses = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    assert uses
    assert all(len(each.partition("@")[2]) == 40 for each in uses)


def test_the_workflows_follow_githubs_schema() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *WORKFLOWS,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_and_files_that_a_workflow_names_exist() -> None:
    text = "".join((ROOT / file).read_text() for file in WORKFLOWS)
    modules = set(re.findall(r"python -m (scripts\.\w+)", text))
    assert {"scripts.package", "scripts.smoke"} <= modules
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_only_the_deploying_job_gets_an_identity_and_it_asks_for_an_approval() -> None:
    jobs = yaml_of(".github/workflows/hosts.yml")["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"azure"}
    assert jobs["azure"]["environment"] == "azure"
    assert jobs["azure"]["if"] == "inputs.deploy"


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
