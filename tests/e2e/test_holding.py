from typing import Any

import httpx

from scripts.processes import eventually
from tests.support.app import System


def resume(system: System, operation_id: str, **body: Any) -> httpx.Response:
    return system.client.post(f"/api/operations/{operation_id}/resume", json=body)


def listed(system: System) -> set[str]:
    return {item["operation_id"] for item in system.items("operations", status="paused")}


def held(system: System, key: str, failures: int, **more: Any) -> dict[str, Any]:
    """Submit an operation that uses up its two attempts, and return it as it is held."""
    operation_id = system.accepted(key, f"/fail/{failures}", dependency="holding", **more)
    return system.until(operation_id, "paused")


def test_what_has_no_attempts_left_is_held_changed_and_goes_on(system: System, key: str) -> None:
    shown = held(system, key, 3)
    operation_id, (action,) = shown["operation_id"], shown["actions"]
    assert (action["action"], action["by"], shown["attempt_count"]) == ("pause", "the policy", 2)
    assert action["reason"].startswith("RetriesExhausted: attempt 2 of 2 failed: status 503")
    assert shown["dead_letter"] is None
    eventually(lambda: operation_id in listed(system), "it is listed as paused")
    change = {"retry": {"initial_seconds": 0.1}, "deadline_seconds": 90, "priority": "high"}
    assert resume(system, operation_id, reason="it is back", **change).status_code == 202
    done = system.until(operation_id, "succeeded")
    assert (done["attempt_count"], done["priority"]) == (4, "high")
    _, resumed = done["actions"]
    assert (resumed["action"], resumed["reason"], resumed["after"]) == ("resume", "it is back", change)
    assert resumed["before"] == {
        "retry": {"initial_seconds": 0.2},
        "deadline_seconds": 120,
        "priority": "normal",
    }
    assert system.target.received(key)["count"] == 4


def test_what_is_held_too_long_is_a_dead_letter(system: System, key: str) -> None:
    retry = {"max_attempts": 1, "hold_seconds": 1}
    operation_id = system.accepted(key, "/fail/9", dependency="holding", retry=retry)
    ended = system.until(operation_id, "dead_lettered")
    assert (ended["dead_letter"]["reason"], ended["attempt_count"]) == ("RetriesExhausted", 1)
    assert [action["by"] for action in ended["actions"]] == ["the policy"]


def test_what_waits_is_changed_at_once(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/1", retry={"initial_seconds": 60})
    before = system.until(operation_id, "waiting_retry")
    assert resume(system, operation_id, priority="low").status_code == 409
    assert resume(system, operation_id, at_once=True, priority="low", deadline_seconds=0).status_code == 202

    def changed() -> dict[str, Any] | None:
        document = system.status(operation_id)
        return document if document["deadline_at"] is None else None

    after = eventually(changed, "it has no deadline")
    assert (after["status"], after["priority"]) == ("waiting_retry", "low")
    assert after["next_attempt_at"] == before["next_attempt_at"]
    assert [action["action"] for action in after["actions"]] == ["pause", "resume"]
    (found,) = system.items("operations", key=key, priority="low")
    assert found["operation_id"] == operation_id
    assert system.client.post(f"/api/operations/{operation_id}/retry-now").status_code == 202
    system.until(operation_id, "succeeded")


def test_a_change_that_is_not_allowed_changes_nothing(system: System, key: str) -> None:
    shown = held(system, key, 2)
    wrong = {"retry": {"max_attempts": 9, "jitter": "some"}, "priority": "first", "for_seconds": 5}
    answer = resume(system, shown["operation_id"], **wrong)
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert (answer.status_code, sorted(pointers)) == (400, ["/for_seconds", "/priority", "/retry/jitter"])
    answer = resume(system, shown["operation_id"], retry={"max_attempts": 9}, priority="high")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/retry/max_attempts"]
    assert system.status(shown["operation_id"]) == shown
    assert resume(system, shown["operation_id"]).status_code == 202
    assert "priority" not in system.until(shown["operation_id"], "succeeded")


def test_many_are_changed_as_one_is(system: System, key: str) -> None:
    ids = [held(system, f"{key}-{number}", 2)["operation_id"] for number in range(2)]
    body = {"action": "resume", "ids": ids, "retry": {"initial_seconds": 0.1}, "priority": "high"}
    assert system.client.post("/api/bulk-actions", json=body).status_code == 202
    for operation_id in ids:
        done = system.until(operation_id, "succeeded")
        assert done["actions"][-1]["after"] == {"retry": {"initial_seconds": 0.1}, "priority": "high"}
