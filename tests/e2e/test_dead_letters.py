"""Dead letters as a person meets them: found, understood, edited, replayed, put away."""

import json
from typing import Any

import pytest
from azure.storage.queue import QueueClient

from scripts.processes import eventually
from tests.support.app import System
from tests.support.azurite import Storage

ONCE = {"max_attempts": 1}


def dead_letter_of(system: System, operation_id: str) -> dict[str, Any]:
    """Wait until an operation is dead-lettered and return its dead letter."""
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


def test_a_dead_letter_shows_everything_about_its_operation(system: System, key: str) -> None:
    letter = failed(system, key, "/status/422", correlation_id="order-42")
    assert letter["key"] == key
    assert letter["correlation_id"] == "order-42"
    assert (letter["source"], letter["dependency"], letter["status"]) == ("http", "flaky", "open")
    assert (letter["category"], letter["reason"]) == ("malformed", "RejectedByDependency")
    assert letter["request"]["path"] == "/status/422"
    assert [attempt["status_code"] for attempt in letter["attempts"]] == [422]
    assert letter in listed(system, group=letter["group"])


def test_a_replay_keeps_the_key_and_can_succeed(system: System, key: str) -> None:
    letter = failed(system, key)
    status, body = act(system, letter, "replay", {})
    assert (status, body) == (202, {"operation_id": letter["operation_id"], "dependency": "flaky"})
    system.until_replayed(letter, "succeeded")
    assert system.target.received(key)["count"] == 2
    again = system.client.get(f"/api/dead-letters/{letter['id']}").json()
    assert again["status"] == "replayed"
    assert [replay["operation_id"] for replay in again["replays"]] == [letter["operation_id"]]
    assert act(system, letter, "replay")[0] == 409


def test_an_edited_replay_keeps_what_was_changed_beside_the_original(system: System, key: str) -> None:
    letter = failed(system, key, "/status/400")
    status, answer = act(system, letter, "replay", {"request": {"path": "//elsewhere"}})
    assert (status, answer["errors"][0]["pointer"]) == (400, "/request/path")
    status, _ = act(
        system, letter, "replay", {"request": {"path": "/echo", "json": {"amount": 6}}, "note": "typo"}
    )
    assert status == 202
    done = system.until_replayed(letter, "succeeded")
    assert done["result"]["json"]["received"] == {"amount": 6}
    (replay,) = system.client.get(f"/api/dead-letters/{letter['id']}").json()["replays"]
    assert replay["note"] == "typo"
    assert replay["changes"] == [
        {"pointer": "/request/json/amount", "before": 5, "after": 6},
        {"pointer": "/request/path", "before": "/status/400", "after": "/echo"},
    ]


def test_a_replay_that_fails_again_is_a_new_dead_letter_linked_both_ways(system: System, key: str) -> None:
    letter = failed(system, key, "/status/404")
    assert act(system, letter, "replay")[0] == 202

    def second() -> dict[str, Any] | None:
        shown = system.client.get(f"/api/dead-letters/{letter['id']}").json()
        linked = shown["replays"][-1]["dead_letter_id"]
        return None if linked is None else system.client.get(f"/api/dead-letters/{linked}").json()

    again = eventually(second, "the second dead letter is linked")
    assert (again["replay_of"], again["status"], again["group"]) == (letter["id"], "open", letter["group"])


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


def test_credentials_are_not_kept_and_have_to_be_given_again(system: System, key: str) -> None:
    secret = {"headers": {"X-Api-Key": "s3cret-of-the-caller"}}
    letter = failed(system, key, request=secret)
    assert letter["request"]["headers"]["x-api-key"] == "***"
    assert "s3cret" not in json.dumps(letter)
    status, answer = act(system, letter, "replay")
    assert (status, answer["errors"][0]["pointer"]) == (400, "/request/headers/x-api-key")
    assert act(system, letter, "replay", {"request": secret})[0] == 202
    system.until_replayed(letter, "succeeded")
    assert "s3cret" not in json.dumps(system.client.get(f"/api/dead-letters/{letter['id']}").json())


