from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System

pytestmark = pytest.mark.long

COUNT = 500
RATE = 20
HALF = COUNT // 2


@pytest.mark.timeout(900)
@pytest.mark.shows("A7")
def test_five_hundred_are_replayed_at_the_rate_across_a_cancellation_and_a_kill(
    own_system: System, key: str
) -> None:
    system = own_system
    keys = [f"{key}-{number}" for number in range(COUNT)]

    def fail(one: str) -> None:
        answer = system.post(one, "/fail/1?status=507", retry={"max_attempts": 1})
        assert answer.status_code == 202, answer.text

    with ThreadPoolExecutor(8) as lanes:
        list(lanes.map(fail, keys))
    eventually(lambda: summary(system)["open"] == COUNT, "all are dead letters", within_seconds=180)

    first = start(system)
    assert first["matched"] == COUNT
    eventually(lambda: progress(system, first)["started"] >= HALF, "half are replayed", within_seconds=180)
    assert system.client.delete(url(first)).status_code == 202
    cancelled = eventually(lambda: ended(system, first, "cancelled"), "it is cancelled")
    left = cancelled["remaining"]
    assert 0 < left <= HALF
    assert summary(system)["open"] == left
    eventually(lambda: len(tried(system, keys)) == COUNT - left, "what was replayed was tried")
    tried_before = tried(system, keys)

    second = start(system)
    assert second["matched"] == left
    eventually(lambda: progress(system, second)["started"] > 0, "it goes on")
    system.server.kill()
    # What had been sent when the kill came, and had not answered yet, is sent again.
    perhaps_cut = tried(system, keys) - tried_before
    system.server.start()
    completed = eventually(lambda: ended(system, second, "completed"), "it is completed", within_seconds=180)
    assert (completed["started"], completed["failed"], completed["remaining"]) == (left, 0, 0)
    eventually(lambda: summary(system)["open"] == 0, "none is open")

    eventually(lambda: len(tried(system, keys)) == COUNT, "each was tried twice", within_seconds=180)
    totals = system.target.totals()
    assert {totals[one] for one in set(keys) - perhaps_cut} == {2}, "and no more"
    assert {totals[one] for one in perhaps_cut} <= {2, 3}, "a kill costs an attempt one more try"


def tried(system: System, keys: list[str]) -> set[str]:
    """Those that were tried twice."""
    totals = system.target.totals()
    return {one for one in keys if totals[one] > 1}


def start(system: System) -> dict[str, Any]:
    body = {"action": "replay", "filter": {"dependency": "flaky"}, "rate_per_second": RATE}
    answer = system.client.post("/api/bulk-actions", json=body)
    assert answer.status_code == 202, answer.text
    started: dict[str, Any] = answer.json()
    return started


def url(started: dict[str, Any]) -> str:
    return f"/api/bulk-actions/{started['action_id']}"


def progress(system: System, started: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get(url(started)).json()
    return document


def ended(system: System, started: dict[str, Any], status: str) -> dict[str, Any] | None:
    document = progress(system, started)
    return document if document["status"] == status else None


def summary(system: System) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get("/api/dead-letters/summary").json()
    return document
