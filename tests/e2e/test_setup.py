import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.processes import ROOT

NEEDED = [
    "dependencies.toml",
    "local.settings.example.json",
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-sdks.txt",
    "constraints.txt",
    "packages/client/pyproject.toml",
    "packages/console/pyproject.toml",
    "packages/onebox/pyproject.toml",
    "packages/retryctl/pyproject.toml",
    "packages/onebox/onebox/azurite/package-lock.json",
]
COMMANDS = ["bash", "cat", "cksum", "dirname", "mkdir", "rm"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What setup.sh looks at, in a folder where nothing was set up yet."""
    for name in [*NEEDED, "scripts/setup.sh"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the few commands that every machine has, and an old Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for command in COMMANDS:
        (folder / command).symlink_to(shutil.which(command) or command)
    old = folder / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    return folder


def setup(folder: Path, path: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(folder / "scripts" / "setup.sh")]  # as make would
    return subprocess.run(
        command, env={"PATH": path, **env}, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_machine_without_a_new_enough_python_gets_a_clear_message(clone: Path, bare_path: Path) -> None:
    ended = setup(clone, str(bare_path))
    assert ended.returncode == 1
    assert "Python 3.13 or newer is needed" in ended.stderr
    assert "make setup PYTHON=" in ended.stderr
    assert not (clone / ".venv").exists()


def test_a_named_python_that_is_too_old_is_not_silently_replaced(clone: Path, bare_path: Path) -> None:
    ended = setup(clone, os.environ["PATH"], PYTHON=str(bare_path / "python3"))
    assert ended.returncode == 1
    assert f"tried: {bare_path / 'python3'}" in ended.stderr


def _note_what_is_asked(program: Path, clone: Path) -> None:
    notes = f'case "$*" in -SEc*) cat "$0.version";; *) echo "{program.name} $*" >> {clone}/asked;; esac'
    program.write_text(f"#!/bin/sh\n{notes}\n")
    program.chmod(0o755)


def use_python(version: str, *programs: Path) -> None:
    for program in programs:
        program.with_name(f"{program.name}.version").write_text(f"{version}\n")


@pytest.fixture
def set_up(clone: Path, bare_path: Path) -> Path:
    """A clone whose Python, Node and npm note what they are asked to do, set up once."""
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for program in (python, bare_path / "python3.13", bare_path / "node", bare_path / "npm"):
        _note_what_is_asked(program, clone)
    use_python("3.13", python, bare_path / "python3.13")
    (clone / "packages" / "onebox" / "onebox" / "azurite" / "node_modules" / "azurite").mkdir(parents=True)
    assert setup(clone, str(bare_path)).returncode == 0
    return clone


def asked(folder: Path) -> str:
    return (folder / "asked").read_text()


def test_a_first_setup_installs_the_packages_and_azurite(set_up: Path) -> None:
    assert "pip install" in asked(set_up)
    assert "-r requirements-dev.txt" in asked(set_up)
    assert "npm ci" in asked(set_up)


def test_a_first_setup_makes_local_settings_that_only_the_owner_reads(set_up: Path) -> None:
    made = set_up / "local.settings.json"
    assert made.read_text() == (set_up / "local.settings.example.json").read_text()
    assert made.stat().st_mode & 0o777 == 0o600


def test_a_first_setup_makes_a_folder_for_what_one_tries_out(set_up: Path) -> None:
    assert (set_up / "mine/dependencies.toml").read_text() == (set_up / "dependencies.toml").read_text()
    assert (set_up / "mine/handlers.py").exists()


def test_a_later_setup_leaves_local_settings_as_they_are(set_up: Path, bare_path: Path) -> None:
    (set_up / "local.settings.json").write_text("edited")
    assert setup(set_up, str(bare_path)).returncode == 0
    assert (set_up / "local.settings.json").read_text() == "edited"


def test_git_ignores_what_setup_makes_for_one_person() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "local.settings.json", "mine/handlers.py"],  # noqa: S607 # git as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout.split() == ["local.settings.json", "mine/handlers.py"]


def test_a_second_setup_does_nothing_and_says_nothing(set_up: Path, bare_path: Path) -> None:
    before = asked(set_up)
    ended = setup(set_up, str(bare_path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert asked(set_up) == before


def test_a_changed_requirement_is_installed(set_up: Path, bare_path: Path) -> None:
    before = asked(set_up)
    with (set_up / "requirements.txt").open("a") as requirements:
        requirements.write("another==1.0\n")
    assert setup(set_up, str(bare_path)).returncode == 0
    assert (
        asked(set_up).count("pip install") == before.count("pip install") + 2
    )  # the packages, and those under packages/


def test_a_virtual_environment_of_another_python_is_made_anew(set_up: Path, bare_path: Path) -> None:
    python, named = set_up / ".venv" / "bin" / "python", bare_path / "python3.14"
    _note_what_is_asked(named, set_up)
    use_python("3.14", named)
    assert "-m venv" not in asked(set_up)
    assert setup(set_up, str(bare_path), PYTHON=str(named)).returncode == 0
    assert "python3.14 -m venv --clear .venv" in asked(set_up)
    # The system's Python was replaced: what the earlier one installed is not seen.
    use_python("3.14", python)
    python.write_text(python.read_text().replace('case "$*" in', 'case "$*" in "-c import pip"*) exit 1;;'))
    assert setup(set_up, str(bare_path)).returncode == 0
    assert "python3.13 -m venv --clear .venv" in asked(set_up)
