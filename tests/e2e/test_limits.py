from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.support.app import FINISHED, System

HANGS_SECONDS = 0.4
BACKLOG = 16
MORE_THAN_A_HOST_RUNS = 110


def arrivals(system: System, keys: list[str]) -> list[datetime]:
    tries = (one for key in keys for one in system.target.received(key)["tries"])
    return sorted(datetime.fromisoformat(one["received_at"]) for one in tries)


@pytest.mark.shows("D8")
def test_no_more_attempts_are_under_way_than_the_limit(system: System, key: str) -> None:
    keys = [f"{key}-{number}" for number in range(6)]
    path = f"/hang/1?seconds={HANGS_SECONDS}"
    accepted = [system.accepted(each, path, dependency="narrow") for each in keys]
    ended = [system.until(operation_id, "succeeded", within_seconds=60) for operation_id in accepted]
    begun = arrivals(system, keys)
    assert len(begun) == len(keys)
    # The third from any one begins after that one has ended.
    lasts = timedelta(seconds=HANGS_SECONDS)
    assert all(third - first >= lasts for first, third in zip(begun, begun[2:], strict=False)), begun
    waits = [wait for document in ended for wait in document.get("waits", [])]
    assert {wait["kind"] for wait in waits} == {"limit"}
    assert "2 attempts at once" in waits[0]["delay_reasons"][0]


def test_a_customer_with_a_backlog_holds_no_other_up(system: System, key: str) -> None:
    def submitted(name: str) -> str:
        body = {"path": f"/hang/1?seconds={HANGS_SECONDS}", "dependency": "by_customer"}
        return system.accepted(f"{key}-{name}", **body, limit_key=f"{key}-{name[0]}")

    # A partition that was idle is polled every few seconds, so the start of the other one may be as late.
    many = [submitted(f"a{number}") for number in range(BACKLOG)]
    other = system.until(submitted("b"), "succeeded", within_seconds=60)
    assert (last := system.status(many[-1]))["status"] != "succeeded", (other, last)
    assert other["limit_key"] == f"{key}-b"
    ended = [system.until(operation_id, "succeeded", within_seconds=60) for operation_id in many]
    begun = arrivals(system, [f"{key}-a{number}" for number in range(BACKLOG)])
    lasts = timedelta(seconds=HANGS_SECONDS)
    assert all(second - first >= lasts for first, second in pairwise(begun)), begun
    reasons = {reason for one in ended for wait in one.get("waits", []) for reason in wait["delay_reasons"]}
    assert any(f"1 of 1 attempt of {key}-a is under way" in reason for reason in reasons), reasons


def test_attempts_start_no_faster_than_the_rate(system: System, key: str) -> None:
    posted_at = datetime.now(UTC)
    keys = [f"{key}-{number}" for number in range(5)]
    with ThreadPoolExecutor(len(keys)) as clients:
        accepted = list(clients.map(lambda each: system.accepted(each, "/echo", dependency="paced"), keys))
    ended = [system.until(operation_id, "succeeded", within_seconds=60) for operation_id in accepted]
    assert arrivals(system, keys)[-1] >= posted_at + timedelta(seconds=4)
    waits = [wait for document in ended for wait in document.get("waits", [])]
    # One whose turn is within a second may wait for it at its worker.
    assert 1 <= len(waits) < len(keys)
    assert "1 attempt per second" in waits[0]["delay_reasons"][0]


def test_one_stuck_dependency_holds_no_other_up(system: System, key: str) -> None:
    # More than the host runs at once: without a limit they would take every place.
    stuck = [
        system.accepted(f"{key}-stuck-{number}", "/hang/1?seconds=600", dependency="stuck")
        for number in range(MORE_THAN_A_HOST_RUNS)
    ]
    try:
        for number in range(5):
            system.until(system.accepted(f"{key}-{number}", "/echo"), "succeeded", within_seconds=120)
        ended = [each for each in stuck if system.status(each)["status"] in FINISHED]
        assert ended == []
    finally:
        for each in stuck:
            system.client.post(f"/api/operations/{each}/cancel", json={})


def test_the_limits_of_the_moment_and_what_they_let_through_are_shown(system: System) -> None:
    shown = system.client.get("/api/circuits/narrow").json()["limits"]
    assert shown["max_concurrency"] == 2
    items = system.client.get("/api/circuits").json()["items"]
    listed = {each["dependency"]: each["limits"] for each in items}
    used = {"lent", "waiting", "waiting_by_priority"}
    assert listed["narrow"] == {name: shown[name] for name in shown if name not in used}
    preview = system.client.post("/api/policies/preview", json={"dependency": "narrow"}).json()
    assert preview["limits"] == {
        "at_once": 2,
        "starts_per_second": None,
        "slowest_per_second": 0.1,
    }
    assert system.client.post("/api/policies/preview", json={"retry": {}}).json()["limits"] is None
