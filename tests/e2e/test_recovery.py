from itertools import count
from typing import Any

from scripts.processes import eventually
from tests.e2e.test_circuits import circuit, circuits, outage
from tests.support.app import System
from tests.support.semantics import Calls

__all__ = ["circuits"]  # a fixture


def recoveries(system: System) -> list[dict[str, Any]]:
    """Have the circuits looked at, and return the bulk actions that recoveries began."""
    assert system.client.post("/admin/functions/watch", json={}).status_code == 202
    return [action for action in system.items("bulk-actions") if action["by"] == "the recovery"]


def test_the_dead_letters_of_an_outage_are_replayed_once(circuits: System, key: str) -> None:
    names = [f"{key}-{number}" for number in range(2)]
    with outage(circuits.target):
        dead = [circuits.accepted(name, "/echo", dependency="recovering") for name in names]
        for operation_id in dead:
            document = circuits.until(operation_id, "dead_lettered", within_seconds=60)
            assert document["dead_letter"]["reason"] == "RetriesExhausted"
        eventually(lambda: circuit(circuits, "recovering")["state"] != "closed", "its circuit is open")
    refused, numbers = list[str](), count()

    def is_closed() -> bool:
        # As nobody else calls, these close the circuit; a worker may have read it too long ago for a probe.
        refused.append(
            circuits.accepted(f"{key}-{next(numbers)}-refused", "/status/422", dependency="recovering")
        )
        return bool(circuit(circuits, "recovering")["state"] == "closed")

    eventually(is_closed, "its circuit is closed again")

    (action,) = eventually(lambda: recoveries(circuits) or None, "a recovery has begun", within_seconds=60)
    assert (action["action"], action["matched"]) == ("replay", 2)
    assert action["note"].startswith("the circuit of recovering closed at 20")
    for operation_id, name in zip(dead, names, strict=True):

        def replayed(operation_id: str = operation_id) -> bool:
            return bool(circuits.status(operation_id)["status"] == "succeeded")

        eventually(replayed, f"{name} was replayed")
        assert circuits.target.received(name)["count"] == Calls(2)
    for operation_id in refused:
        circuits.until(operation_id, "dead_lettered")
    assert [each["action_id"] for each in recoveries(circuits)] == [action["action_id"]]
