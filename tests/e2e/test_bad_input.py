"""What is wrong is said once, completely, and without noise."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import HostedSystem, System, operation


def pointers(answer: httpx.Response) -> set[str]:
    return {error["pointer"] for error in answer.json()["errors"]}


def assert_problem(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    body = answer.json()
    assert body["status"] == status
    assert body["type"]
    assert body["title"]
    assert body["detail"]


@pytest.fixture(autouse=True)
def no_stack_trace(system: System) -> Any:
    """Bad input is the caller's affair: the log must not look like an accident of ours."""
    if isinstance(system, HostedSystem):
        yield  # Its log is elsewhere.
        return
    before = len(system.log())
    yield
    assert "Traceback" not in system.log()[before:]


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[1, 2]", b'{"dependency": "flaky"', b"\xff\xfe", b"null"]
)
def test_a_body_that_is_no_json_object_is_a_problem(system: System, content: bytes) -> None:
    answer = system.client.post(
        "/api/operations", content=content, headers={"content-type": "application/json"}
    )
    assert_problem(answer, 400)


def test_an_unknown_dependency_is_named(system: System, key: str) -> None:
    answer = system.post(key, "/echo", dependency="nowhere")
    assert_problem(answer, 400)
    assert pointers(answer) == {"/dependency"}
    assert "nowhere" in answer.text


def test_every_error_is_listed_at_once(system: System, key: str) -> None:
    body = {
        **operation(key, "/echo"),
        "retry": {"max_attempts": "many"},
        "deadline_seconds": -5,
        "surprise": True,
        "request": {"method": 5, "path": "/echo"},
    }
    answer = system.client.post("/api/operations", json=body)
    assert_problem(answer, 400)
    assert pointers(answer) >= {"/retry/max_attempts", "/deadline_seconds", "/surprise", "/request/method"}


@pytest.mark.parametrize(
    "path",
    [
        "http://example.com/steal",
        "//example.com/steal",
        "https:/example.com",
        "/../../admin",
        "/a/%2e%2e/%2e%2e/admin",
        "/a\\..\\..\\admin",
        "/a\r\nHost: example.com",
    ],
)
def test_a_path_that_leaves_the_dependency_is_refused(system: System, key: str, path: str) -> None:
    answer = system.post(key, path)
    assert_problem(answer, 400)
    assert pointers(answer) == {"/request/path"}
    assert system.target.received(key)["count"] == 0


@pytest.mark.parametrize(
    "header", ["Host", "Authorization", "Connection", "Transfer-Encoding", "Content-Length"]
)
def test_a_header_that_is_not_the_callers_to_set_is_refused(system: System, key: str, header: str) -> None:
    answer = system.post(key, "/echo", request={"headers": {header: "x"}})
    assert_problem(answer, 400)
    assert f"/request/headers/{header}" in pointers(answer)


def test_a_body_of_a_megabyte_is_too_large(system: System, key: str) -> None:
    assert_problem(system.post(key, "/echo", request={"json": "x" * 1_000_000}), 413)


def test_the_deepest_body_is_sent_and_a_deeper_one_is_refused_where_it_is(system: System, key: str) -> None:
    deepest = json.loads("[" * 46 + "]" * 46)  # With the body and the request around it there are 48.
    document = system.until(system.accepted(key, "/echo", request={"json": deepest}), "succeeded")
    assert document["result"]["json"]["received"] == deepest
    answer = system.post(f"{key}-deeper", "/echo", request={"json": [deepest]})
    assert_problem(answer, 400)
    assert pointers(answer) == {"/request/json" + "/0" * 46}


def test_two_different_keys_are_a_problem(system: System, key: str) -> None:
    answer = system.client.post(
        "/api/operations", json=operation(key, "/echo"), headers={"Idempotency-Key": "other"}
    )
    assert_problem(answer, 400)


@pytest.mark.parametrize("bad", ["", "x" * 256, "späße", "a\tb"])
def test_a_key_that_is_not_visible_ascii_is_refused(system: System, bad: str) -> None:
    answer = system.post(bad, "/echo")
    assert_problem(answer, 400)
    assert pointers(answer) == {"/key"}


def test_an_unknown_name_and_a_member_that_stands_twice_are_reported_at_once(
    system: System, key: str
) -> None:
    webhook = '{"type": "t", "dependency": "nobody", "path": "/x"}'
    body = (
        f'{{"dependency": "nowhere", "key": "{key}", "key": "{key}", "on_success": [{webhook}],'
        ' "request": {"method": "POST", "json": {"a": 1, "a": 2}}}'
    )
    answer = system.client.post("/api/operations", content=body)
    assert_problem(answer, 400)
    assert pointers(answer) == {"/dependency", "/key", "/on_success/0/dependency", "/request/json/a"}


