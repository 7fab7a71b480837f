import json
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

import durable_retry_client
import durable_retry_console
import onebox
import retryctl
from durable_retry.features.openapi.routes import described
from scripts.package import LEAST_BUNDLE, NEEDS
from scripts.processes import ROOT
from tests.long_checks import ALWAYS, AZURE
from tests.support.commands import ran
from tests.support.narrowing import existing
from tests.support.semantics import OWN_TERMS

SETUP = ".github/actions/setup"
WORKFLOWS = [str(file.relative_to(ROOT)) for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
TEST_SUPPORT = [ROOT / name for name in ("conftest.py", "tests/support/app.py", "tests/e2e/conftest.py")]
LIBRARY = "durable_retry"
CONSOLE = "packages/console/durable_retry_console"
PYTHON_FOLDERS = (
    *(LIBRARY, "orchestrators", "activities", "entities", "bench", "scripts", "examples", "tests"),
    *(
        "packages/client",
        "packages/console",
        "packages/onebox/onebox",
        "packages/onebox/tests",
        "packages/retryctl",
    ),
)
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def yaml_of(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_description_of_the_api_has_the_version_of_the_project() -> None:
    assert described()["info"]["version"] == VERSION


def test_retryctl_has_the_version_of_the_project() -> None:
    assert retryctl.__version__ == version("retryctl") == VERSION


def test_the_client_has_the_version_of_the_project_and_retryctl_stands_on_it() -> None:
    assert durable_retry_client.__version__ == version("durable-retry-client") == VERSION
    asked = tomllib.loads((ROOT / "packages/retryctl/pyproject.toml").read_text())["project"]["dependencies"]
    assert f"durable-retry-client=={VERSION}" in asked


def test_the_client_is_tried_on_every_python_that_it_is_for() -> None:
    project = tomllib.loads((ROOT / "packages/client/pyproject.toml").read_text())["project"]
    jobs = yaml_of(".github/workflows/parts.yml")["jobs"]
    tried = {*jobs["client"]["strategy"]["matrix"]["python"], (ROOT / ".python-version").read_text().strip()}
    said = {each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each}
    assert said == tried
    assert project["requires-python"] == f">={min(said)}"
    assert {Requirement(each).name for each in project["dependencies"]} == {"httpx", "pydantic"}


def test_the_console_has_the_version_of_the_project() -> None:
    assert durable_retry_console.__version__ == version("durable-retry-console") == VERSION


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
    steps = [step for job in jobs for step in job["steps"]] + yaml_of(f"{SETUP}/action.yml")["runs"]["steps"]
    uses = {step["uses"] for step in steps if "uses" in step}
    assert f"./{SETUP}" in uses
    assert all(len(each.partition("@")[2]) == 40 for each in uses - {f"./{SETUP}"})


def test_every_workflow_may_only_read_unless_a_job_asks_for_more() -> None:
    assert [file for file in WORKFLOWS if yaml_of(file)["permissions"] != {"contents": "read"}] == []


def test_the_parts_run_every_test_folder_and_the_fast_ones_also_elsewhere() -> None:
    jobs = yaml_of(".github/workflows/parts.yml")["jobs"]
    runs = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    tops = (
        ROOT / "tests",
        ROOT / "packages" / "client",
        *(ROOT / "packages" / name / "tests" for name in ("console", "onebox")),
    )
    folders = {
        folder.relative_to(ROOT).as_posix()
        for top in tops
        for folder in top.iterdir()
        if any(folder.rglob("test_*.py"))
    }
    assert jobs.keys() == {"lint", "types", "unit", "client", "integration", "e2e"}
    assert all(check in runs for check in ("ruff format --check .", "ruff check .", "mypy ."))
    assert len(folders) > 8
    assert folders - set(runs.split()) == set()
    matrix = jobs["unit"]["strategy"]["matrix"]["include"]
    assert {each["python"] for each in matrix} == {"3.13", "3.14"}
    assert any(each["os"].startswith("macos") for each in matrix)


def test_the_nightly_workflow_runs_all_long_tests_and_the_sites_publishes_what_is_built() -> None:
    nightly = yaml_of(".github/workflows/nightly.yml")["jobs"]["long"]["steps"]
    assert [step["run"] for step in nightly if "run" in step] == ["make test-long"]
    site = yaml_of(".github/workflows/site.yml")["jobs"]
    (upload,) = [step for step in site["build"]["steps"] if "upload-pages-artifact" in step.get("uses", "")]
    assert f" docs {upload['with']['path']}" in (ROOT / "Makefile").read_text()
    assert site["publish"]["permissions"] == {"pages": "write", "id-token": "write"}


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", [f"{SETUP}/action.yml"]),
        ("dependabot", [".github/dependabot.yml"]),
    ],
)
def test_what_github_reads_follows_its_schema(schema: str, files: list[str]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    done = ran(command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_and_files_that_a_workflow_names_exist() -> None:
    text = "".join((ROOT / file).read_text() for file in WORKFLOWS)
    modules = set(re.findall(r"python -m (scripts\.\w+)", text))
    assert {"scripts.package", "scripts.smoke"} <= modules
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_a_host_that_a_workflow_starts_is_new_enough_and_finds_its_packages_in_the_apps_folder() -> None:
    workflow = yaml_of(".github/workflows/hosts.yml")
    assert workflow["env"]["CORE_TOOLS"] == "azure-functions-core-tools@>=4.14 <5"
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    started = [run for run in steps if "func start" in run]
    assert len(started) == 2
    for run in started:
        environment = existing(re.search(r"python -m venv \S*\.venv", run))
        assert environment.start() < run.index("func start")


def test_core_tools_are_installed_with_the_node_that_they_ask_for() -> None:
    for job in yaml_of(".github/workflows/hosts.yml")["jobs"].values():
        if any("$CORE_TOOLS" in step.get("run", "") for step in job["steps"]):
            (node,) = (
                step["with"]["node-version"] for step in job["steps"] if "setup-node" in step.get("uses", "")
            )
            assert node == 22


def test_the_least_versions_are_the_same_wherever_they_are_stated() -> None:
    page = (ROOT / "docs/deploying.md").read_text()
    rows = dict(re.findall(r"^\| ([\w ]+) \| ([\d.]+) \|", page, re.MULTILINE))
    assert f"host of {rows['Functions host']} or newer" in NEEDS
    assert f"Core Tools of {rows['Functions Core Tools']} or newer" in NEEDS
    assert rows["extension bundle"] == ".".join(map(str, LEAST_BUNDLE))


def test_the_workflow_tries_the_bundle_that_host_json_names_and_the_preview() -> None:
    named = json.loads((ROOT / "host.json").read_text())["extensionBundle"]
    tried = yaml_of(".github/workflows/hosts.yml")["jobs"]["storage"]["strategy"]["matrix"]["include"]
    assert (tried[0]["bundle"], tried[0]["versions"]) == (named["id"], named["version"])
    assert [each["bundle"] for each in tried[1:]] == [f"{named['id']}.Preview"]


def test_the_workflow_sets_what_the_tests_read() -> None:
    """A name that nobody reads is a test against another app than the one that was started."""
    workflow = yaml_of(".github/workflows/hosts.yml")
    read = set(re.findall(r"E2E_[A-Z_]+", "".join(file.read_text() for file in TEST_SUPPORT)))
    assert {name for name in workflow["env"] if name.startswith("E2E_")} <= read
    runs = [step["run"] for step in workflow["jobs"]["storage"]["steps"] if "pytest" in step.get("run", "")]
    # The second one meets what the first one left.
    assert len(runs) == 2
    assert runs[0] == runs[1]


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


def test_the_command_line_and_the_console_come_with_extras_of_the_same_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["cli"] == [f"retryctl=={VERSION}"]
    assert extras["console"] == [f"durable-retry-console=={VERSION}"]


def test_every_module_of_the_app_is_read_in_one_go() -> None:
    """Past 600 lines a file has two subjects."""
    tops = ("durable_retry", "orchestrators", "activities", "entities", CONSOLE)
    lines = {path: path.read_text().count("\n") for top in tops for path in (ROOT / top).rglob("*.py")}
    assert len(lines) > 100
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > 600} == {}


def test_no_line_of_a_docstring_or_comment_begins_with_a_relative_word() -> None:
    """Such a line is understood after the one before it only."""
    begins = re.compile(r'^\s*(?:"""|# )?(?:Of|Whose|Which)\b', re.MULTILINE)
    files = [file for top in PYTHON_FOLDERS for file in (ROOT / top).rglob("*.py")]
    ours = [file for file in files if not {"node_modules", ".venv"} & set(file.parts)]
    assert [str(file) for file in ours if begins.search(file.read_text())] == []


OF_THE_WHOLE_TREE: Final = {
    "client_contract",
    "cold_start",
    "cursors",
    "documents",
    "durable_names",
    "layering",
    "operation_states",
    "project_files",
    "features",
    "references",
    "retryctl_routes",
    "types",
}


def test_unit_tests_mirror_the_tree() -> None:
    """A file is named after a module, and a part of it, or after the package that its folder is."""
    units = (ROOT / "tests" / "unit", ROOT / "packages" / "console" / "tests" / "unit")
    tests = [file.relative_to(unit) for unit in units for file in unit.rglob("test_*.py")]
    assert len(tests) > 100
    named = {at: at.stem.removeprefix("test_") for at in tests}
    strangers = {at for at, name in named.items() if not _is_in_tree(at.parent, name)}
    assert strangers == {Path(f"test_{name}.py") for name in OF_THE_WHOLE_TREE}


def _is_in_tree(folder: Path, name: str) -> bool:
    words = name.split("_")
    known = {f"__{name}__", *("_".join(words[:end]) for end in range(1, len(words) + 1))}
    return any(
        (place.is_dir() and place.name == name) or any(each.stem in known for each in place.glob("*.*"))
        for place in (ROOT / folder, ROOT / LIBRARY / folder, ROOT / CONSOLE / folder)
    )


def test_the_tables_of_long_checks_name_tests_that_are_there() -> None:
    named = [*ALWAYS, *(f"tests/e2e/test_{name}.py" for name in AZURE)]
    assert [name for name in named if not (ROOT / name).is_file()] == []
    paths = [file for folder in ("e2e", "fault") for file in (ROOT / "tests" / folder).rglob("test_*.py")]
    gone = [
        f"{file}::{beginning}"
        for files in OWN_TERMS.values()
        for file, beginnings in files.items()
        for beginning in beginnings
        if not any(f"def test_{beginning}" in path.read_text() for path in paths if path.stem == file)
    ]
    assert gone == []