def test_an_archived_dead_letter_is_out_of_the_way_until_it_is_restored(system: System, key: str) -> None:
    letter = failed(system, key, "/status/410")
    assert act(system, letter, "archive")[0] == 200
    assert letter["id"] not in {one["id"] for one in listed(system, status="open", group=letter["group"])}
    assert letter["id"] in {one["id"] for one in listed(system, status="archived", group=letter["group"])}
    assert act(system, letter, "replay")[0] == 409
    assert act(system, letter, "archive")[0] == 409
    status, restored = act(system, letter, "restore")
    assert (status, restored["status"]) == (200, "open")
    status, noted = act(system, letter, "notes", {"text": "called them"})
    assert (status, noted["notes"][0]["text"]) == (200, "called them")


def groups_of(system: System) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = system.client.get(
        "/api/dead-letters/groups", params={"limit": 200}
    ).json()["items"]
    return groups


def test_groups_and_summary_count_what_is_open(system: System, key: str) -> None:
    first = failed(system, f"{key}-1", "/status/451")
    (alone,) = [one for one in groups_of(system) if one["group"] == first["group"]]
    failed(system, f"{key}-2", "/status/451")
    failed(system, f"{key}-3", "/status/410")
    groups = groups_of(system)
    assert [one["count"] for one in groups] == sorted((one["count"] for one in groups), reverse=True)
    start = system.client.get("/api/dead-letters/groups", params={"limit": 1}).json()
    rest = system.client.get("/api/dead-letters/groups", params={"cursor": start["next_cursor"]}).json()
    assert [one["group"] for one in [*start["items"], *rest["items"]]] == [one["group"] for one in groups]
    (group,) = [one for one in groups if one["group"] == first["group"]]
    assert (group["count"], group["sample"]["reason"]) == (alone["count"] + 1, "RejectedByDependency")
    before = system.client.get("/api/dead-letters/summary").json()
    assert before["by_dependency"]["flaky"]["oldest_age_seconds"] > 0
    act(system, first, "archive")
    after = system.client.get("/api/dead-letters/summary").json()
    assert after["open"] == before["open"] - 1
    assert after["by_reason"]["RejectedByDependency"]["open"] == (
        before["by_reason"]["RejectedByDependency"]["open"] - 1
    )


def test_a_message_that_is_no_operation_can_be_edited_and_taken_over(
    system: System, storage: Storage, key: str
) -> None:
    with QueueClient.from_connection_string(storage.connection_string, "operations") as queue:
        queue.send_message(f"not json {key}")
    letter = eventually(
        lambda: next(
            (one for one in listed(system, reason="MalformedJson") if one["message"] == f"not json {key}"),
            None,
        ),
        "it is a dead letter",
    )
    assert act(system, letter, "replay")[0] == 400
    text = json.dumps({"dependency": "flaky", "request": {"method": "POST", "path": "/echo"}, "key": key})
    status, body = act(system, letter, "replay", {"message": text})
    assert status == 202
    system.until(body["operation_id"], "succeeded")
    assert system.target.received(key)["count"] == 1


def test_a_poison_message_is_kept_with_its_text(system: System, storage: Storage, key: str) -> None:
    with QueueClient.from_connection_string(storage.connection_string, "operations-poison") as queue:
        queue.send_message(json.dumps({"key": key}))
    letter = eventually(
        lambda: next((one for one in listed(system, reason="PoisonMessage") if key in one["message"]), None),
        "it is a dead letter",
    )
    assert letter["source"] == "queue"


def test_unknown_dead_letters_and_bad_queries_are_refused(system: System) -> None:
    assert system.client.get("/api/dead-letters/nothing").status_code == 404
    assert system.client.post("/api/dead-letters/dl-0/replay", json={}).status_code == 404
    answer = system.client.get("/api/dead-letters?status=gone&limit=0&cursor=x&reason=y&what=1")
    assert answer.status_code == 400
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers == {"/status", "/limit", "/reason", "/what", "/cursor"}
    assert system.client.get("/api/dead-letters?cursor=x").status_code == 400
    assert system.client.get("/api/dead-letters/replays/replay-0").status_code == 404