def test_a_saga_has_the_mistakes_of_its_references_and_its_steps_reported_at_once(system: System) -> None:
    request = {"method": "POST", "json": {"id": {"$result": "later#/json/id"}}}
    steps = [
        {"name": "first", "operation": {"dependency": "flaky", "request": request}},
        {"name": "later", "operation": {"dependency": "nowhere", "request": {"method": "GET"}}},
    ]
    answer = system.client.post("/api/sagas", json={"steps": steps})
    assert_problem(answer, 400)
    assert pointers(answer) == {"/steps/0/operation/request/json/id", "/steps/1/operation/dependency"}


def test_a_path_and_a_method_that_are_not_there_have_a_problem_body(system: System) -> None:
    assert_problem(system.client.get("/api/operations/op-1/nothing"), 404)
    answer = system.client.put("/api/operations/op-1")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "GET"


OUT_OF_RANGE = ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]
"""Instants that their own offset moves out of the calendar."""


def resolved(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def bodies_with(
    instant: str, schemas: dict[str, Any], schema: dict[str, Any], pointer: str = ""
) -> Iterator[tuple[str, Any]]:
    """Make a body for each of its instants; yield the instant's pointer and the body."""
    schema = resolved(schemas, schema)
    if schema.get("format") == "date-time":
        yield pointer, instant
    for one_of in schema.get("anyOf", []):
        yield from bodies_with(instant, schemas, one_of, pointer)
    if "items" in schema:
        for inner, item in bodies_with(instant, schemas, schema["items"], f"{pointer}/0"):
            yield inner, [item]
    members = schema.get("properties", {})
    required = {
        name: {} if resolved(schemas, members[name]).get("type") == "object" else "x"
        for name in schema.get("required", [])
    }
    for name, member in members.items():
        for inner, value in bodies_with(instant, schemas, member, f"{pointer}/{name}"):
            yield inner, required | {name: value}


def error_of_first_item(system: System, accepted: httpx.Response) -> Any:
    url = accepted.json()["status_url"]
    return eventually(lambda: system.client.get(url).json()["items"][0]["error"], "the item's error")


@pytest.mark.parametrize("instant", OUT_OF_RANGE)
def test_every_instant_of_a_query_and_of_a_body_is_refused_that_its_offset_moves_out_of_the_calendar(
    system: System, instant: str
) -> None:
    described = system.client.get("/api/openapi.json").json()
    schemas, queries, bodies = described["components"]["schemas"], set(), set()
    for path, methods in described["paths"].items():
        url = path.replace("{", "").replace("}", "")
        for method, route in methods.items():
            for parameter in route.get("parameters", []):
                if parameter["schema"].get("format") == "date-time":
                    answer = system.client.request(method, url, params={parameter["name"]: instant})
                    assert_problem(answer, 400)
                    assert f"/{parameter['name']}" in pointers(answer)
                    queries.add(f"{path}?{parameter['name']}")
            if "requestBody" in route:
                body = route["requestBody"]["content"]["application/json"]["schema"]
                for pointer, document in bodies_with(instant, schemas, body):
                    answer = system.client.request(method, url, json=document)
                    if path == "/api/batches":  # A bad item is reported by itself.
                        assert "start_at" in error_of_first_item(system, answer)
                    else:
                        assert_problem(answer, 400)
                        assert pointer in pointers(answer)
                    bodies.add(f"{path}#{pointer}")
    # The members of this filter depend on the action, so the description names none.
    selection = {"action": "cancel", "dry_run": True, "filter": {"created_after": instant}}
    assert_problem(system.client.post("/api/bulk-actions", json=selection), 400)
    assert {"/api/operations?created_after", "/api/outbox?created_before"} <= queries
    assert "/api/operations#/start_at" in bodies


INEXACT = ["1e999", "1" + 300 * "0", '"\\ud800"']
"""Texts of values that JSON has and that cannot be passed on as they are."""


def content_with(value: str, document: Any) -> bytes:
    return json.dumps(document).replace('"INEXACT"', value).encode()


@pytest.mark.parametrize("value", INEXACT, ids=["infinite", "large", "half a pair"])
def test_a_value_that_cannot_be_passed_on_is_refused_with_its_place(
    system: System, key: str, value: str
) -> None:
    def post(path: str, document: Any) -> httpx.Response:
        return system.client.post(path, content=content_with(value, document))

    call = {"path": "/echo", "json": {"amount": ["INEXACT"]}}
    charge = {"dependency": "flaky", "key": key, "request": call}
    answer = post("/api/operations", charge)
    assert_problem(answer, 400)
    assert pointers(answer) == {"/request/json/amount/0"}
    step = {"name": "charge", "operation": charge, "compensation": charge}
    answer = post("/api/sagas", {"steps": [step]})
    assert_problem(answer, 400)
    assert pointers(answer) == {f"/steps/0/{part}/request/json/amount/0" for part in step.keys() - {"name"}}
    error = error_of_first_item(system, post("/api/batches", {"items": [charge]}))
    assert "/request/json/amount/0" in error
    assert system.target.received(key)["count"] == 0
