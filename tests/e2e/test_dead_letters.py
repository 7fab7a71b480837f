import json
from typing import Any

from scripts.processes import eventually
from tests.support.app import System, shown
from tests.support.azurite import Storage

ONCE = {"max_attempts": 1}


def dead_letter_of(system: System, operation_id: str) -> dict[str, Any]:
    document = system.until(operation_id, "dead_lettered")
    answer = system.client.get(f"/api/dead-letters/{document['dead_letter']['id']}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def failed(system: System, key: str, path: str = "/fail/1", **more: Any) -> dict[str, Any]:
    """Let an operation fail for good and return its dead letter."""
    return dead_letter_of(system, system.accepted(key, path, retry=ONCE, **more))


def listed(system: System, **query: Any) -> list[dict[str, Any]]:
    answer = system.client.get("/api/dead-letters", params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def act(system: System, dead_letter: dict[str, Any], what: str, body: Any = None) -> tuple[int, Any]:
    answer = system.client.post(f"/api/dead-letters/{dead_letter['id']}/{what}", json=body)
    return answer.status_code, answer.json()


def test_an_ambiguous_request_is_sent_again_only_because_a_person_says_so(system: System, key: str) -> None:
    letter = failed(system, key, "/drop/1", dependency="unsafe", request={"headers": {"x-key": key}})
    assert (letter["category"], letter["reason"]) == ("ambiguous", "AmbiguousOutcome")
    assert act(system, letter, "replay")[0] == 202

    def ended() -> bool:
        shown = system.status(letter["operation_id"])
        return shown["status"] == "succeeded" or (shown["dead_letter"] or {}).get("id") not in {
            None,
            letter["id"],
        }

    eventually(ended, "the replay has ended")
    attempts = system.status(letter["operation_id"])["attempts"]
    assert attempts[0]["started_at"] > letter["attempts"][0]["started_at"]


def test_a_poison_message_is_kept_with_its_text(system: System, storage: Storage, key: str) -> None:
    with storage.queue("operations-poison") as queue:
        queue.send_message(json.dumps({"key": key}))
    letter = eventually(
        lambda: next((one for one in listed(system, reason="PoisonMessage") if key in one["message"]), None),
        "it is a dead letter",
    )
    assert letter["source"] == "queue"


def test_a_replay_of_many_counts_first_and_then_replays_what_matches(system: System, key: str) -> None:
    letters = [failed(system, f"{key}-{number}", "/fail/1?status=507") for number in range(6)]
    wanted = {"group": letters[0]["group"]}
    body = {"action": "replay", "filter": wanted, "rate_per_second": 50}
    answer = system.client.post("/api/bulk-actions", json=body | {"dry_run": True})
    assert (answer.status_code, answer.json()["matched"]) == (200, 6)
    assert [each["errors"] for each in answer.json()["preview"]] == [[]] * 3
    answer = system.client.post("/api/bulk-actions", json=body)
    assert answer.status_code == 202
    url = f"/api/bulk-actions/{answer.json()['action_id']}"

    def completed() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == "completed" else None

    document = eventually(completed, "the bulk action is completed")
    assert (document["matched"], document["started"], document["remaining"]) == (6, 6, 0)
    assert [document[name] for name in ("succeeded", "failed_again", "under_way", "refused")] == [6, 0, 0, 0]
    for letter in letters:
        system.until_replayed(letter, "succeeded")
    assert listed(system, status="open", **wanted) == []
    assert system.client.delete(url).status_code == 409


def test_a_replay_of_many_stops_where_the_first_fails_again_and_goes_on_when_it_is_resumed(
    system: System, key: str
) -> None:
    times = (2, 1, 1, 1)
    ids = [failed(system, f"{key}-{at}", f"/fail/{n}?status=422")["id"] for at, n in enumerate(times)]
    answer = system.client.post("/api/bulk-actions", json={"action": "replay", "ids": ids})
    url = f"/api/bulk-actions/{answer.json()['action_id']}"

    def with_status(status: str) -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == status else None

    stopped = eventually(lambda: with_status("stopped"), "it stops")
    assert stopped["reason"].startswith("1 of 4 replayed: still 422")
    assert [stopped[name] for name in ("started", "failed_again", "remaining")] == [1, 1, 3]
    assert [shown(system, each)["status"] for each in ids] == ["replayed", "open", "open", "open"]
    assert system.client.post(f"{url}/resume").status_code == 202
    completed = eventually(lambda: with_status("completed"), "it goes on to its end")
    assert [completed[name] for name in ("started", "succeeded", "failed_again")] == [4, 3, 1]
    assert completed["reason"] is None
    assert system.client.post(f"{url}/resume").status_code == 409


def test_the_timers_run_in_the_host(system: System) -> None:
    before = len(system.log())
    for timer in ("watch", "maintenance", "record_cleaning"):
        assert system.client.post(f"/admin/functions/{timer}", json={}).status_code == 202
    for timer in ("watch", "maintenance", "record_cleaning"):
        eventually(lambda timer=timer: f"{timer} Succeeded" in system.log()[before:], f"{timer} ran")  # type: ignore[misc] # a default binds it
    assert "Traceback" not in system.log()[before:]


def test_secrets_are_masked_wherever_people_look_and_an_edited_replay_keeps_them(
    system: System, key: str
) -> None:
    request = {
        "method": "POST",
        "path": "/fail/1",
        "json": {"amount": 1, "card": {"number": "42", "pin": "7"}},
    }
    body = {"dependency": "masked", "key": key, "retry": ONCE, "request": request}
    accepted = system.client.post("/api/operations", json=body).json()
    letter = dead_letter_of(system, accepted["operation_id"])
    masked = {"amount": 1, "card": {"number": "***", "pin": "***"}}
    assert letter["request"]["json"] == masked
    assert system.status(accepted["operation_id"])["request"]["json"] == masked
    assert listed(system, key=key)[0]["request"]["json"] == masked

    status, problem = act(system, letter, "replay", {"request": {"json": {"note": "***"}}})
    assert (status, problem["errors"][0]["pointer"]) == (400, "/request/json/note")
    edited = {**letter["request"], "json": {**masked, "amount": 2}}
    assert act(system, letter, "replay", {"request": edited, "downstream_key": "same"})[0] == 202
    received = system.until_replayed(letter, "succeeded")["result"]["json"]["received"]
    assert received == {"amount": 2, "card": {"number": "42", "pin": "7"}}
    changes = system.client.get(f"/api/dead-letters/{letter['id']}").json()["replays"][0]["changes"]
    assert changes == [{"pointer": "/request/json/amount", "before": 1, "after": 2}]
