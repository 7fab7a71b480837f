"""What the answer to a change of a circuit by hand says."""

import json
from dataclasses import replace

import pytest

from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.circuit_controls.controls import (
    CircuitChange,
    ManualControlBody,
    UnchangeableCircuitError,
    control_circuit,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from tests.support.builders import NOON, after

CONFIG = parse_config(
    '[dependencies.payments]\nbase_url = "http://a.test"\ncircuit = { by = "limit_key" }\n', {}
)
PAUSED = Breaker(throttled_since=NOON, throttled_until=after(7_200), throttled_by="429 (Retry-After 7200 s)")
OPEN = Breaker(state=CircuitState.OPEN, opened_at=NOON, retry_at=after(600), epoch=7)
HELD = Breaker(state=CircuitState.FORCED_OPEN, opened_at=NOON, reason="moving", changed_by="ada")
FROZEN = Breaker(freeze=Freeze(NOON, NOON, "ada", "wrong amounts"))
PAUSE = "paused by 429 (Retry-After 7200 s) until 2026-11-21T14:00:00Z; reset ends the pause"


async def change(
    monkeypatch: pytest.MonkeyPatch,
    control: ManualControl,
    own: Breaker,
    of_key: Breaker | None = None,
    epoch: int | None = None,
) -> CircuitChange:
    """Change a circuit, which is that of a limit key where there is one."""

    async def readable(circuit: CircuitEntity) -> tuple[Breaker, None]:
        return (own if circuit.limit_key is None or of_key is None else of_key), None

    async def take(*_: object, **__: object) -> None:
        """Take a signal, or a start."""

    monkeypatch.setattr(CircuitEntity, "readable", readable)
    monkeypatch.setattr(TaskHub, "signal_entity", take)
    monkeypatch.setattr(TaskHub, "start_instance", take)
    body = ManualControlBody(reason="back", limit_key=None if of_key is None else "customer-17", epoch=epoch)
    hub = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1"}))
    with using(CONFIG), clock.reading(lambda: after(60)):
        return await control_circuit(hub, "payments", control, body, "ada")


@pytest.mark.parametrize(
    ("control", "own", "still_held"),
    [
        (ManualControl.CLOSE, PAUSED, PAUSE),
        (ManualControl.DISABLE, PAUSED, PAUSE),
        (ManualControl.CLOSE, replace(PAUSED, state=CircuitState.OPEN, opened_at=NOON), PAUSE),
        (ManualControl.RESET, PAUSED, None),
        (ManualControl.OPEN, PAUSED, None),
        (ManualControl.CLOSE, OPEN, None),
        (ManualControl.CLOSE, HELD, None),
    ],
)
async def test_a_change_that_lets_no_calls_through_says_what_holds_them_and_what_would_end_it(
    monkeypatch: pytest.MonkeyPatch, control: ManualControl, own: Breaker, still_held: str | None
) -> None:
    assert (await change(monkeypatch, control, own)).still_held == still_held


async def test_a_hold_of_everything_outlasts_what_is_done_to_one_circuit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    still_held = (await change(monkeypatch, ManualControl.RESET, FROZEN)).still_held
    assert still_held is not None
    assert "wrong amounts" in still_held
    assert still_held.endswith("; thaw ends that")


async def test_the_circuit_of_a_limit_key_is_held_by_that_of_its_dependency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = await change(monkeypatch, ManualControl.CLOSE, HELD, of_key=OPEN)
    assert changed.still_held == (
        "held open by ada since 2026-11-21T12:00:00Z: moving; close the dependency's own circuit"
    )
    assert (await change(monkeypatch, ManualControl.CLOSE, OPEN, of_key=OPEN)).still_held is None


async def test_a_circuit_that_has_changed_since_it_was_seen_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnchangeableCircuitError, match="in epoch 7 by now, not 6"):
        await change(monkeypatch, ManualControl.CLOSE, OPEN, epoch=6)
    assert (await change(monkeypatch, ManualControl.CLOSE, OPEN, epoch=7)).action is ManualControl.CLOSE