def test_a_bulk_replay_counts_first_and_then_replays_what_matches(system: System, key: str) -> None:
    letters = [failed(system, f"{key}-{number}", "/fail/1?status=507") for number in range(6)]
    wanted = {"group": letters[0]["group"]}
    dry = {"filter": wanted, "rate_per_second": 5, "dry_run": True}
    answer = system.client.post("/api/dead-letters/replays", json=dry)
    assert (answer.status_code, answer.json()) == (200, {"matched": 6})
    answer = system.client.post("/api/dead-letters/replays", json={"filter": wanted, "rate_per_second": 50})
    assert answer.status_code == 202
    url = f"/api/dead-letters/replays/{answer.json()['replay_id']}"

    def completed() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == "completed" else None

    document = eventually(completed, "the bulk replay is completed")
    assert (document["matched"], document["replayed"], document["remaining"]) == (6, 6, 0)
    assert [document[name] for name in ("succeeded", "failed_again", "under_way", "refused")] == [6, 0, 0, 0]
    for letter in letters:
        system.until_replayed(letter, "succeeded")
    assert listed(system, status="open", **wanted) == []
    assert system.client.delete(url).status_code == 409


def test_a_bulk_replay_says_that_all_failed_again(system: System, key: str) -> None:
    letters = [failed(system, f"{key}-{number}", "/status/510") for number in range(4)]
    # Those of an earlier run against the same app have failed again, and are open too.
    wanted = {"group": letters[0]["group"], "created_after": letters[0]["created_at"]}
    answer = system.client.post("/api/dead-letters/replays", json={"filter": wanted, "rate_per_second": 50})
    url = f"/api/dead-letters/replays/{answer.json()['replay_id']}"

    def completed() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == "completed" else None

    document = eventually(completed, "the bulk replay is completed")
    counts = [document[name] for name in ("started", "succeeded", "failed_again", "under_way", "refused")]
    assert counts == [4, 0, 4, 0, 0]


@pytest.mark.long
def test_a_cancelled_bulk_replay_leaves_the_rest_open(system: System, key: str) -> None:
    letters = [failed(system, f"{key}-{number}", "/fail/1?status=508") for number in range(4)]
    wanted = {"group": letters[0]["group"]}
    body = {"filter": wanted, "rate_per_second": 0.2}
    answer = system.client.post("/api/dead-letters/replays", json=body)
    url = f"/api/dead-letters/replays/{answer.json()['replay_id']}"
    eventually(lambda: system.client.get(url).json()["replayed"] == 1, "one was replayed")
    assert system.client.delete(url).status_code == 202

    def cancelled() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == "cancelled" else None

    assert eventually(cancelled, "it is cancelled")["remaining"] == 3
    assert len(listed(system, status="open", **wanted)) == 3


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


def test_a_cause_is_taken_over_resolved_and_says_when_it_comes_back(system: System, key: str) -> None:
    group = failed(system, f"{key}-first", "/status/451")["group"]
    url = f"/api/dead-letters/groups/{group}"

    def changed(action: str, **body: Any) -> dict[str, Any]:
        answer = system.client.post(f"{url}/{action}", json=body)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    assert changed("acknowledge", note="looking")["status"] == "acknowledged"
    assert changed("assign", to="ada")["assigned_to"] == "ada"
    noted = changed("notes", text="told the vendor")
    assert [note["text"] for note in noted["notes"]][-2:] == ["looking", "told the vendor"]
    assert changed("resolve")["status"] == "resolved"
    assert system.client.get(url).json()["came_back"] is False
    listed = system.client.get("/api/dead-letters/groups?status=resolved&limit=200").json()["items"]
    assert group in {each["group"] for each in listed}

    latest = failed(system, f"{key}-second", "/status/451")
    document = system.client.get(url).json()
    assert (document["status"], document["came_back"], document["assigned_to"]) == ("new", True, "ada")
    assert document["latest"] == latest
    assert system.client.post("/api/dead-letters/groups/g-0000000000000000/resolve").status_code == 404
    assert system.client.get("/api/dead-letters/groups/nothing").status_code == 404
