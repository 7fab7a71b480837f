"""What the management API answers in each status of an instance: the tables of the Durable extension.

Sources: its end-to-end tests (Azure/azure-functions-durable-extension, `test/e2e/Tests`: dedupe statuses,
external events, purge, rewind, restart, suspend and resume, terminate, versioning, and the status codes that
its localizer of Python expects), and its `HttpApiHandler`.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.onebox.process import INSTANCES, SAMPLE, OneboxProcess

STATUSES = ("Pending", "Running", "Suspended", "Completed", "Failed", "Terminated", None)
"""None is an instance that is not there."""

# name: (method, path below /instances/{id}, the status code in each of STATUSES)
ACTIONS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "status": ("GET", "", (202, 202, 202, 200, 200, 200, 404)),
    "status, failures as 500": (
        *("GET", "?returnInternalServerErrorOnFailure=true"),
        (202, 202, 202, 200, 500, 200, 404),
    ),
    "external event": ("POST", "/raiseEvent/go", (202, 202, 202, 410, 410, 410, 404)),
    "terminate": ("POST", "/terminate?reason=x", (202, 202, 202, 410, 410, 410, 404)),
    "suspend": ("POST", "/suspend?reason=x", (202, 202, 500, 410, 410, 410, 404)),
    "resume": ("POST", "/resume?reason=x", (500, 500, 202, 410, 410, 410, 404)),
    "rewind": ("POST", "/rewind?reason=x", (412, 412, 412, 412, 202, 412, 404)),
    "restart": ("POST", "/restart", (202, 202, 202, 202, 202, 202, 400)),
    "restart in place": (
        "POST",
        "/restart?restartWithNewInstanceId=false",
        (409, 409, 409, 202, 202, 202, 400),
    ),
    "purge": ("DELETE", "", (412, 412, 412, 200, 200, 200, 404)),
}
TABLE = [
    pytest.param(status, method, path, expected, id=f"{name}-{status}")
    for name, (method, path, codes) in ACTIONS.items()
    for status, expected in zip(STATUSES, codes, strict=True)
]


@contextmanager
def serving(folder: Path, **durable_task: str) -> Iterator[OneboxProcess]:
    """The sample app with other settings of the extension."""
    app = folder / "app"
    shutil.copytree(SAMPLE, app)
    settings = json.loads((app / "host.json").read_text())
    settings["extensions"]["durableTask"] |= durable_task
    (app / "host.json").write_text(json.dumps(settings))
    onebox = OneboxProcess(folder, app)
    onebox.server.start()
    try:
        yield onebox
    finally:
        onebox.close()


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """An app of version 2.0, with which newer instances wait: they stay pending."""
    versioning = {"versionMatchStrategy": "CurrentOrOlder", "versionFailureStrategy": "Reject"}
    with serving(tmp_path_factory.mktemp("waiting"), defaultVersion="2.0", **versioning) as onebox:
        yield onebox


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """An app of version 2.0 that refuses newer instances, and where a start may replace any instance."""
    versioning = {"versionMatchStrategy": "CurrentOrOlder", "versionFailureStrategy": "Fail"}
    others = {"defaultVersion": "2.0", "overridableExistingInstanceStates": "AnyState"}
    with serving(tmp_path_factory.mktemp("lenient"), **others, **versioning) as onebox:
        yield onebox


def start(
    onebox: OneboxProcess, name: str, instance_id: str, given: Any, **parameters: str
) -> httpx.Response:
    path = f"/runtime/webhooks/durabletask/orchestrators/{name}/{instance_id}"
    return onebox.client.post(path, json=given, params=parameters)


_STARTS: dict[str, tuple[str, Any]] = {"Completed": ("greet", ["Bob"]), "Failed": ("fails", "on purpose")}
_ACTIONS = {"Suspended": "suspend", "Terminated": "terminate"}


def instance_in(onebox: OneboxProcess, status: str | None) -> str:
    """Bring a new instance into a status; return its id."""
    instance_id = uuid4().hex
    if status is None:
        return instance_id
    name, given = _STARTS.get(status, ("nap", 600))
    version = {"version": "3.0"} if status == "Pending" else {}
    assert start(onebox, name, instance_id, given, **version).status_code == 202
    if status in _ACTIONS:
        onebox.until(instance_id, "Running")
        assert onebox.manage(instance_id, _ACTIONS[status]).status_code == 202
    onebox.until(instance_id, status)
    return instance_id


@pytest.mark.parametrize(("status", "method", "path", "expected"), TABLE)
def test_an_action_is_answered_by_the_status_of_its_instance(
    status: str | None, method: str, path: str, expected: int, waiting: OneboxProcess
) -> None:
    instance_id = instance_in(waiting, status)
    body = {"ready": True} if "raiseEvent" in path else None
    answer = waiting.client.request(method, f"{INSTANCES}/{instance_id}{path}", json=body)
    assert answer.status_code == expected, answer.text
    if method == "DELETE" and expected == 200:
        assert answer.json() == {"instancesDeleted": 1}


@pytest.mark.parametrize(
    ("status", "expected"),
    [*zip(STATUSES, (409, 409, 409, 202, 202, 202, 202), strict=True)],
    ids=str,
)
def test_a_start_replaces_what_has_ended_only(
    status: str | None, expected: int, waiting: OneboxProcess
) -> None:
    instance_id = instance_in(waiting, status)
    assert start(waiting, "greet", instance_id, ["Ada"]).status_code == expected
    if expected == 202:
        assert waiting.until(instance_id, "Completed")["input"] == ["Ada"]


@pytest.mark.parametrize("status", ["Running", "Suspended", "Completed", "Failed", "Terminated", None])
def test_a_start_replaces_any_instance_where_host_json_says_so(
    status: str | None, lenient: OneboxProcess
) -> None:
    instance_id = instance_in(lenient, status)
    assert start(lenient, "greet", instance_id, ["Ada"]).status_code == 202
    assert lenient.until(instance_id, "Completed")["input"] == ["Ada"]


@pytest.mark.parametrize("status", ["Running", "Suspended", "Completed", "Failed", "Terminated"])
def test_a_restart_in_place_replaces_any_instance_where_host_json_says_so(
    status: str, lenient: OneboxProcess
) -> None:
    instance_id = instance_in(lenient, status)
    before = lenient.instance(instance_id)
    answer = lenient.manage(instance_id, "restart", restartWithNewInstanceId="false")
    assert (answer.status_code, answer.json()["id"]) == (202, instance_id)
    assert lenient.instance(instance_id)["input"] == before["input"]


def test_a_restart_can_wait_for_the_end(lenient: OneboxProcess) -> None:
    instance_id = instance_in(lenient, "Completed")
    answer = lenient.manage(instance_id, "restart", timeout="20", pollingInterval="1")
    assert (answer.status_code, answer.json()) == (200, {"greetings": ["Hello Bob!"], "total": 1})


@pytest.mark.parametrize(("asked", "run"), [(None, "2.0"), ("", ""), ("1.0", "1.0"), ("2.0", "2.0")], ids=str)
def test_an_instance_has_the_version_that_was_asked_for(
    asked: str | None, run: str, lenient: OneboxProcess
) -> None:
    instance_id = uuid4().hex
    parameters = {} if asked is None else {"version": asked}
    assert start(lenient, "versions", instance_id, None, **parameters).status_code == 202
    assert (lenient.until(instance_id, "Completed")["output"] or "") == run
    parent_id = uuid4().hex
    assert start(lenient, "versions", parent_id, {"version": asked}).status_code == 202
    mine, childs = lenient.until(parent_id, "Completed")["output"]
    assert (mine, childs) == ("2.0", asked or "2.0"), "the SDK takes a child's empty version for none"


def test_an_instance_of_a_newer_version_fails_where_host_json_says_so(lenient: OneboxProcess) -> None:
    instance_id = uuid4().hex
    assert start(lenient, "versions", instance_id, None, version="3.0").status_code == 202
    lenient.until(instance_id, "Failed")


@pytest.mark.parametrize("bounds", [("createdTimeFrom", "createdTimeTo"), ("createdTimeFrom",)], ids=str)
def test_instances_are_purged_by_when_they_were_created(
    bounds: tuple[str, ...], lenient: OneboxProcess
) -> None:
    instance_in(lenient, "Completed")
    instants = {"createdTimeFrom": "2020-01-01T00:00:00Z", "createdTimeTo": "2999-01-01T00:00:00Z"}
    wanted = {bound: instants[bound] for bound in bounds}
    first = lenient.client.delete(INSTANCES, params=wanted)
    assert first.status_code == 200
    assert first.json()["instancesDeleted"] >= 1
    assert lenient.client.delete(INSTANCES, params=wanted).status_code == 404


def test_a_purge_without_a_beginning_is_refused(lenient: OneboxProcess) -> None:
    answer = lenient.client.delete(INSTANCES, params={"createdTimeTo": "2999-01-01T00:00:00Z"})
    assert answer.status_code == 400
