from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System

LONG_RETRY = {"initial_seconds": 600, "max_seconds": 600}
"""Far longer than Azure Storage hides an event whose answer was lost, see test_crash.py."""


def cancel(system: System, operation_id: str) -> httpx.Response:
    return system.client.post(f"/api/operations/{operation_id}/cancel")


def retry_now(system: System, operation_id: str) -> httpx.Response:
    return system.client.post(f"/api/operations/{operation_id}/retry-now")


def listed(system: System, status: str) -> set[str]:
    return {item["operation_id"] for item in system.items("operations", status=status)}


def waiting_operation(system: System, key: str, **more: Any) -> str:
    operation_id = system.accepted(key, "/fail/1", retry=LONG_RETRY, deadline_seconds=3600, **more)
    system.until(operation_id, "waiting_retry")
    return operation_id


def assert_conflict(answer: httpx.Response) -> None:
    assert answer.status_code == 409, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["type"].endswith("/wrong-state")


@pytest.mark.parametrize(
    ("way", "status"), [("raiseEvent/cancel", "cancelled"), ("terminate", "dead_lettered")]
)
def test_what_was_ended_through_the_platform_is_listed_as_what_it_is(
    system: System, key: str, way: str, status: str
) -> None:
    operation_id = waiting_operation(system, key)
    instance = f"/runtime/webhooks/durabletask/instances/{operation_id}"
    system.client.post(f"{instance}/{way}", json={}, params={"reason": "t"}).raise_for_status()
    system.until(operation_id, status)
    # Upkeep keeps the dead letter of what was terminated.
    assert system.client.post("/admin/functions/watch", json={}).status_code == 202

    def is_listed() -> bool:
        # Not by its key, which is looked up in the task hub.
        items = system.client.get("/api/operations", params={"status": status}).json()["items"]
        return operation_id in [each["operation_id"] for each in items]

    eventually(is_listed, f"it is listed as {status}")
    again = system.post(key, "/fail/1", retry=LONG_RETRY, deadline_seconds=3600)
    assert (again.status_code, again.json()["status"]) == (200, status)


def test_an_operation_that_begins_later_is_listed_and_started_now(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/0", delay_seconds=3600)
    assert system.until(operation_id, "scheduled")["attempt_count"] == 0
    eventually(
        lambda: operation_id in listed(system, "scheduled"),
        "it is listed as scheduled",
    )
    assert retry_now(system, operation_id).status_code == 202
    done = system.until(operation_id, "succeeded")
    assert (done["attempt_count"], system.target.received(key)["count"]) == (1, 1)
    eventually(
        lambda: operation_id not in listed(system, "scheduled"),
        "it is not listed as scheduled any more",
    )


def test_a_paused_operation_goes_on_when_it_is_resumed(system: System, key: str) -> None:
    operation_id = waiting_operation(system, key)
    path = f"/api/operations/{operation_id}"
    assert_conflict(system.client.post(f"{path}/resume"))
    answer = system.client.post(f"{path}/pause", json={"reason": "the supplier moves", "for_seconds": 3600})
    assert answer.status_code == 202, answer.text
    paused = system.until(operation_id, "paused")
    assert paused["actions"][-1]["reason"] == "the supplier moves"
    eventually(
        lambda: operation_id in listed(system, "paused"),
        "it is listed as paused",
    )
    assert_conflict(system.client.post(f"{path}/pause", json={}))
    assert_conflict(retry_now(system, operation_id))
    assert system.client.post(f"{path}/resume").status_code == 202
    system.until(operation_id, "waiting_retry")
    assert retry_now(system, operation_id).status_code == 202
    assert system.until(operation_id, "succeeded")["attempt_count"] == 2
