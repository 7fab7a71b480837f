"""Operations of one order key run one after the other."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

from azure.storage.queue import QueueClient

from scripts.processes import eventually
from tests.support.app import System
from tests.support.azurite import Storage


def in_order(system: System, key: str, name: str, path: str, **more: Any) -> str:
    """Submit an operation of the order key that the test's own key is."""
    return system.accepted(f"{key}-{name}", path, order_key=key, **more)


def waits(system: System, operation_id: str) -> str:
    """Return why an operation waits for its turn."""
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


def test_messages_of_the_queue_run_one_at_a_time(system: System, storage: Storage, key: str) -> None:
    bodies = [
        {
            "dependency": "flaky",
            "key": f"{key}-{number}",
            "order_key": key,
            "request": {"method": "POST", "path": "/fail/0", "json": {}},
        }
        for number in range(3)
    ]
    with QueueClient.from_connection_string(storage.connection_string, "operations") as operations:
        for body in bodies:
            operations.send_message(json.dumps(body))

    def ended() -> list[dict[str, Any]]:
        found = system.client.get("/api/operations", params={"q": key, "status": "succeeded"}).json()["items"]
        return found if len(found) == len(bodies) else []

    spans = sorted(
        (each["attempts"][0]["started_at"], each["updated_at"])
        for each in (system.status(one["operation_id"]) for one in eventually(ended, "all have ended"))
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
