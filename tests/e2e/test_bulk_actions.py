"""Bulk actions over HTTP: by a filter and by a selection, counted first, at a rate, cancelled on the way."""

from typing import Any

from scripts.processes import eventually
from tests.support.app import System, dead_letter, shown

ENDED = {"completed", "cancelled"}


def started(system: System, **body: Any) -> str:
    answer = system.client.post("/api/bulk-actions", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"].endswith(answer.json()["action_id"])
    action_id: str = answer.json()["action_id"]
    return action_id


def ended(system: System, action_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(f"/api/bulk-actions/{action_id}").json()
        return document if document["status"] in ENDED else None

    return eventually(look, f"{action_id} has ended")


def waiting(system: System, key: str, count: int) -> list[str]:
    ids = [
        system.accepted(f"{key}-{number}", "/fail/99", retry={"initial_seconds": 60})
        for number in range(count)
    ]
    for each in ids:
        system.until(each, "waiting_retry")
    return ids


def until_tried_again(system: System, operation_id: str) -> None:
    eventually(lambda: system.status(operation_id)["attempt_count"] > 1, f"{operation_id} is tried again")
    system.until(operation_id, "waiting_retry")


def test_the_dead_letters_of_a_batch_are_replayed_and_nothing_else(system: System, key: str) -> None:
    dead_letter(system, f"{key}-other", "/status/418")
    paths = ["/echo", "/status/418", "/status/418"]
    items = [
        {"dependency": "flaky", "key": f"{key}-{number}", "request": {"method": "POST", "path": path}}
        for number, path in enumerate(paths)
    ]
    batch_id = system.client.post("/api/batches", json={"items": [*items, {}]}).json()["batch_id"]

    def has_ended() -> bool:
        return bool(system.client.get(f"/api/batches/{batch_id}").json()["finished_at"])

    eventually(has_ended, "the batch has ended")
    body = {"action": "replay", "batch_id": batch_id}
    count = system.client.post("/api/bulk-actions", json=body | {"dry_run": True})
    assert count.json()["matched"] == 2
    edit = {"patch": [{"op": "replace", "path": "/request/path", "value": "/echo"}]}
    document = ended(system, started(system, **body, **edit, rate_per_second=50))
    assert (document["matched"], document["started"]) == (2, 2)
    for item in system.client.get(f"/api/batches/{batch_id}").json()["items"][1:3]:
        system.until(item["operation_id"], "succeeded")
    for wrong in (body, body | {"batch_id": "batch-none"}):
        refused = system.client.post("/api/bulk-actions", json=wrong)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/batch_id")


def test_dead_letters_are_archived_by_a_filter_after_a_dry_run(system: System, key: str) -> None:
    found = [dead_letter(system, f"{key}-{number}", "/status/418") for number in range(3)]
    first = shown(system, found[0])
    wanted = {"group": first["group"], "created_after": first["created_at"]}
    body = {"action": "archive", "filter": wanted, "note": "known"}
    count = system.client.post("/api/bulk-actions", json=body | {"dry_run": True})
    assert (count.status_code, count.json()) == (200, {"matched": 3, "complete": True})
    document = ended(system, started(system, **body, rate_per_second=50))
    assert (document["action"], document["started"], document["remaining"]) == ("archive", 3, 0)
    assert all(shown(system, each)["status"] == "archived" for each in found)
    assert document in system.client.get("/api/bulk-actions").json()["items"]
    assert system.client.delete(f"/api/bulk-actions/{document['action_id']}").status_code == 409


def test_a_selection_is_replayed_and_what_is_not_open_is_skipped(system: System, key: str) -> None:
    found = [dead_letter(system, f"{key}-{number}", "/status/431") for number in range(2)]
    system.client.post(f"/api/dead-letters/{found[1]}/archive").raise_for_status()
    document = ended(system, started(system, action="replay", ids=found))
    assert (document["filter"], document["matched"]) == (None, 2)
    assert (document["started"], document["skipped"]) == (1, 1)
    assert shown(system, found[0])["replays"][0]["action_id"] == document["action_id"]

    def items() -> list[dict[str, Any]] | None:
        path = f"/api/bulk-actions/{document['action_id']}/items"
        listed: list[dict[str, Any]] = system.client.get(path).json()["items"]
        return listed if listed[0]["failed_again"] else None

    replayed, skipped = eventually(items, "the replay has failed again")
    assert (replayed["id"], replayed["outcome"], replayed["status"]) == (
        found[0],
        "done",
        "dead_lettered",
    )
    assert replayed["failed_again"] == shown(system, found[0])["replays"][0]["dead_letter_id"]
    assert (skipped["id"], skipped["outcome"], skipped["status"]) == (found[1], "skipped", None)
    assert skipped["detail"] == "the dead letter is archived"


def test_operations_are_retried_now_and_cancelled(system: System, key: str) -> None:
    ids = waiting(system, key, 2)
    document = ended(system, started(system, action="retry_now", ids=[*ids, "op-unknown"]))
    assert (document["started"], document["skipped"]) == (2, 1)
    for each in ids:
        until_tried_again(system, each)
    body = {"action": "cancel", "filter": {"dependency": "flaky", "status": "waiting_retry"}}
    matched = system.client.post("/api/bulk-actions", json=body | {"dry_run": True}).json()["matched"]
    assert matched >= 2
    document = ended(system, started(system, action="cancel", ids=ids, rate_per_second=50))
    assert (document["started"], document["succeeded"], document["under_way"]) == (2, 2, 0)
    for each in ids:
        system.until(each, "cancelled")

    def listed_as_cancelled() -> bool:
        page = system.client.get("/api/operations", params={"status": "cancelled", "q": key}).json()
        return {item["operation_id"] for item in page["items"]} >= set(ids)

    eventually(listed_as_cancelled, "those cancelled in bulk are listed as cancelled")


def test_operations_are_paused_and_resumed(system: System, key: str) -> None:
    ids = waiting(system, key, 2)
    why = {"reason": "the supplier moves", "for_seconds": 600}
    asked = {"action": "pause", "filter": {"dependency": "flaky", "status": "waiting_retry"}, **why}
    matched = system.client.post("/api/bulk-actions", json=asked | {"dry_run": True}).json()["matched"]
    assert matched >= 2
    document = ended(system, started(system, action="pause", ids=[*ids, "op-unknown"], **why))
    assert (document["started"], document["skipped"], document["succeeded"]) == (2, 1, 2)
    assert document["pause"] == why | {"stops_deadline": False}
    for each in ids:
        operation = system.until(each, "paused")
        assert operation["next_attempt_at"] is not None
        assert [(done["action"], done["reason"]) for done in operation["actions"]] == [
            ("pause", why["reason"])
        ]
    page = system.client.get("/api/activity", params={"q": document["action_id"]}).json()["items"]
    assert [(entry["what"], entry["reason"]) for entry in page] == [
        ("began to pause many operations", why["reason"])
    ]

    since = system.status(ids[0])["created_at"]
    document = ended(system, started(system, action="resume", filter={"created_after": since}))
    assert document["started"] >= 1
    assert document["filter"]["status"] == "paused"
    for each in ids[1:]:
        system.until(each, "waiting_retry")
    ended(system, started(system, action="cancel", ids=ids, rate_per_second=50))


def test_one_change_is_previewed_and_made_to_each_that_it_fits(system: System, key: str) -> None:
    def refused(name: str, content: Any) -> str:
        request = {"method": "POST", "path": "/fail/1", "query": {"status": "418"}, "json": content}
        return dead_letter(system, f"{key}-{name}", request=request)

    fitting = [refused(str(number), {"amuont": number}) for number in range(2)]
    other = refused("other", {"amount": 5})
    patch = [{"op": "move", "from": "/request/json/amuont", "path": "/request/json/amount"}]
    body = {"action": "replay", "ids": [*fitting, other], "patch": patch, "downstream_key": "same"}
    counted = system.client.post("/api/bulk-actions", json=body | {"dry_run": True}).json()
    assert [each["id"] for each in counted["preview"]] == [*fitting, other]
    assert counted["preview"][0]["changes"] == [
        {"pointer": "/request/json/amount", "after": 0},
        {"pointer": "/request/json/amuont", "before": 0},
    ]
    misfit = {"pointer": "/request/json/amuont", "detail": "is not there"}
    assert (counted["preview"][2]["changes"], counted["preview"][2]["errors"]) == ([], [misfit])
    assert shown(system, fitting[0])["status"] == "open"

    document = ended(system, started(system, **body))
    assert (document["started"], document["failed"], document["patch"]) == (2, 1, patch)
    items = system.client.get(f"/api/bulk-actions/{document['action_id']}/items").json()["items"]
    assert {each["id"]: each.get("errors") for each in items} == {
        **dict.fromkeys(fitting),
        other: [misfit],
    }
    assert shown(system, other)["status"] == "open"
    for number, each in enumerate(fitting):
        operation_id = shown(system, each)["operation_id"]
        assert system.until(operation_id, "succeeded")["request"]["json"] == {"amount": number}
