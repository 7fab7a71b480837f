import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import HostedSystem, System


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


def test_the_deepest_body_is_sent_and_a_deeper_one_is_refused_where_it_is(system: System, key: str) -> None:
    deepest = json.loads("[" * 46 + "]" * 46)  # With the body and the request around it there are 48.
    document = system.until(system.accepted(key, "/echo", request={"json": deepest}), "succeeded")
    assert document["result"]["json"]["received"] == deepest
    answer = system.post(f"{key}-deeper", "/echo", request={"json": [deepest]})
    assert_problem(answer, 400)
    assert pointers(answer) == {"/request/json" + "/0" * 46}


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
@pytest.mark.shows("A14")
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
