"""Cancelling, hurrying and waiting for operations, and looking at many of them."""

from datetime import datetime
from time import monotonic
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System, operation


def cancel(system: System, operation_id: str) -> httpx.Response:
    return system.client.post(f"/api/operations/{operation_id}/cancel")


def retry_now(system: System, operation_id: str) -> httpx.Response:
    return system.client.post(f"/api/operations/{operation_id}/retry-now")


def listed(system: System, **query: Any) -> list[dict[str, Any]]:
    """Every page of a list."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = system.client.get(
            "/api/operations", params={**query, **({"cursor": cursor} if cursor else {})}
        )
        assert page.status_code == 200, page.text
        items += page.json()["items"]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            return items


def waiting_operation(system: System, key: str, **more: Any) -> str:
    operation_id = system.accepted(key, "/fail/1", retry={"initial_seconds": 60}, **more)
    system.until(operation_id, "waiting_retry")
    return operation_id


def assert_conflict(answer: httpx.Response) -> None:
    assert answer.status_code == 409, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["type"].endswith("/wrong-state")


def test_a_cancelled_operation_ends_its_wait_and_is_not_tried_again(system: System, key: str) -> None:
    operation_id = waiting_operation(system, key)
    answer = cancel(system, operation_id)
    assert (answer.status_code, answer.json()["operation_id"]) == (202, operation_id)
    ended = system.until(operation_id, "cancelled")
    assert (ended["attempt_count"], ended["next_attempt_at"], ended["result"]) == (1, None, None)
    assert system.target.received(key)["count"] == 1
    assert_conflict(cancel(system, operation_id))
    assert_conflict(retry_now(system, operation_id))
    again = system.post(key, "/fail/1", retry={"initial_seconds": 60})
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")


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
    again = system.post(key, "/fail/1", retry={"initial_seconds": 60})
    assert (again.status_code, again.json()["status"]) == (200, status)


def test_what_was_terminated_during_an_attempt_is_a_dead_letter_that_can_be_replayed(
    system: System, key: str
) -> None:
    operation_id = system.accepted(key, "/hang/1?seconds=3", dependency="slow")
    eventually(lambda: bool(system.target.received(key)["in_flight"]), "it is in an attempt")
    instance = f"/runtime/webhooks/durabletask/instances/{operation_id}"
    system.client.post(f"{instance}/terminate", params={"reason": "too slow"}).raise_for_status()
    system.until(operation_id, "dead_lettered")

    def kept() -> dict[str, Any] | None:
        # The first run keeps the dead letter, and one that sees the key completed purges the history.
        assert system.client.post("/admin/functions/watch", json={}).status_code == 202
        letter: dict[str, Any] = system.status(operation_id)["dead_letter"]
        return letter if letter["id"] is not None else None

    letter = eventually(kept, "its dead letter is kept")
    assert (letter["reason"], letter["category"]) == ("AmbiguousOutcome", "ambiguous")
    assert letter["detail"] == "the orchestration was terminated: too slow"
    assert system.client.post(f"/api/dead-letters/{letter['id']}/replay", json={}).status_code == 202
    system.until_replayed({"operation_id": operation_id}, "succeeded")


def test_an_operation_cancelled_during_an_attempt_ends_with_it(system: System, key: str) -> None:
    operation_id = system.accepted(
        key, "/hang/1?seconds=0.5", dependency="slow", retry={"initial_seconds": 60}
    )
    eventually(lambda: bool(system.target.received(key)["in_flight"]), "it is in an attempt")
    assert_conflict(retry_now(system, operation_id))
    assert cancel(system, operation_id).status_code == 202
    assert system.until(operation_id, "succeeded")["attempt_count"] == 1


def test_retry_now_ends_the_wait(system: System, key: str) -> None:
    operation_id = waiting_operation(system, key)
    assert retry_now(system, operation_id).status_code == 202
    done = system.until(operation_id, "succeeded")
    assert done["attempt_count"] == 2
    assert_conflict(retry_now(system, operation_id))
    assert_conflict(cancel(system, operation_id))


def test_an_operation_that_begins_later_is_listed_and_started_now(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/0", delay_seconds=3600)
    assert system.until(operation_id, "scheduled")["attempt_count"] == 0
    eventually(
        lambda: operation_id in {one["operation_id"] for one in listed(system, status="scheduled")},
        "it is listed as scheduled",
    )
    assert retry_now(system, operation_id).status_code == 202
    done = system.until(operation_id, "succeeded")
    assert (done["attempt_count"], system.target.received(key)["count"]) == (1, 1)
    eventually(
        lambda: operation_id not in {one["operation_id"] for one in listed(system, status="scheduled")},
        "it is not listed as scheduled any more",
    )


def test_an_operation_begins_by_itself_at_its_start(system: System, key: str) -> None:
    done = system.until(system.accepted(key, "/fail/0", delay_seconds=1.5), "succeeded")
    begun = datetime.fromisoformat(done["attempts"][0]["started_at"])
    assert begun >= datetime.fromisoformat(done["start_at"])


def test_of_operations_with_one_debounce_key_the_last_one_runs(system: System, key: str) -> None:
    wanted: dict[str, Any] = {"debounce_key": key, "debounce_seconds": 1.5}
    ids = [system.accepted(f"{key}-{number}", "/echo", **wanted) for number in range(3)]
    assert system.accepted(f"{key}-2", "/echo", **wanted) == ids[2]
    done = system.until(ids[2], "succeeded")
    assert (done["debounce_key"], "replaced_by" in done) == (key, False)
    for each in ids[:2]:
        replaced = system.until(each, "cancelled")
        assert (replaced["replaced_by"] in ids[1:], replaced["attempt_count"]) == (True, 0)
    later = system.accepted(f"{key}-3", "/echo", debounce_key=key, debounce_seconds=0.1)
    assert "replaced_by" not in system.until(later, "succeeded")


def test_operations_are_found_by_their_priority_and_their_debounce_key(system: System, key: str) -> None:
    more: dict[str, Any] = {"debounce_key": key, "debounce_seconds": 0.1}
    high = system.accepted(key, "/fail/0", priority="high", **more)
    done = system.until(high, "succeeded")
    assert done["priority"] == "high"
    for query, expected in (({"priority": "high"}, [high]), ({"priority": "low"}, [])):
        assert [one["operation_id"] for one in listed(system, debounce_key=key, **query)] == expected


def test_a_paused_operation_goes_on_when_it_is_resumed(system: System, key: str) -> None:
    operation_id = waiting_operation(system, key)
    path = f"/api/operations/{operation_id}"
    assert_conflict(system.client.post(f"{path}/resume"))
    answer = system.client.post(f"{path}/pause", json={"reason": "the supplier moves", "for_seconds": 3600})
    assert answer.status_code == 202, answer.text
    paused = system.until(operation_id, "paused")
    assert paused["actions"][-1]["reason"] == "the supplier moves"
    eventually(
        lambda: operation_id in {one["operation_id"] for one in listed(system, status="paused")},
        "it is listed as paused",
    )
    assert_conflict(system.client.post(f"{path}/pause", json={}))
    assert_conflict(retry_now(system, operation_id))
    assert system.client.post(f"{path}/resume").status_code == 202
    system.until(operation_id, "waiting_retry")
    assert retry_now(system, operation_id).status_code == 202
    assert system.until(operation_id, "succeeded")["attempt_count"] == 2


def test_steering_what_does_not_exist_is_a_404(system: System) -> None:
    assert cancel(system, "op-nothing").status_code == 404
    assert retry_now(system, "op-nothing").status_code == 404


def test_who_prefers_to_wait_gets_the_finished_document(system: System, key: str) -> None:
    headers = {"Prefer": "respond-async, wait=20"}
    answer = system.client.post("/api/operations", json=operation(key, "/fail/1"), headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
    assert answer.headers["preference-applied"] == "wait=20"
    assert answer.json() == system.status(answer.json()["operation_id"])


def test_a_wait_that_is_too_short_gets_the_202(system: System, key: str) -> None:
    body = operation(key, "/fail/1", retry={"initial_seconds": 60})
    began = monotonic()
    answer = system.client.post("/api/operations", json=body, headers={"Prefer": "wait=1"})
    assert monotonic() - began >= 1
    assert answer.status_code == 202
    assert answer.headers["location"] == answer.json()["status_url"]
    cancel(system, answer.json()["operation_id"])


def test_nobody_waits_longer_than_30_seconds(system: System, key: str) -> None:
    headers = {"Prefer": "wait=999"}
    answer = system.client.post("/api/operations", json=operation(key, "/echo"), headers=headers)
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=30")


@pytest.mark.parametrize("preference", ["wait=soon", "wait=-1", "wait", "return=minimal", "await=5"])
def test_a_preference_that_is_none_is_ignored(system: System, key: str, preference: str) -> None:
    headers = {"Prefer": preference}
    answer = system.client.post("/api/operations", json=operation(key, "/echo"), headers=headers)
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers
    is_said = "such as wait=10" in answer.headers.get("warning", "")
    assert is_said is preference.startswith("wait"), "a wait that cannot be read is said, no other preference"


def test_lists_are_filtered_by_status_dependency_and_time(system: System, key: str) -> None:
    early = waiting_operation(system, f"{key}-early", dependency="patient")
    failed = system.accepted(f"{key}-failed", "/status/400", dependency="patient")
    system.until(failed, "dead_lettered")
    late = system.accepted(f"{key}-late", "/echo", dependency="slow")
    created_at = system.until(late, "succeeded")["created_at"]

    def found(**query: str) -> set[str]:
        return {one["operation_id"] for one in listed(system, limit=200, **query)} & {early, failed, late}

    # What the lists read is written a little later.
    eventually(lambda: found() == {early, failed, late}, "all are listed")
    eventually(lambda: found(status="waiting_retry") == {early}, "it is listed as waiting")
    eventually(lambda: found(status="dead_lettered") == {failed}, "it is listed as a dead letter")
    assert found(dependency="patient") == {early, failed}
    assert found(dependency="patient", status="succeeded") == set()
    assert found(created_after=created_at) == {late}
    assert found(dependency="nowhere") == set()
    cancel(system, early)


def test_cursors_lead_through_all_pages_once_and_while_more_arrive(system: System, key: str) -> None:
    began_at = system.until(system.accepted(key, "/echo"), "succeeded")["created_at"]
    wanted = {system.accepted(f"{key}-{number}", "/echo") for number in range(9)}
    query = {"created_after": began_at, "dependency": "flaky", "limit": "2"}
    first = system.client.get("/api/operations", params=query).json()
    assert len(first["items"]) == 2
    wanted_later = system.accepted(f"{key}-late", "/echo")
    rest = listed(system, **query, cursor=first["next_cursor"])
    ids = [one["operation_id"] for one in [*first["items"], *rest]]
    assert len(ids) == len(set(ids))
    assert wanted <= set(ids) | {wanted_later}
    assert all(datetime.fromisoformat(one["created_at"]) for one in rest)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"limit": "0"}, "/limit"),
        ({"limit": "201"}, "/limit"),
        ({"limit": "many"}, "/limit"),
        ({"status": "lost"}, "/status"),
        ({"created_after": "yesterday"}, "/created_after"),
        ({"cursor": "made-up"}, "/cursor"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(system: System, query: dict[str, str], pointer: str) -> None:
    answer = system.client.get("/api/operations", params=query)
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_every_mistake_of_a_query_is_reported(system: System) -> None:
    answer = system.client.get("/api/operations", params={"limit": "0", "status": "lost", "x": "1"})
    assert {error["pointer"] for error in answer.json()["errors"]} == {"/limit", "/status", "/x"}
