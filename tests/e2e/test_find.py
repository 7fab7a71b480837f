"""Finding what somebody asks about: over HTTP, in every list."""

import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from scripts.processes import eventually
from tests.support.app import System, operation

_PLACE = re.compile(r"\{[^}]*\}")


def test_an_unknown_parameter_of_any_route_is_a_mistake_that_is_named(system: System) -> None:
    paths = system.client.get("/api/openapi.json").json()["paths"]
    asked = 0
    for path, methods in paths.items():
        for method in methods.keys() & {"get", "post", "put", "delete"}:
            answer = system.client.request(
                method,
                f"/api{_PLACE.sub('x', path.removeprefix('/api'))}",
                params={"colour": "red"},
                json={} if method != "get" else None,
            )
            assert answer.status_code == HTTPStatus.BAD_REQUEST, (method, path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            (error,) = answer.json()["errors"]
            assert error["pointer"] == "/colour"
            assert error["detail"].startswith("is not a known parameter; this route takes ")
            assert answer.json()["type"].endswith("/invalid-input")
            asked += 1
    assert asked > 40


def listed(system: System, path: str = "operations", **params: str | int) -> list[str]:
    """The keys that a list shows on all of its pages."""
    keys: list[str] = []
    cursor: str | None = None
    while True:
        given = {**params, **({} if cursor is None else {"cursor": cursor})}
        page = system.client.get(f"/api/{path}", params=given).raise_for_status().json()
        keys += [one["key"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return keys


def assert_shown(look: Callable[[], object], expected: object) -> None:
    """Asserts what a list or a search shows in the end: what it reads may be written a little later."""
    with suppress(TimeoutError):
        eventually(lambda: look() == expected, "it is shown")
    assert look() == expected


def test_operations_are_found_by_whatever_is_known_of_them(system: System, key: str) -> None:
    correlation_id = f"order-{key}"
    lost = system.accepted(f"{key}-lost", "/fail/1?status=422", correlation_id=correlation_id)
    system.until(lost, "dead_lettered")
    sent = system.accepted(f"{key}-sent", "/echo", correlation_id=correlation_id)
    system.until(sent, "succeeded")
    posted = system.client.post(
        "/api/operations/enqueue", json=operation(f"{key}-queued", "/echo", correlation_id=correlation_id)
    ).json()
    queued = posted["operation_id"]
    eventually(lambda: system.client.get(f"/api/operations/{queued}").is_success, "it is taken over")
    system.until(queued, "succeeded")
    every = [f"{key}-queued", f"{key}-sent", f"{key}-lost"]
    assert_shown(lambda: listed(system, correlation_id=correlation_id), every)
    assert_shown(lambda: listed(system, q=correlation_id.upper(), limit=1), every)
    assert listed(system, q=correlation_id, source="queue") == every[:1]
    assert_shown(lambda: listed(system, q=f"{key} RejectedByDependency"), every[2:])
    assert listed(system, q=lost) == every[2:]
    assert listed(system, key=f"{key}-sent") == every[1:2]
    assert listed(system, key=f"{key}-sent", status="dead_lettered") == []
    assert (
        listed(system, correlation_id=correlation_id, created_before=system.status(sent)["created_at"])
        == (every[2:])
    )


def test_an_operation_shows_what_it_is_to_do(system: System, key: str) -> None:
    call = operation(key, "/echo", request={"headers": {"X-Api-Key": "c2VjcmV0"}, "query": {"a": "b"}})
    operation_id = system.client.post("/api/operations", json=call).json()["operation_id"]
    document = system.until(operation_id, "succeeded")
    assert document["request"] == call["request"] | {"headers": {"x-api-key": "***"}}
    assert "handler" not in document


def test_dead_letters_are_found_by_whatever_is_known_of_them(system: System, key: str) -> None:
    for name in ("one", "two"):
        system.until(
            system.accepted(f"{key}-{name}", "/fail/1?status=422", correlation_id=f"basket-{key}"),
            "dead_lettered",
        )
    both = [f"{key}-two", f"{key}-one"]
    assert listed(system, "dead-letters", correlation_id=f"basket-{key}") == both
    assert listed(system, "dead-letters", q=f"BASKET-{key} rejectedBY", limit=1) == both
    assert listed(system, "dead-letters", key=f"{key}-one", reason="RejectedByDependency") == both[1:]
    assert listed(system, "dead-letters", q=f"{key} nothing-says-so") == []


def found(system: System, **params: str | int) -> list[dict[str, Any]]:
    """What a search shows on all of its pages."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        given = {**params, **({} if cursor is None else {"cursor": cursor})}
        page = system.client.get("/api/search", params=given).raise_for_status().json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def names(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["type"], one["key"] or one["name"] or one["id"]) for one in items]


def test_one_question_finds_things_of_every_type(system: System, key: str) -> None:
    event = {"type": f"{key}.done", "queue": "find-events", "data": {}}
    sent = system.accepted(f"{key}-sent", "/echo", correlation_id=f"order-{key}", on_success=[event])
    system.until(sent, "succeeded")
    lost = system.accepted(f"{key}-lost", "/fail/1?status=422", correlation_id=f"order-{key}")
    dead_letter_id = system.until(lost, "dead_lettered")["dead_letter"]["id"]
    steps = [{"name": f"{key}-charge", "operation": operation(f"{key}-step", "/echo")}]
    saga_id = system.client.post("/api/sagas", json={"steps": steps}).json()["saga_id"]
    eventually(lambda: names(found(system, q=f"{key}.done")) == [("event", f"{key}.done")], "it is sent")
    of_order = [
        ("dead_letter", f"{key}-lost"),
        ("operation", f"{key}-lost"),
        ("operation", f"{key}-sent"),
    ]
    assert_shown(lambda: names(found(system, correlation_id=f"order-{key}")), of_order)
    assert_shown(lambda: names(found(system, q=f"order-{key}", limit=1)), of_order)
    letter, operation_, _ = found(system, q=f"order-{key}")
    assert letter["id"] == operation_["dead_letter_id"] == dead_letter_id
    assert (operation_["id"], letter["operation_id"]) == (lost, lost)
    assert "status 422" in operation_["error"]
    refused = f"{key} RejectedByDependency"
    assert_shown(lambda: names(found(system, q=refused, type="operation")), of_order[1:2])
    assert names(found(system, q=key, status="open")) == of_order[:1]
    assert_shown(lambda: names(found(system, q=f"{key}-charge")), [("saga", saga_id)])
    assert names(found(system, q=saga_id, type="saga")) == [("saga", saga_id)]
    assert found(system, q=key, created_before=operation_["created_at"], type="operation")[0]["id"] == sent
    assert found(system, q=key, handler="nobody") == []


def test_a_search_that_cannot_be_read_is_refused(system: System) -> None:
    for params, pointer in (
        ({"type": "invoice"}, "/type"),
        ({"cursor": "nonsense"}, "/cursor"),
        ({"created_after": "yesterday"}, "/created_after"),
    ):
        answer = system.client.get("/api/search", params=params)
        assert answer.status_code == HTTPStatus.BAD_REQUEST
        assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


def test_an_operation_is_listed_by_what_became_of_it(system: System, key: str) -> None:
    good = system.accepted(f"{key}-good", "/echo")
    bad = system.accepted(f"{key}-bad", "/status/422")
    system.until(good, "succeeded")
    system.until(bad, "dead_lettered")

    def keys(status: str) -> list[str]:
        return listed(system, status=status, dependency="flaky", limit=200)

    good_key, bad_key = f"{key}-good", f"{key}-bad"
    eventually(lambda: good_key in keys("succeeded") and bad_key in keys("dead_lettered"), "both are listed")
    assert good_key not in keys("dead_lettered")
    assert bad_key not in keys("succeeded")
