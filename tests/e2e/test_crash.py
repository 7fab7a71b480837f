from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System

HIDDEN_SECONDS = 120.0
"""Azure Storage hides for a minute what a host had fetched that has ended."""


def in_flight(system: System, key: str) -> bool:
    return bool(system.target.received(key)["in_flight"])


def kill_and_start(system: System) -> None:
    system.server.kill()
    system.server.start()


@pytest.mark.shows("A1", "A2")
def test_what_waits_and_what_is_in_an_attempt_both_finish_after_a_kill(own_system: System, key: str) -> None:
    waits, tries = f"{key}-waits", f"{key}-tries"
    waiting_id = own_system.accepted(waits, "/fail/1", dependency="patient")
    trying_id = own_system.accepted(tries, "/hang/1?seconds=19", dependency="slow")
    due = own_system.until(waiting_id, "waiting_retry")["next_attempt_at"]
    eventually(lambda: in_flight(own_system, tries), "the second is in an attempt")

    kill_and_start(own_system)

    waited = own_system.until(waiting_id, "succeeded", within_seconds=HIDDEN_SECONDS)
    tried = own_system.until(trying_id, "succeeded", within_seconds=HIDDEN_SECONDS)
    assert [waited["attempt_count"], tried["attempt_count"]] == [2, 1]
    received = own_system.target.received(waits)
    assert received["count"] == 2
    assert received["tries"][1]["received_at"] >= due
    assert (
        own_system.target.received(tries)["count"] == 2
    )  # The one that was cut off, and the one that was made again.


@pytest.mark.long
def test_kills_at_many_moments_lose_nothing_and_start_nothing_twice(own_system: System, key: str) -> None:
    paths = {f"{key}-{number}": f"/fail/{number % 3}?status=503" for number in range(60)}
    ids = {
        name: own_system.accepted(name, path, retry={"initial_seconds": 1}) for name, path in paths.items()
    }

    kills = 0
    for seen in (60, 70, 90, 110):  # 60 first tries; then the retries, as they come due in bursts
        eventually(lambda seen=seen: tries(own_system, paths) >= seen, f"{seen} tries")  # type: ignore[misc] # a default binds it
        kill_and_start(own_system)
        kills += 1

    for name, operation_id in ids.items():
        document = own_system.until(operation_id, "succeeded")
        failures = int(paths[name][len("/fail/")])
        assert document["attempt_count"] <= failures + 1 + kills
        assert own_system.target.received(name)["most_in_flight"] == 1
    assert tries(own_system, paths) <= 120 + 60 * kills


@pytest.mark.shows("A8")
def test_a_stop_is_orderly_and_loses_nothing(own_system: System, key: str) -> None:
    operation_id = own_system.accepted(key, "/fail/1", dependency="slow", retry={"initial_seconds": 1})
    own_system.until(operation_id, "waiting_retry")
    assert own_system.server.stop() == 0
    own_system.server.start()
    attempts = own_system.until(operation_id, "succeeded", within_seconds=HIDDEN_SECONDS)["attempts"]
    assert len(attempts) == 2, attempts


def tries(system: System, keys: dict[str, Any]) -> int:
    return sum(count for key, count in system.target.totals().items() if key in keys)
