from contextlib import suppress
from typing import Any

from scripts.processes import eventually
from tests.support.app import System, dead_letter


def in_order(system: System, key: str, name: str, path: str, **more: Any) -> str:
    """Submit an operation of the order key that the test's own key is."""
    return system.accepted(f"{key}-{name}", path, order_key=key, **more)


def waits(system: System, operation_id: str) -> str:
    wait = system.until(operation_id, "waiting_order")["waits"][-1]
    assert wait["kind"] == "order"
    return "; ".join(wait["delay_reasons"])


def test_an_operation_waits_through_the_retries_of_the_one_before_it(system: System, key: str) -> None:
    first = in_order(system, key, "a", "/fail/1", retry={"initial_seconds": 60})
    system.until(first, "waiting_retry")
    second = in_order(system, key, "b", "/fail/0")
    third = in_order(system, key, "c", "/fail/0")
    assert waits(system, second) == f"{first} is in front"
    assert waits(system, third) == f"{first} is in front; 1 other operation before it"
    assert system.client.post(f"/api/operations/{second}/retry-now").status_code == 202
    assert waits(system, second) == f"{first} is in front"
    assert system.client.post(f"/api/operations/{first}/retry-now").status_code == 202
    done = [system.until(each, "succeeded") for each in (first, second, third)]
    began = [each["attempts"][0]["started_at"] for each in done]
    assert began == sorted(began)
    assert done[0]["attempts"][1]["started_at"] < began[1]
    assert done[1]["order_key"] == key


def test_a_lane_shows_who_is_in_front_and_who_waits(system: System, key: str) -> None:
    letter = dead_letter(system, f"{key}-a", order_key=key)
    second, third = (in_order(system, key, name, "/fail/0") for name in "bc")
    waits(system, third)

    def blocked() -> dict[str, Any] | None:
        # The message that brings the dead letter into the lane may still be under way.
        shown: dict[str, Any] = system.client.get(f"/api/order-lanes/{key}").json()
        return shown if shown["blocked"] and shown["waiting"] == 2 else None

    lane = eventually(blocked, "the lane is blocked")
    assert lane["order_key"] == key
    assert lane["front"]["dead_letter_id"] == letter
    assert [each["operation_id"] for each in lane["queue"]] == [second, third]

    def listed(**query: str) -> list[str]:
        items = system.client.get("/api/order-lanes", params={"limit": "200", **query}).json()["items"]
        return [each["order_key"] for each in items]

    assert key in listed(blocked="true")
    assert key not in listed(blocked="false")
    (named,) = system.client.get("/api/order-lanes", params={"order_key": key}).json()["items"]
    assert named == lane
    page = system.client.get("/api/order-lanes", params={"limit": "1"}).json()
    assert len(page["items"]) == 1
    nobody = system.client.get(f"/api/order-lanes/{key}-nobody").json()
    assert (nobody["front"], nobody["waiting"], nobody["queue"]) == (None, 0, [])
    assert_listed_as_waiting(system, third)
    archive = {"action": "archive", "filter": {"order_key": key}}
    assert system.client.post("/api/bulk-actions", json=archive).json()["matched"] == 1
    system.until(third, "succeeded")

    def is_empty() -> bool:
        (shown,) = system.client.get("/api/order-lanes", params={"order_key": key}).json()["items"]
        return (shown["front"], shown["queue"]) == (None, [])

    eventually(is_empty, "nobody is in the lane")


def assert_listed_as_waiting(system: System, operation_id: str) -> None:
    def listed() -> bool:
        found = system.client.get("/api/operations", params={"status": "waiting_order", "limit": "200"})
        assert {each["status"] for each in found.json()["items"]} <= {"waiting_order"}
        return operation_id in [each["operation_id"] for each in found.json()["items"]]

    eventually(listed, "it is listed as waiting for its turn")


def test_an_operation_that_was_terminated_does_not_hold_its_lane_up_for_ever(
    system: System, key: str
) -> None:
    first = in_order(system, key, "a", "/fail/1", retry={"initial_seconds": 60}, order_on_failure="skip")
    system.until(first, "waiting_retry")
    second = in_order(system, key, "b", "/fail/0")
    waits(system, second)
    instance = f"/runtime/webhooks/durabletask/instances/{first}"
    system.client.post(f"{instance}/terminate", params={"reason": "test"}).raise_for_status()

    def went_on() -> bool:
        # Upkeep keeps its dead letter, and then sees that nothing blocks the lane: two rounds.
        for name in ("watch", "maintenance"):
            assert system.client.post(f"/admin/functions/{name}", json={}).status_code == 202
        with suppress(TimeoutError):
            system.until(second, "succeeded", within_seconds=3)
        return bool(system.status(second)["status"] == "succeeded")

    eventually(went_on, "the lane goes on", within_seconds=60)
