import json
from pathlib import Path
from typing import Any

import pytest

from onebox import CannotStartError
from onebox.environment import AppSettings, MissingSettingError, load_local_settings, queue_names


def load(tmp_path: Path, content: Any, environment: dict[str, str]) -> dict[str, str]:
    path = tmp_path / "local.settings.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    load_local_settings(path, environment)
    return environment


def test_values_fill_up_the_environment_which_wins(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"Values": {"A": "file", "B": "file"}}, {"B": "real"})
    assert loaded == {"A": "file", "B": "real"}


def test_a_missing_file_changes_nothing(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    load_local_settings(tmp_path / "none.json", environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ({"Values": []}, "must be an object"),
        ({"Values": {"A": 1}}, "Values.A must be text"),
        ({"IsEncrypted": True, "Values": {}}, "is encrypted"),
    ],
)
def test_a_broken_file_is_reported(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(CannotStartError, match=complaint):
        load(tmp_path, content, {})


def test_references_are_expanded() -> None:
    settings = AppSettings({"QUEUE": "work", "STAGE": "test"})
    assert settings.expand("%QUEUE%-%STAGE%", where="x") == "work-test"
    assert settings.expand("plain", where="x") == "plain"


def test_a_missing_reference_names_the_binding_and_the_setting() -> None:
    with pytest.raises(MissingSettingError, match="function f: app setting QUEUE is not set, see '%QUEUE%'"):
        AppSettings({}).expand("%QUEUE%", where="function f")


@pytest.mark.parametrize("name", ["AzureWebJobsStorage", "Storage", "", None])
def test_a_connection_is_found_with_and_without_its_prefix(name: str | None) -> None:
    assert AppSettings({"AzureWebJobsStorage": "string"}).connection(name, where="x") == "string"


def test_a_missing_connection_is_named() -> None:
    named = r"function f: app setting Other holds no connection string: set one in local\.settings\.json, "
    with pytest.raises(MissingSettingError, match=named):
        AppSettings({"Other": ""}).connection("Other", where="function f")


@pytest.mark.parametrize(
    "setting", ["AzureWebJobsStorage__accountName", "azurewebjobsstorage__TABLESERVICEURI"]
)
@pytest.mark.parametrize("name", [None, "Storage", "AzureWebJobsStorage"])
def test_an_identity_is_reported_as_out_of_reach(setting: str, name: str | None) -> None:
    with pytest.raises(
        MissingSettingError, match=f"{setting} asks for an identity, .* set .* connection string"
    ):
        AppSettings({setting: "retries"}).connection(name, where="function f")


COMMENTED = """// of the developer's machine
{
  /* all of
     it */
  "Values": {"A": "http://a//b /*c*/ ,}", "B": "\\"//", /* d */ }, // e
}
"""


def test_comments_and_last_commas_are_read_as_in_the_host(tmp_path: Path) -> None:
    assert load(tmp_path, COMMENTED, {}) == {"A": "http://a//b /*c*/ ,}", "B": '"//'}
    with pytest.raises(CannotStartError, match=r"line 3 column 1 \(char 12\)"):
        load(tmp_path, "/* a\n b */ \n? // c", {})


def test_what_is_no_text_or_no_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "local.settings.json"
    path.write_bytes(b"\xff\xfe{\x00")
    with pytest.raises(CannotStartError, match="is not UTF-8 text"):
        load_local_settings(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CannotStartError, match=r"local\.settings\.json cannot be read: Is a directory"):
        load_local_settings(path)


@pytest.mark.parametrize(("name", "value"), [("A=B", "x"), ("", "x"), ("ONEBOX_TEST", "a\0b")])
def test_what_cannot_be_in_the_environment_is_named(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "local.settings.json"
    path.write_text(json.dumps({"Values": {name: value}}))
    with pytest.raises(CannotStartError, match=f"Values.{name} cannot be an environment variable"):
        load_local_settings(path)


def test_queues_are_named_with_spaces_between() -> None:
    assert queue_names({"ONEBOX_QUEUES": " a1b  work-poison " + 63 * "q"}) == ["a1b", "work-poison", 63 * "q"]
    assert queue_names({}) == []


@pytest.mark.parametrize("name", ["Orders", "ab", 64 * "q", "a--b", "-ab", "ab-", "a_b", "a,b", "caf\u00e9"])
def test_a_name_that_no_queue_can_have_is_reported_with_its_setting(name: str) -> None:
    with pytest.raises(CannotStartError, match=f"^app setting ONEBOX_QUEUES must be .*, not '{name}'$"):
        queue_names({"ONEBOX_QUEUES": f"orders {name}"})
