"""Kill -9 in the middle, start again with the same data: everything accepted goes on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import FINISHED, System
from tests.support.azurite import Storage
from tests.support.onebox.process import AS_SHIPPED
from tests.support.target import Target


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

    waited = own_system.until(waiting_id, "succeeded")
    tried = own_system.until(trying_id, "succeeded")
    assert [waited["attempt_count"], tried["attempt_count"]] == [2, 1]
    received = own_system.target.received(waits)
    assert received["count"] == 2
    assert received["tries"][1]["received_at"] >= due
    assert (
        own_system.target.received(tries)["count"] == 2
    )  # The one that was cut off, and the one that was made again.


@pytest.mark.long
@pytest.mark.shows("A3")
def test_an_unsafe_request_that_was_cut_off_is_not_sent_again(own_system: System, key: str) -> None:
    operation_id = own_system.accepted(key, f"/hang/1?seconds=19&case={key}", dependency="unsafe_slow")
    eventually(lambda: unkeyed(own_system, key) == 1, "it is in an attempt")

    kill_and_start(own_system)

    ended = own_system.until(operation_id, "dead_lettered")
    assert ended["dead_letter"]["category"] == "ambiguous"
    assert ended["dead_letter"]["reason"] == "AmbiguousOutcome"
    assert unkeyed(own_system, key) == 1


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


@pytest.mark.long
def test_on_azures_terms_operations_of_a_host_that_died_rest_for_the_minute_of_host_json_and_succeed(
    tmp_path: Path, target: Target, azurites: Callable[[str], Storage], key: str
) -> None:
    storage = azurites("rests").connection_string
    system = System(
        tmp_path,
        target,
        AzureWebJobsStorage=storage,
        ONEBOX_SEMANTICS="azure:1",
        FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED,
    )
    with system.running():
        ids = [system.accepted(f"{key}-{number}", "/status/200") for number in range(20)]
        ids.append(system.accepted(key, "/hang/1?seconds=19", dependency="slow"))
        eventually(lambda: in_flight(system, key), "one is in an attempt")
        system.server.kill()
        killed = time.monotonic()
        system.server.start()
        for operation_id in ids:
            system.until(operation_id, "succeeded", within_seconds=120)
        assert time.monotonic() - killed > 50, "the activity of the attempt was hidden"


@pytest.mark.shows("A8")
def test_a_stop_is_orderly_and_loses_nothing(own_system: System, key: str) -> None:
    operation_id = own_system.accepted(key, "/fail/1", retry={"initial_seconds": 1})
    own_system.until(operation_id, "waiting_retry")
    assert own_system.server.stop() == 0
    own_system.server.start()
    assert own_system.until(operation_id, "succeeded")["attempt_count"] == 2


@pytest.mark.long
def test_a_duplicate_after_a_kill_is_still_a_duplicate(own_system: System, key: str) -> None:
    operation_id = own_system.accepted(key, "/echo")
    own_system.until(operation_id, "succeeded")
    kill_and_start(own_system)
    again = own_system.post(key, "/echo")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json()["status"] in FINISHED
    assert own_system.target.received(key)["count"] == 1


def tries(system: System, keys: dict[str, Any]) -> int:
    return sum(count for key, count in system.target.totals().items() if key in keys)


def unkeyed(system: System, case: str) -> int:
    """How many requests without any idempotency key the target saw of this case."""
    return sum(case in one["query"] for one in system.target.received("")["tries"])
