"""What people did and what happened, in one list."""

from typing import Any

from scripts.processes import eventually
from tests.support.app import System, dead_letter


def listed(system: System, **params: str | int) -> list[dict[str, Any]]:
    answer = system.client.get("/api/activity", params=params).raise_for_status()
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def acts(system: System, target_id: str) -> list[tuple[str, str | None]]:
    """The acts on something, the newest first, with their reasons."""
    return [(each["what"], each["reason"]) for each in listed(system, q=target_id)]


def test_a_refused_act_and_a_dry_run_are_no_acts(system: System, key: str) -> None:
    found = dead_letter(system, key)
    assert system.client.post(f"/api/dead-letters/{found}/restore").is_client_error
    dry = {"action": "archive", "ids": [found], "dry_run": True}
    assert system.client.post("/api/bulk-actions", json=dry).json()["matched"] == 1
    begun = system.client.post("/api/bulk-actions", json=dry | {"dry_run": False, "note": "too old"}).json()
    action_id = begun["action_id"]
    eventually(
        lambda: acts(system, action_id) == [("began to archive many dead letters", "too old")], "it is listed"
    )
    assert listed(system, q=action_id, kind="action") == []
    assert acts(system, found) == []
