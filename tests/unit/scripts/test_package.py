import json
import sys
import zipfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

from durable_retry.features.openapi.routes import documents
from durable_retry.hub.task_hub import LIGHT_ROWS
from scripts.package import (
    PATCHES,
    ROOT,
    UNPROVEN,
    OldBundleError,
    check_bundle,
    deployed_files,
    host_json,
    main,
    merged,
    write,
)
from tests.support.commands import ran


def durable(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["extensions"]["durableTask"]
    return found


def test_azure_storage_is_what_host_json_says() -> None:
    assert host_json("storage") == (ROOT / "host.json").read_bytes()
    assert durable(host_json("storage"))["storageProvider"]["type"] == "AzureStorage"


def test_the_scheduler_changes_where_orchestrations_are_kept_and_nothing_else() -> None:
    assert durable(host_json("scheduler"))["storageProvider"] == {
        "type": "azureManaged",
        "connectionStringName": "DURABLE_TASK_SCHEDULER_CONNECTION_STRING",
    }
    storage, scheduler = json.loads(host_json("storage")), json.loads(host_json("scheduler"))
    for document in (storage, scheduler):
        del document["extensions"]["durableTask"]["storageProvider"]
    assert storage == scheduler


@pytest.mark.parametrize("backend", PATCHES)
def test_entity_messages_are_not_taken_for_duplicates_on_any_backend(backend: str) -> None:
    assert durable(host_json(backend))["entityMessageReorderWindowInMinutes"] == 0


def test_what_a_dead_host_had_fetched_rests_for_a_minute() -> None:
    provider = durable(host_json("storage"))["storageProvider"]
    names = ("controlQueueVisibilityTimeout", "workItemQueueVisibilityTimeout")
    assert [provider[name] for name in names] == ["00:01:00", "00:01:00"]


@pytest.mark.parametrize("backend", PATCHES)
def test_a_page_of_the_longest_statuses_fits_a_message(backend: str) -> None:
    longest = 6 * 16 * 1024  # Each of 8 Ki UTF-16 units and more written as \\uXXXX, with room to spare.
    assert durable(host_json(backend))["maxGrpcMessageSizeInBytes"] > LIGHT_ROWS * longest


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"a": None}, {"b": {"c": 1}}),
        ({"b": {"d": 2}}, {"a": 1, "b": {"c": 1, "d": 2}}),
        ({"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"e": None, "f": 4}}, {"a": {"f": 4}, "b": {"c": 1}}),
    ],
)
def test_a_patch_is_merged_as_rfc_7396_says(patch: dict[str, Any], result: dict[str, Any]) -> None:
    assert merged({"a": 1, "b": {"c": 1}}, patch) == result


def test_what_git_ignores_is_not_deployed() -> None:
    ignored, left_out = (
        set((ROOT / name).read_text().splitlines()) for name in (".gitignore", ".funcignore")
    )
    assert ignored - left_out == {"local.settings.json"}  # local.settings*.json


def test_a_folder_and_an_archive_hold_the_same(tmp_path: Path) -> None:
    write(tmp_path / "app", "scheduler")
    write(tmp_path / "app.zip", "scheduler")
    with zipfile.ZipFile(tmp_path / "app.zip") as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert packed == {
        file.relative_to(tmp_path / "app").as_posix(): file.read_bytes()
        for file in (tmp_path / "app").rglob("*")
        if file.is_file()
    }
    files = {file.as_posix() for file in deployed_files()}
    compiled = {cache_from_source(file) for file in files if file.endswith(".py")}
    described = {f"durable_retry/features/openapi/documents/{name}" for name in documents()}
    assert packed.keys() == files | compiled | described
    assert packed["host.json"] == host_json("scheduler")


def test_a_deployed_module_is_not_compiled_when_it_is_imported(tmp_path: Path) -> None:
    write(tmp_path / "app", "storage")
    module = tmp_path / "app" / "durable_retry" / "runtime" / "clock.py"
    module.write_text("compiled = 'here'")
    run = ran(
        [
            sys.executable,
            "-c",
            "import durable_retry.runtime.clock as m; print(m.__file__, m.now.__code__.co_filename)",
        ],
        cwd=tmp_path / "app",
        check=True,
    )
    assert run.stdout.split() == [str(module), str(module)]


def test_what_exists_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.zip").write_text("mine")
    monkeypatch.setattr("sys.argv", ["package", str(tmp_path / "app.zip")])
    with pytest.raises(SystemExit):
        main()
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "app.zip").read_text() == "mine"


def test_the_folders_around_a_package_are_made(tmp_path: Path) -> None:
    write(tmp_path / "builds" / "today" / "app.zip", "storage")
    assert zipfile.is_zipfile(tmp_path / "builds" / "today" / "app.zip")


def test_a_place_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr("sys.argv", ["package", str(tmp_path / "file" / "app")])
    with pytest.raises(SystemExit):
        main()
    assert f"Not a directory: '{tmp_path}/file/app'" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["[4.0.0, 5.0.0)", "[4.37.9, 5.0.0)", "[3.99.0, 5.0.0)", "4.*", None])
def test_a_host_json_that_lets_in_an_old_bundle_is_refused(version: str | None) -> None:
    with pytest.raises(OldBundleError, match=r"must begin with \[4\.38"):
        check_bundle(json.dumps({"extensionBundle": {"version": version}}).encode())


@pytest.mark.parametrize("version", ["[4.38.0, 5.0.0)", "[4.40.1, 5.0.0)", "[5.0.0, 6.0.0)"])
def test_a_host_json_with_a_newer_bundle_is_taken(version: str) -> None:
    check_bundle(json.dumps({"extensionBundle": {"version": version}}).encode())


@pytest.mark.parametrize("backend", ["storage", "scheduler"])
def test_a_package_says_what_it_needs_and_of_which_backend_nobody_knows(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["package", "--backend", backend, str(tmp_path / "app.zip")])
    main()
    said = capsys.readouterr().err
    assert "4.1038" in said
    assert "4.14" in said
    assert (UNPROVEN["scheduler"] in said) == (backend == "scheduler")
