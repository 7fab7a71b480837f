"""The code that counts as the app's own."""

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from durable_retry_console.activity import code

FILES = (
    "function_app.py",
    "orders/__init__.py",
    "orders/deep/rules.py",
    "unused.py",
    "build/lib/orders/__init__.py",
    "venv/lib/python3.13/site-packages/httpx/__init__.py",
    "data/rows.json",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(code, "APP_ROOT", tmp_path)
    for name in ("function_app", "orders"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    code.code_on_disk.cache_clear()
    yield tmp_path
    code.code_on_disk.cache_clear()


def changed(folder: Path, file: str) -> set[str]:
    """The names of which a process that starts after a change of a file runs other code."""
    before = code.running_code()
    (folder / file).write_text("changed = True")
    code.code_on_disk.cache_clear()
    after = code.running_code()
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.usefixtures("folder")
def test_the_apps_own_modules_and_the_library_are_the_code() -> None:
    assert set(code.running_code()) == {"durable_retry", "durable_retry_console", "function_app", "orders"}


@pytest.mark.parametrize("file", FILES[:3])
def test_a_change_of_a_module_is_other_code(folder: Path, file: str) -> None:
    assert changed(folder, file) == {file.partition("/")[0].removesuffix(".py")}


@pytest.mark.parametrize("file", FILES[3:])
def test_what_the_app_does_not_import_from_its_folder_is_no_code(folder: Path, file: str) -> None:
    assert changed(folder, file) == set()


def test_a_file_that_changes_after_the_start_changes_nothing(folder: Path) -> None:
    before = code.running_code()
    (folder / "function_app.py").write_text("changed = True")
    assert code.running_code() == before


def test_the_code_is_read_at_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Thread, "start", Thread.run)
    code.begin()
    (folder / "function_app.py").write_text("changed = True")
    assert code.code_on_disk.cache_info().currsize == 1
