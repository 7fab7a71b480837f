"""Kill -9 in the middle, start again with the same data: everything accepted goes on."""

import pytest

from scripts.processes import eventually
from tests.support.app import System


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


@pytest.mark.shows("A8")
def test_a_stop_is_orderly_and_loses_nothing(own_system: System, key: str) -> None:
    operation_id = own_system.accepted(key, "/fail/1", retry={"initial_seconds": 1})
    own_system.until(operation_id, "waiting_retry")
    assert own_system.server.stop() == 0
    own_system.server.start()
    assert own_system.until(operation_id, "succeeded")["attempt_count"] == 2
