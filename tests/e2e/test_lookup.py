from typing import Any

from scripts.processes import eventually
from tests.support.app import System


def broken_off(system: System, key: str, dependency: str, wanted: str) -> dict[str, Any]:
    """Send a request whose answer is lost, which the target has under its key; return the last document."""
    request = {"method": "POST", "path": "/drop/1", "query": {"when": "after_body"}, "json": {"order": key}}
    request["headers"] = {"Idempotency-Key": key}
    body = {"dependency": dependency, "key": key, "request": request}
    accepted = system.client.post("/api/operations", json=body)
    assert accepted.status_code == 202, accepted.text
    return system.until(accepted.json()["operation_id"], wanted)


def test_what_it_has_is_the_result_and_is_not_sent_again(system: System, key: str) -> None:
    done = broken_off(system, key, "asked", "succeeded")
    assert (done["status"], done["result"]["json"]["path"]) == ("succeeded", "/drop/1")
    (attempt,) = done["attempts"]
    assert attempt["delay_reasons"][0].startswith("found at 20")
    assert system.target.received(key)["count"] == 1


def test_what_it_does_not_have_is_sent_again_once_that_says_something(system: System, key: str) -> None:
    done = broken_off(system, key, "asked_about_others", "succeeded")
    assert (done["status"], done["result"]["json"]["path"]) == ("succeeded", "/drop/1")
    first, _ = done["attempts"]
    assert "; not found at 20" in first["error"]
    assert first["category"] == "transient"
    assert first["delay_reasons"] == ["fixed 0.1 s"]
    waits = [wait["kind"] for wait in done["waits"]]
    # An attempt that begins two seconds late waits once more, as a failure of our own.
    assert [kind for kind in waits if kind != "own_failure"] == ["lookup", "retry"]
    assert system.target.received(key)["count"] == 2


def test_what_cannot_be_asked_stays_unknown(system: System, key: str) -> None:
    letter = broken_off(system, key, "asked_by_correlation", "dead_lettered")["dead_letter"]
    assert letter["reason"] == "AmbiguousOutcome"
    assert letter["detail"].endswith("{correlation_id} has no value that can stand in a path")
    assert system.target.received(key)["count"] == 1


def ask(system: System, operation_id: str) -> int:
    """Ask whether an operation happened; return the status of the answer."""
    return system.client.post(f"/api/operations/{operation_id}/lookup", json={}).status_code


def test_a_person_can_ask_and_nothing_is_sent(system: System, key: str) -> None:
    ended = broken_off(system, key, "asked_by_correlation", "dead_lettered")
    assert ask(system, ended["operation_id"]) == 202

    def asked() -> dict[str, Any] | None:
        letter: dict[str, Any] = system.status(ended["operation_id"])["dead_letter"] or {}
        return letter if letter.get("id", ended["dead_letter"]["id"]) != ended["dead_letter"]["id"] else None

    again = eventually(asked, "its lookup has ended")
    assert again["reason"] == "AmbiguousOutcome"
    assert "its lookup got no answer" in again["detail"]
    assert system.target.received(key)["count"] == 1


def test_only_what_is_unknown_is_asked_for(system: System, key: str) -> None:
    done = system.until(system.accepted(key, "/echo"), "succeeded")
    assert ask(system, done["operation_id"]) == 409
    assert ask(system, "op-nobody") == 404
    unknown = broken_off(system, f"{key}-2", "unsafe", "dead_lettered")
    assert ask(system, unknown["operation_id"]) == 409


def test_many_are_asked_about_and_nothing_is_sent(system: System, key: str) -> None:
    unknown = [
        broken_off(system, f"{key}-{number}", "asked_by_correlation", "dead_lettered") for number in range(2)
    ]
    unaskable = broken_off(system, f"{key}-unsafe", "unsafe", "dead_lettered")
    clear = system.until(system.accepted(f"{key}-clear", "/status/415"), "dead_lettered")
    ids = [each["dead_letter"]["id"] for each in (*unknown, unaskable, clear)]
    started = system.client.post("/api/bulk-actions", json={"action": "lookup", "ids": ids})
    assert started.status_code == 202, started.text
    url = f"/api/bulk-actions/{started.json()['action_id']}"

    def completed() -> dict[str, Any] | None:
        document: dict[str, Any] = system.client.get(url).json()
        return document if document["status"] == "completed" else None

    done = eventually(completed, "they are asked about")
    assert [done[name] for name in ("matched", "started", "failed_again", "skipped")] == [4, 2, 2, 2]
    items = {item["id"]: item for item in system.client.get(f"{url}/items").json()["items"]}
    assert items[ids[2]]["detail"] == "the dependency unsafe has no lookup"
    assert "nobody knows whether it happened" in items[ids[3]]["detail"]
    for each in unknown:
        assert "its lookup got no answer" in system.status(each["operation_id"])["dead_letter"]["detail"]
        assert system.target.received(each["key"])["count"] == 1


def test_a_function_is_asked_about_a_handler(tailored: System, key: str) -> None:
    def ended(case: str) -> dict[str, Any]:
        body = {"handler": "send-money", "input": {"case": case}, "key": case}
        accepted = tailored.client.post("/api/operations", json=body)
        assert accepted.status_code == 202, accepted.text
        return tailored.until(accepted.json()["operation_id"], "succeeded")

    found = ended(key)
    assert found["result"] == {"value": f"found 1 for {key}"}
    assert found["attempts"][0]["delay_reasons"][0].startswith("found at 20")
    lost = ended(f"lost-{key}")
    assert (lost["result"], lost["attempt_count"]) == ({"value": "200"}, 2)
    assert [wait["kind"] for wait in lost["waits"]] == ["lookup", "retry"]
    counts = [tailored.target.received(case)["count"] for case in (key, f"lost-{key}")]
    assert counts == [1, 2]
