"""Kill -9 in the middle of events, a batch and a saga: all of them go on, and nothing is done twice."""

from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System, operation

ITEMS = 40


def call(path: str) -> dict[str, Any]:
    return {"dependency": "flaky", "request": {"method": "POST", "path": path, "json": {}}}


def posted(system: System, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    answer = system.client.post(path, json=body, headers={"Idempotency-Key": key})
    assert answer.status_code == 202, answer.text
    answered: dict[str, Any] = answer.json()
    return answered


@pytest.mark.long
@pytest.mark.shows("A6")
def test_events_a_batch_and_a_saga_survive_three_kills(own_system: System, key: str) -> None:
    system = own_system
    events = [{"type": "t", "dependency": "flaky", "path": "/fail/1", "data": n} for n in range(4)]
    with_events = [system.accepted(f"{key}-e{n}", "/fail/1", on_success=events) for n in range(5)]
    items: list[Any] = [operation(f"{key}-{number}", f"/fail/{number % 2}") for number in range(ITEMS)]
    items[7] = {"dependency": "flaky"}
    batch = posted(system, "/api/batches", {"items": items, "max_concurrency": 4}, f"{key}-batch")
    steps = [
        {"name": f"s{n}", "operation": call("/fail/1"), "compensation": call("/fail/1")} for n in range(4)
    ]
    steps[3]["operation"] = call("/status/422")
    saga = posted(system, "/api/sagas", {"steps": steps}, f"{key}-saga")

    def tries() -> int:
        return sum(system.target.totals().values())

    before = tries()
    for more in (5, 40, 80):
        eventually(lambda more=more: tries() >= before + more, f"{more} tries")  # type: ignore[misc] # a default binds it
        system.server.kill()
        system.server.start()

    def finished() -> bool:
        return bool(
            system.client.get(f"/api/batches/{batch['batch_id']}").json()["status"] != "running"
            and system.client.get(f"/api/sagas/{saga['saga_id']}").json()["status"] == "compensated"
            and all(
                event["state"] == "sent" for each in with_events for event in system.status(each)["events"]
            )
        )

    eventually(finished, "all of it has ended", within_seconds=90)
    totals = system.target.totals()
    document = system.client.get(f"/api/batches/{batch['batch_id']}").json()
    assert (document["counts"]["succeeded"], document["counts"]["dead_lettered"]) == (ITEMS - 1, 1)
    undone = system.client.get(f"/api/sagas/{saga['saga_id']}").json()
    assert undone["undone"] == ["s0", "s1", "s2"]
    # An attempt that a kill cuts off is made again: each kill costs a key one try at most.
    for number in range(ITEMS):
        if number != 7:
            assert number % 2 + 1 <= totals[f"{key}-{number}"] <= number % 2 + 1 + 3
    for step in undone["steps"][:3]:
        assert 2 <= totals[step["key"]] <= 5
        assert 2 <= totals[step["compensation"]["key"]] <= 5
    letters = system.client.get("/api/dead-letters", params={"limit": 200}).json()["items"]
    assert sorted(letter["reason"] for letter in letters) == ["RejectedByDependency", "ValidationFailed"]
