import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.names import Category
from durable_retry.rules.circuit.breaker import IDLE_AFTER, Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth, call_health
from durable_retry.rules.circuit.key_changes import KEPT_KEYS, KEPT_KEYS_BYTES, KeyChange, KeyChanges
from durable_retry.rules.circuit.messages import ReportMessage, view_of
from durable_retry.rules.circuit.snapshot import Refused, held_by_hand, release_at
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from tests.support.builders import after
from tests.support.circuit import BUDGET, SETTINGS, Desk, tripped
from tests.support.narrowing import existing, of_type

KEY = "customer-17"


def of_key(desk: Desk) -> Desk:
    desk.breaker = replace(desk.breaker, limit_key=KEY)
    return desk


def asked(desk: Desk, at: float, *, waiting: bool = False) -> Refused | None:
    return held_by_hand(desk.read(at), after(at), settings=SETTINGS, operation_id="op-1", waiting=waiting)


@pytest.mark.parametrize(
    ("category", "status_code", "health"),
    [
        (Category.UNAUTHORIZED, 403, CallHealth.UNAUTHORIZED),
        (Category.UNAUTHORIZED, None, CallHealth.UNAUTHORIZED),
        (Category.TRANSIENT, 401, CallHealth.FAILURE),
        (Category.TRANSIENT, 404, CallHealth.SUCCESS),
        (Category.THROTTLED, 403, CallHealth.SILENT),
        (Category.MALFORMED, 400, CallHealth.SUCCESS),
    ],
)
def test_a_refused_credential_is_a_refusal_of_its_key(
    category: Category, status_code: int | None, health: CallHealth
) -> None:
    assert call_health(category, status_code, of_key=True) is health


def test_a_report_says_whose_circuit_it_is() -> None:
    report = Desk().report(0, failures=10)
    breaker = ReportMessage(report, SETTINGS, BUDGET, KEY).apply(Breaker(), after(0))
    assert (breaker.limit_key, breaker.state) == (KEY, CircuitState.OPEN)
    assert view_of("warehouse", breaker, after(0), SETTINGS).limit_key == KEY


def test_whoever_waits_reads_which_key_it_is() -> None:
    desk = Desk()
    desk.breaker = Breaker(limit_key=KEY)
    report = replace(desk.report(0, failures=10), last_error="401: revoked")
    desk.breaker = ReportMessage(report, SETTINGS, BUDGET, KEY).apply(desk.breaker, after(0))
    snapshot = desk.read(1)
    assert snapshot.reason == "10 of 10 calls in 30 s failed (limit key customer-17)"
    assert snapshot.failure == "for customer-17 answers 401: revoked, since 2026-11-21T12:00:00Z"
    answer = of_type(Refused, desk.ask(1))
    assert (answer.reason, answer.failure) == (f"the circuit is open: {snapshot.reason}", snapshot.failure)


def test_a_change_by_hand_is_for_one_key() -> None:
    action = ManualAction(ManualControl.OPEN, after(0), "ada", "revoked", limit_key=KEY)
    breaker = ManualAction.from_json(action.to_json()).apply(Breaker(), after(0))
    assert (breaker.limit_key, breaker.keys, breaker.state) == (KEY, None, CircuitState.FORCED_OPEN)


def test_the_dependency_lists_the_keys_whose_circuits_are_not_closed() -> None:
    breaker = Breaker()
    for key in ("a", "b", "a"):
        breaker = breaker.with_key(KeyChange(key, is_free=False))
    assert breaker.keys == ("b", "a")
    assert breaker.with_key(KeyChange("b", is_free=True)).keys == ("a",)
    assert breaker.with_key(KeyChange("c", is_free=True)).keys == ("b", "a")


@pytest.mark.parametrize("characters", [3, 255])
def test_the_list_of_keys_is_bounded_and_has_the_latest(characters: int) -> None:
    breaker, names = Breaker(), [f"{number:0{characters}d}" for number in range(2 * KEPT_KEYS)]
    for name in names:
        breaker = breaker.with_key(KeyChange(name, is_free=False))
    keys = breaker.keys or ()
    assert 0 < len(keys) <= KEPT_KEYS
    assert len(json.dumps(keys)) <= KEPT_KEYS_BYTES
    assert keys == tuple(names[-len(keys) :])
    assert breaker.key_changes == KeyChanges(len(names), keys)


