"""Finding what somebody asks about: over HTTP, in every list."""

import pytest

from scripts.processes import eventually
from tests.support.app import System, operation

LISTS = (
    "operations",
    "dead-letters",
    "dead-letters/groups",
    "dead-letters/replays",
    "circuits",
    "outbox",
    "batches",
    "sagas",
    "dependencies",
)


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_parameter_of_a_list_is_a_mistake_that_is_named(system: System, path: str) -> None:
    answer = system.client.get(f"/api/{path}", params={"colour": "red"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["errors"] == [{"pointer": "/colour", "detail": "is not a known parameter"}]
    assert answer.json()["type"].endswith("/invalid-input")


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
    assert listed(system, correlation_id=correlation_id) == every
    assert listed(system, q=correlation_id.upper(), limit=1) == every
    assert listed(system, q=correlation_id, source="queue") == every[:1]
    assert listed(system, q=f"{key} 422") == every[2:]
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
    assert listed(system, "dead-letters", q=f"BASKET-{key} 422", limit=1) == both
    assert listed(system, "dead-letters", key=f"{key}-one", reason="RejectedByDependency") == both[1:]
    assert listed(system, "dead-letters", q=f"{key} nothing-says-so") == []
