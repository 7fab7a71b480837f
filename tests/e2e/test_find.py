"""Finding what somebody asks about: over HTTP, in every list."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scripts.processes import eventually
from tests.support.app import System, operation


def assert_shown(look: Callable[[], object], expected: object) -> None:
    """Asserts what a list or a search shows in the end: what it reads may be written a little later."""
    with suppress(TimeoutError):
        eventually(lambda: look() == expected, "it is shown")
    assert look() == expected


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
    eventually(
        lambda: names(system.items("search", q=f"{key}.done")) == [("event", f"{key}.done")], "it is sent"
    )
    of_order = [
        ("dead_letter", f"{key}-lost"),
        ("operation", f"{key}-lost"),
        ("operation", f"{key}-sent"),
    ]
    assert_shown(lambda: names(system.items("search", correlation_id=f"order-{key}")), of_order)
    assert_shown(lambda: names(system.items("search", q=f"order-{key}", limit=1)), of_order)
    letter, operation_, _ = system.items("search", q=f"order-{key}")
    assert letter["id"] == operation_["dead_letter_id"] == dead_letter_id
    assert (operation_["id"], letter["operation_id"]) == (lost, lost)
    assert "status 422" in operation_["error"]
    refused = f"{key} RejectedByDependency"
    assert_shown(lambda: names(system.items("search", q=refused, type="operation")), of_order[1:2])
    assert names(system.items("search", q=key, status="open")) == of_order[:1]
    assert_shown(lambda: names(system.items("search", q=f"{key}-charge")), [("saga", saga_id)])
    assert names(system.items("search", q=saga_id, type="saga")) == [("saga", saga_id)]
    assert (
        system.items("search", q=key, created_before=operation_["created_at"], type="operation")[0]["id"]
        == sent
    )
    assert system.items("search", q=key, handler="nobody") == []
