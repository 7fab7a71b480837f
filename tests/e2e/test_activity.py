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


def test_acts_on_a_dead_letter_are_listed_with_what_was_said(system: System, key: str) -> None:
    found = dead_letter(system, key)
    for act, body in (("notes", {"text": "asked them"}), ("archive", None), ("restore", None)):
        system.client.post(f"/api/dead-letters/{found}/{act}", json=body).raise_for_status()
    wanted = [
        ("restored the dead letter", None),
        ("archived the dead letter", None),
        ("noted something on the dead letter", "asked them"),
    ]
    # Each worker process writes its own entries, a moment later.
    eventually(lambda: acts(system, found) == wanted, "all three are listed")
    newest = listed(system, q=found)[0]
    assert newest["target"] == {"type": "dead_letter", "id": found, "url": f"/api/dead-letters/{found}"}
    assert (newest["kind"], newest["who"], newest["dependency"]) == ("action", None, "flaky")
    search = system.client.get("/api/search", params={"q": found, "type": "activity"}).json()["items"]
    assert [(each["name"], each["id"]) for each in search] == [(what, found) for what, _ in wanted]
    before = listed(system, q=found, before=newest["at"])
    assert [each["what"] for each in before] == [what for what, _ in wanted[1:]]
    assert listed(system, q=found, after=newest["at"]) == [newest]


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
