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


def test_a_cancelled_operation_is_listed_with_its_dependency(system: System, key: str) -> None:
    waiting = system.accepted(key, "/fail/9", dependency="patient")
    system.until(waiting, "waiting_retry")
    system.client.post(f"/api/operations/{waiting}/cancel").raise_for_status()
    eventually(lambda: acts(system, waiting) == [("cancelled the operation", None)], "it is listed")
    assert [each["dependency"] for each in listed(system, q=waiting, dependency="patient")] == ["patient"]


def test_a_page_leads_to_the_next(system: System, key: str) -> None:
    found = dead_letter(system, key)
    for number in range(3):
        note = {"text": f"note {number}"}
        system.client.post(f"/api/dead-letters/{found}/notes", json=note).raise_for_status()
    eventually(lambda: len(listed(system, q=found)) == 3, "all three are listed")
    page = system.client.get("/api/activity", params={"q": found, "limit": 2}).json()
    rest = listed(system, q=found, limit=2, cursor=page["next_cursor"])
    notes = [each["reason"] for each in (*page["items"], *rest)]
    assert notes == ["note 2", "note 1", "note 0"]


def test_every_mistake_of_a_question_is_named(system: System) -> None:
    answer = system.client.get("/api/activity", params={"kind": "party", "after": "yesterday"})
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/kind", "/after"]
