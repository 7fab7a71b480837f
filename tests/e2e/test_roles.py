"""Keys that `onebox keys` has made, each with the role that the app gives it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.target import Target

ROLES = ("caller", "reader", "operator")
CHANGES = "/api/operations/op-of-nobody/cancel"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A key of each role, of the data folder in which `locked` starts."""
    data = folder_of(tmp_path_factory) / "data"
    command = [sys.executable, "-m", "onebox", "keys", "add", "--data", str(data)]
    return {
        role: subprocess.check_output([*command, f"a-{role}", "--role", role], text=True).strip()
        for role in ROLES
    }


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(0, id="one process"),
        pytest.param(1, id="a worker process", marks=pytest.mark.long),
    ],
)
def locked(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    keys: dict[str, str],  # noqa: ARG001 # made before the start
    target: Target,
) -> Iterator[System]:
    """The app with `--auth`."""
    system = System(
        folder_of(tmp_path_factory),
        target,
        FUNCTIONS_WORKER_PROCESS_COUNT=str(request.param),
    )
    system.server.command.append("--auth")
    with system.running():
        yield system


def folder_of(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "roles"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("role", "statuses"),
    [("caller", (202, 403, 403)), ("reader", (403, 200, 403)), ("operator", (202, 200, 404))],
)
def test_a_key_does_what_its_role_may(
    locked: System, keys: dict[str, str], key: str, role: str, statuses: tuple[int, int, int]
) -> None:
    submits, lists, changes = statuses

    def answer(method: str, path: str, **more: object) -> httpx.Response:
        return locked.client.request(method, path, headers={"x-functions-key": keys[role]}, **more)  # type: ignore[arg-type]

    submitted = answer("POST", "/api/operations", json=operation(f"{key}-{role}", "/ok"))
    assert submitted.status_code == submits
    if submits == httpx.codes.ACCEPTED:
        assert answer("GET", submitted.headers["Location"]).status_code == httpx.codes.OK
    assert answer("GET", "/api/operations").status_code == lists
    changed = answer("POST", CHANGES)
    assert changed.status_code == changes
    assert answer("GET", "/runtime/webhooks/durabletask/instances").status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.parametrize("first", ["a caller's", "an operator's"])
def test_a_key_sent_twice_is_refused(locked: System, keys: dict[str, str], first: str) -> None:
    """The host would look at the first and the app at all of them."""
    sent = (keys["caller"], "x") if first == "a caller's" else (keys["operator"], keys["caller"])
    requests = [
        {"headers": [("x-functions-key", key) for key in sent]},
        {"params": [("code", key) for key in sent]},
        {"headers": {"x-functions-key": sent[0]}, "params": {"code": sent[1]}},
        {"headers": {"x-functions-key": sent[0]}, "params": {"code": sent[0]}},
    ]
    for request in requests:
        answer = locked.client.post(CHANGES, **request)  # type: ignore[arg-type]
        assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_key_that_is_not_listed_is_nobodys(
    locked: System, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The host lets it in: it is the one of `keys.json`."""
    path = folder_of(tmp_path_factory) / "data" / "keys.json"
    unlisted = json.loads(path.read_text())["function"]
    answer = locked.client.get("/api/operations", headers={"x-functions-key": unlisted})
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthorized")


def test_who_only_reads_sees_a_result_masked(locked: System, keys: dict[str, str], key: str) -> None:
    def answer(role: str, method: str, path: str, **more: object) -> httpx.Response:
        return locked.client.request(method, path, headers={"x-functions-key": keys[role]}, **more)  # type: ignore[arg-type]

    body = operation(key, "/echo", request={"json": {"token": "t-1", "n": 5}})
    location = answer("caller", "POST", "/api/operations", json=body).headers["Location"]
    ended = eventually(lambda: answer("caller", "GET", location).json()["result"], "it has a result")
    assert ended["json"]["received"] == {"token": "t-1", "n": 5}
    assert answer("operator", "GET", location).json()["result"] == ended
    assert answer("reader", "GET", location).json()["result"]["json"]["received"] == {"token": "***", "n": 5}


def test_without_a_key_nothing_is_answered(locked: System) -> None:
    assert locked.client.get("/api/operations").status_code == httpx.codes.UNAUTHORIZED
    assert locked.client.get("/api/health").status_code == httpx.codes.OK
