"""One operation: posted, retried durably, shown."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System, operation


def instant(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def test_an_operation_is_accepted_at_once_with_a_place_to_look(system: System, key: str) -> None:
    answer = system.post(key, "/echo")
    assert answer.status_code == 202
    body = answer.json()
    assert body["key"] == key
    assert answer.headers["location"] == body["status_url"]
    assert int(answer.headers["retry-after"]) >= 1
    assert system.client.get(body["status_url"]).json()["operation_id"] == body["operation_id"]


def test_an_operation_that_fails_twice_waits_says_why_and_succeeds(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/2", retry={"initial_seconds": 1}, correlation_id="order-42")
    waiting = system.until(operation_id, "waiting_retry")
    assert instant(waiting["next_attempt_at"]) > instant(waiting["created_at"])
    assert waiting["attempts"][-1]["category"] == "transient"
    assert waiting["attempts"][-1]["status_code"] == 503
    assert waiting["attempts"][-1]["delay_reasons"] != []

    done = system.until(operation_id, "succeeded")
    assert done["attempt_count"] == 3
    assert [attempt["number"] for attempt in done["attempts"]] == [1, 2, 3]
    assert [attempt["status_code"] for attempt in done["attempts"]] == [503, 503, 200]
    assert done["result"]["status_code"] == 200
    assert done["result"]["json"]["received"] == {"amount": 5}
    assert (done["correlation_id"], done["source"], done["next_attempt_at"]) == ("order-42", "http", None)
    assert done["dead_letter"] is None


def test_no_retry_arrives_before_its_time(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/2", retry={"initial_seconds": 0.5})
    system.until(operation_id, "succeeded")
    arrivals = [instant(one["received_at"]) for one in system.target.received(key)["tries"]]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(arrivals)]
    assert all(gap >= 0.5 for gap in gaps), gaps


def test_every_try_carries_the_same_idempotency_key(system: System, key: str) -> None:
    system.until(system.accepted(key, "/fail/2"), "succeeded")
    received = system.target.received(key)
    assert received["count"] == 3
    assert received["most_in_flight"] == 1


def test_an_operation_without_a_key_gets_one(system: System) -> None:
    body = {"dependency": "flaky", "request": {"method": "GET", "path": "/echo"}}
    first = system.client.post("/api/operations", json=body).json()
    second = system.client.post("/api/operations", json=body).json()
    assert first["key"]
    assert first["operation_id"] != second["operation_id"]
    assert system.until(first["operation_id"], "succeeded")["result"]["json"]["key"] == first["key"]


def test_an_unknown_operation_is_a_404_problem(system: System) -> None:
    answer = system.client.get("/api/operations/op-nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["status"] == 404


@pytest.mark.long
def test_500_operations_at_once_of_which_a_third_fails_once_all_succeed(system: System, key: str) -> None:
    paths = {f"{key}-{number}": "/fail/1" if number % 3 == 0 else "/echo" for number in range(500)}
    expected = {name: 2 if path == "/fail/1" else 1 for name, path in paths.items()}
    began = datetime.now(UTC)
    with ThreadPoolExecutor(20) as posters:
        ids = list(posters.map(lambda item: system.accepted(*item, dependency="crowded"), paths.items()))
    assert len(set(ids)) == 500

    def received() -> dict[str, int]:
        return {name: count for name, count in system.target.totals().items() if name in paths}

    eventually(
        lambda: sum(received().values()) >= sum(expected.values()), "all were tried", within_seconds=60
    )
    for operation_id in ids:
        document: dict[str, Any] = system.until(operation_id, "succeeded")
        assert instant(document["created_at"]) >= began
    assert received() == expected


def test_every_try_of_a_large_operation_carries_all_of_it(system: System, key: str) -> None:
    """Attempts read it from the task hub."""
    large = {"amount": 5, "note": "x" * 10_000}
    operation_id = system.accepted(key, "/fail/2", request={"json": large})
    assert system.until(operation_id, "succeeded")["result"]["json"]["received"] == large
    assert system.target.received(key)["count"] == 3


def test_an_answer_that_is_too_deep_is_kept_as_text_and_asked_for_once(system: System, key: str) -> None:
    text = "[" * 60 + "]" * 60
    body = operation(key, "/echo")
    body["request"] = {"method": "POST", "path": "/echo", "body": text}
    answer = system.client.post("/api/operations", json=body)
    document = system.until(answer.json()["operation_id"], "succeeded")
    assert text in document["result"]["body"]
    assert "json" not in document["result"]
    assert system.target.received(key)["count"] == 1