def test_a_worker_sees_which_circuits_changed_since_it_looked() -> None:
    changes = KeyChanges()
    for key in ("a", "b", "a"):
        changes = changes.with_key(key)
    assert [seen for seen in range(4) if changes.concern("a", seen)] == [0, 1, 2]
    assert [seen for seen in range(4) if changes.concern("b", seen)] == [0, 1]


def test_what_is_not_known_of_changes_may_concern_every_key() -> None:
    changes = KeyChanges(KEPT_KEYS + 1, ("a",) * KEPT_KEYS)
    assert changes.concern("b", 0)
    assert not changes.concern("b", 1)
    assert changes.concern("b", changes.count + 1)  # the circuit of the dependency lost its state


def test_a_hold_of_the_dependency_holds_every_key_until_it_ends() -> None:
    desk = Desk()
    assert asked(desk, 0, waiting=True) is None
    desk.control(0, ManualControl.OPEN, 60)
    assert existing(asked(desk, 1)).reason == "the circuit is held open: drill"
    assert asked(desk, 61) is None
    assert held_by_hand(None, after(0), settings=SETTINGS, operation_id="op-1", waiting=False) is None


def test_those_who_waited_for_the_hold_go_in_turn_after_it() -> None:
    desk = Desk().control(0, ManualControl.OPEN)
    desk.hear(desk.report(1, refused=5_000))
    desk.control(10, ManualControl.CLOSE)
    assert existing(asked(desk, 10, waiting=True)).until == release_at("op-1", after(10), 5_000)
    assert asked(desk, 10) is None


def test_what_the_dependencys_own_circuit_does_by_itself_stops_no_key() -> None:
    desk = tripped()
    assert asked(desk, 1) is None
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=60))
    assert asked(desk, 1) is None


def test_a_hold_of_a_dependency_with_a_circuit_for_each_key_ends_without_a_probe() -> None:
    """Nobody might probe it: what has a limit key probes the circuit of the key."""
    action = ManualAction(ManualControl.OPEN, after(0), "ada", "drill", 60, by_key=True)
    breaker = action.apply(Breaker(), after(0))
    assert breaker.keys == ()
    desk = Desk(breaker)
    assert desk.read(59).state is CircuitState.FORCED_OPEN
    snapshot = desk.read(61)
    assert (snapshot.state, snapshot.reopened_at) == (CircuitState.CLOSED, after(60))


IDLE_SECONDS = IDLE_AFTER / timedelta(seconds=1)


def test_a_circuit_is_idle_an_hour_after_its_last_message() -> None:
    assert Breaker().is_idle(after(0))
    desk = of_key(tripped())
    assert not desk.breaker.is_idle(after(IDLE_SECONDS))
    assert desk.breaker.is_idle(after(IDLE_SECONDS + 1))


@pytest.mark.parametrize("control", [ManualControl.OPEN, ManualControl.DISABLE])
def test_what_a_person_holds_is_not_idle(control: ManualControl) -> None:
    assert not Desk().control(0, control).breaker.is_idle(after(2 * IDLE_SECONDS))


@pytest.mark.parametrize(
    "more",
    [{"throttled_until": after(3 * IDLE_SECONDS)}, {"state": CircuitState.OPEN, "retry_at": after(9e4)}],
)
def test_a_long_pause_or_break_is_not_idle(more: dict[str, Any]) -> None:
    assert not Breaker(clock=after(0), **more).is_idle(after(2 * IDLE_SECONDS))


def test_settings_ask_for_a_circuit_by_key_only_while_the_circuit_is_on() -> None:
    assert CircuitSettings(by="limit_key").is_by_key
    assert not CircuitSettings().is_by_key
    assert not CircuitSettings(by="limit_key", enabled=False).is_by_key


def test_messages_do_not_carry_by_what_a_dependency_has_circuits() -> None:
    assert CircuitSettings(by="limit_key", max_keys=5).to_json() == CircuitSettings().to_json()
