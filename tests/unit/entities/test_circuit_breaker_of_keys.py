import json
from dataclasses import replace
from typing import Any

from azure.durable_functions.testing import EntityTestResult, execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction

from durable_retry.app import harden_runtime
from durable_retry.base.names import CIRCUIT_BREAKER, FORGET, KEY_CHANGED, MANUAL_CONTROL, REPORT
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.key_changes import KeyChange
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.facts import CircuitChanged
from durable_retry.runtime import clock
from durable_retry.telemetry.facts import subscribe
from entities.circuit_breaker import CircuitBreaker
from tests.support.builders import after
from tests.support.circuit import BUDGET, SETTINGS, Desk

KEY = "customer/17 ü"
HOUR = 3_600


def run(operation: str, message: dict[str, Any], state: Any, at: float, key: str) -> EntityTestResult:
    harden_runtime()
    with clock.reading(lambda: after(at)):
        return execute_entity(
            CircuitBreaker, operation, message, state, entity_name=CIRCUIT_BREAKER, entity_key=key
        )


def of_key(operation: str, message: dict[str, Any], state: Any, at: float) -> EntityTestResult:
    return run(operation, message, state, at, circuit_id("payments", KEY).key)


def failed() -> EntityTestResult:
    message = ReportMessage(Desk().report(0, failures=10), SETTINGS, BUDGET, KEY)
    return of_key(REPORT, message.to_json(), None, 0)


def signals(result: EntityTestResult) -> list[tuple[str, str, Any]]:
    made = [action for action in result.actions if isinstance(action, EntitySignalAction)]
    return [(each.entity_id.key, each.operation, each.get_input()) for each in made]


def test_a_change_of_state_names_the_key_and_reaches_the_dependencys_circuit() -> None:
    changes = list[CircuitChanged]()
    subscribe(CircuitChanged, changes.append)
    result = failed()
    assert signals(result) == [("payments", KEY_CHANGED, {"limit_key": KEY, "is_free": False})]
    assert [(each.dependency, each.limit_key, each.circuit) for each in changes] == [
        ("payments", KEY, f"payments for {KEY}")
    ]
    close = ManualAction(ManualControl.CLOSE, after(5), "ada", "renewed", limit_key=KEY)
    closed = of_key(MANUAL_CONTROL, close.to_json(), result.get_state(dict), 5)
    assert signals(closed) == [("payments", KEY_CHANGED, {"limit_key": KEY, "is_free": True})]


def test_a_pause_of_a_key_and_a_key_near_a_trip_reach_the_dependencys_circuit_once() -> None:
    desk = Desk()
    near_trip = desk.report(0, failures=5, successes=5)
    for report, is_free in ((desk.report(0, throttled_until=60), False), (near_trip, True)):
        settings = replace(SETTINGS, failure_ratio=1.0)
        message = ReportMessage(report, settings, BUDGET, KEY).to_json()
        first = of_key(REPORT, message, None, 0)
        assert signals(first) == [("payments", KEY_CHANGED, {"limit_key": KEY, "is_free": is_free})]
        more = replace(report, sequence=9)
        again = of_key(
            REPORT, replace(ReportMessage.from_json(message), report=more).to_json(), first.get_state(dict), 1
        )
        assert signals(again) == []
    lone = ReportMessage(desk.report(0, failures=1, successes=2), SETTINGS, BUDGET, KEY)
    assert signals(of_key(REPORT, lone.to_json(), None, 0)) == []


def test_a_pause_of_a_key_that_somebody_ends_reaches_the_dependencys_circuit() -> None:
    message = ReportMessage(Desk().report(0, throttled_until=HOUR), SETTINGS, BUDGET, KEY).to_json()
    reset = ManualAction(ManualControl.RESET, after(5), "ada", "a new quota", limit_key=KEY)
    ended = of_key(MANUAL_CONTROL, reset.to_json(), of_key(REPORT, message, None, 0).get_state(dict), 5)
    assert signals(ended) == [("payments", KEY_CHANGED, {"limit_key": KEY, "is_free": True})]


def test_the_dependencys_circuit_lists_the_key() -> None:
    opened = run(KEY_CHANGED, KeyChange(KEY, is_free=False).to_json(), None, 0, "payments")
    state = opened.get_state(dict)
    assert Breaker.from_json(state).keys == (KEY,)
    closed = run(KEY_CHANGED, KeyChange(KEY, is_free=True).to_json(), state, 1, "payments")
    assert Breaker.from_json(closed.get_state(dict)).keys == ()
    assert signals(closed) == []


def test_an_idle_circuit_of_a_key_is_forgotten_and_a_used_one_is_not() -> None:
    state = failed().get_state(dict)
    assert of_key(FORGET, {}, state, HOUR).get_state(dict) == state
    forgotten = of_key(FORGET, {}, state, HOUR + 1)
    assert forgotten.serialized_state in {None, json.dumps(None)}
    assert signals(forgotten) == [("payments", KEY_CHANGED, {"limit_key": KEY, "is_free": True})]


def test_the_circuit_of_a_dependency_is_never_forgotten() -> None:
    message = ReportMessage(Desk().report(0, failures=1), SETTINGS, BUDGET)
    state = run(REPORT, message.to_json(), None, 0, "payments").get_state(dict)
    assert run(FORGET, {}, state, 9 * HOUR, "payments").get_state(dict) == state


def test_entities_of_keys_have_ids_that_any_key_fits() -> None:
    ids = {circuit_id("payments", key).key for key in (KEY, "a" * 255, "\ud800", "#?\\@")}
    assert len(ids) == 4
    assert all(each.startswith("payments~") and len(each) < 60 and each.isascii() for each in ids)
