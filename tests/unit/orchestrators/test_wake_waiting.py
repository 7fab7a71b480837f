import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.circuit.entity import SETTLE
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.hub.turns import ENTITY_CALLS
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from orchestrators.wake_waiting import release_waiting
from tests.support.builders import NOON, an_operation
from tests.support.stage import Stage, dying

CLOSED = ManualAction(ManualControl.CLOSE, NOON, "ada", "it is back")


def a_stage(hand: ManualAction = CLOSED) -> Stage:
    def answer(_name: str, _given: dict[str, Any]) -> Any:
        return {"following": None, "woken": 0}

    stage = Stage(an_operation(), answer, release_waiting)
    stage._begin(json.dumps({"dependency": "payments", "hand": hand.to_json()}))
    return stage


@pytest.mark.parametrize(("deaths", "waited"), [(0, 0), (2, 6), (ENTITY_CALLS, 30)])
@pytest.mark.shows("W12")
def test_operations_are_woken_although_the_circuits_worker_dies(deaths: int, waited: int) -> None:
    stage = a_stage()
    stage.dead_batches = dying("hand", deaths)
    assert stage.run() == {"woken": 0}
    assert stage.now == NOON + timedelta(seconds=waited) + SETTLE
    assert stage.made("wake_waiting") == 1


@pytest.mark.shows("W12")
def test_a_circuit_is_held_open_although_its_worker_dies_and_nobody_is_woken() -> None:
    stage = a_stage(replace(CLOSED, control=ManualControl.OPEN))
    stage.dead_batches = dying("hand", 2)
    assert stage.run() == {"woken": 0}
    assert stage.states["circuit_breaker"]["state"] == CircuitState.FORCED_OPEN
    assert stage.activities == []


def test_the_release_of_a_key_asks_its_circuit_and_wakes_its_operations_alone() -> None:
    stage = a_stage(replace(CLOSED, limit_key="customer-17"))
    stage.run()
    ((_, step),) = stage.activities
    assert step["limit_key"] == "customer-17"
    called = [each.entityOperationCalled for each in stage.past if each.HasField("entityOperationCalled")]
    assert [each.targetInstanceId.value for each in called] == [str(circuit_id("payments", "customer-17"))]
