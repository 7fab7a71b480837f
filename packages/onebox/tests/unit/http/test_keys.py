import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from starlette.requests import Request

from onebox import CannotStartError
from onebox.http.keys import KeyRole, Keys, Level, SeveralKeysError, key_of


def request(*keys: str, query: str = "") -> Request:
    headers = [(b"x-functions-key", key.encode()) for key in keys]
    return Request({"type": "http", "headers": headers, "query_string": query.encode()})


@pytest.mark.parametrize("left", ["", " \n"])
def test_an_empty_key_file_gets_new_keys(tmp_path: Path, left: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(left)
    keys = Keys.kept_in(path)
    assert path.stat().st_mode & 0o777 == 0o600
    written = json.loads(path.read_text())
    assert keys.system == written["system"]
    assert Keys.kept_in(path).let_in(request(written["function"]), Level.FUNCTION)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "1",
        '{"function": "f", "system": ""}',
        '{"function": 1}',
        '{"function": "f", "system": "s", "admin": "a", "named": [{"name": "x", "role": "king"}]}',
    ],
)
def test_a_broken_key_file_stops_the_start_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(CannotStartError, match="must be a JSON object with a key for each of"):
        Keys.kept_in(path)
    assert path.read_text() == text


def test_a_named_key_opens_functions_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = Keys.kept_in(path).with_named(path, "pager", KeyRole.READER)
    keys = Keys.kept_in(path)
    assert keys.let_in(request(made), Level.FUNCTION)
    assert not keys.let_in(request(made), Level.SYSTEM)
    assert not keys.let_in(request(made), Level.ADMIN)
    assert not keys.let_in(request(sha256(made.encode()).hexdigest()), Level.FUNCTION)
    assert made not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "sent",
    [
        request("k"),
        request(query="code=k"),
        request(query="Code=k"),  # as the host
    ],
)
def test_a_key_is_read_where_the_host_reads_it(sent: Request) -> None:
    assert key_of(sent) == "k"


@pytest.mark.parametrize(
    "sent",
    [
        request("k", "x"),
        request("k", "k"),
        request("k,x"),
        request(query="code=x&code=k"),
        request(query="code=k&CODE=k"),
        request("k", query="code=x"),
        request("k", query="code=k"),
        request("", query="code=k"),
    ],
)
@pytest.mark.parametrize("level", [Level.FUNCTION, Level.SYSTEM, Level.ADMIN])
def test_several_keys_are_refused_at_every_level_that_asks_for_one(
    tmp_path: Path, sent: Request, level: Level
) -> None:
    keys = Keys.kept_in(tmp_path / "keys.json")
    with pytest.raises(SeveralKeysError):
        keys.let_in(sent, level)
    assert keys.let_in(sent, Level.ANONYMOUS)


def test_the_other_keys_stay_when_one_is_added(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = Keys.kept_in(path).with_named(path, "pager", KeyRole.READER)
    function = json.loads(path.read_text())["function"]
    Keys.kept_in(path).with_named(path, "orders", KeyRole.CALLER)
    keys = Keys.kept_in(path)
    assert keys.let_in(request(first), Level.FUNCTION)
    assert keys.let_in(request(function), Level.FUNCTION)


def test_the_app_is_told_names_and_roles_beside_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = Keys.kept_in(path).with_named(path, "pager", KeyRole.READER)
    environ = {"CALLER_KEYS": "ops=operator:00"}
    Keys.kept_in(path).tell_app(environ)
    assert environ["CALLER_KEYS"] == f"ops=operator:00 pager=reader:{sha256(made.encode()).hexdigest()}"
    untouched: dict[str, str] = {}
    Keys(None).tell_app(untouched)
    assert untouched == {}


@pytest.mark.parametrize("name", ["", "two words", "a=b", "x" * 65])
def test_a_name_that_the_setting_could_not_hold_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(CannotStartError, match="a key's name is"):
        Keys.kept_in(path).with_named(path, name, KeyRole.READER)


def test_a_name_has_one_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    Keys.kept_in(path).with_named(path, "pager", KeyRole.READER)
    with pytest.raises(CannotStartError, match="has a key of pager"):
        Keys.kept_in(path).with_named(path, "pager", KeyRole.OPERATOR)


def test_the_command_prints_the_key_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [
        sys.executable,
        "-m",
        "onebox",
        "keys",
        "add",
        "pager",
        "--role",
        "reader",
        "--data",
        str(data),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Keys.kept_in(data / "keys.json").let_in(request(done.stdout.strip()), Level.FUNCTION)
    assert data.stat().st_mode & 0o777 == 0o700
