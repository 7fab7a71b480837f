import json
from dataclasses import replace
from typing import Any

import pytest
from azure.durable_functions.testing import EntityTestResult, execute_entity

from durable_retry.base.json_forms import union_from_json
from durable_retry.base.names import CIRCUIT_BREAKER, FREEZE, MANUAL_CONTROL, PERMIT, REPORT
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth, ProbeResult
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.messages import PermitAnswer, PermitMessage, ReportMessage
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.circuit.transitions import ManualAction, ProbeRequest
from durable_retry.rules.facts import CircuitChanged, DependencyPaused
from durable_retry.runtime import clock
from durable_retry.telemetry.facts import subscribe
from entities.circuit_breaker import CircuitBreaker, blueprint
from tests.support.builders import after
from tests.support.circuit import BUDGET, SETTINGS, Desk
from tests.support.narrowing import existing, of_type


class Entity:
    """One entity, its state carried from operation to operation as the task hub does: as text."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.desk = Desk()

    def run(self, operation: str, message: dict[str, Any], at: float = 0) -> EntityTestResult:
        stored = None if self.state is None else json.loads(self.state)
        with clock.reading(lambda: after(at)):
            result = execute_entity(
                CircuitBreaker, operation, message, stored, entity_name=CIRCUIT_BREAKER, entity_key="payments"
            )
        self.state = result.serialized_state
        self.desk.breaker = Breaker.from_json(result.get_state(dict) or {})
        return result

    def fail(self, at: float, failures: int) -> None:
        report = self.desk.report(at, failures=failures)
        self.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), at)

    def ask(self, at: float) -> Permitted | Refused:
        message = PermitMessage(ProbeRequest("op-1", 2, after(at), 15), SETTINGS)
        document = existing(self.run(PERMIT, message.to_json(), at).get_result(dict))
        answer: PermitAnswer = union_from_json(PermitAnswer, document)
        return answer

    def conclude(self, at: float, answer: Permitted, verdict: CallHealth) -> None:
        assert answer.lease_id is not None
        result = ProbeResult(answer.lease_id, answer.epoch, verdict, answer.lease_expires_at)
        report = self.desk.report(at, probes=(result,))
        self.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), at)

    def control(self, at: float, control: ManualControl, for_seconds: float | None = None) -> None:
        action = ManualAction(control, after(at), "ana", "drill", for_seconds)
        self.run(MANUAL_CONTROL, action.to_json(), at)


def test_it_trips_is_probed_and_closes() -> None:
    entity = Entity()
    entity.fail(0, 10)
    assert entity.desk.breaker.opened_at == after(0)
    assert isinstance(entity.ask(10), Refused)
    answer = entity.ask(30)
    assert answer == Permitted(epoch=3, lease_id="op-1:2", lease_expires_at=after(45))
    entity.conclude(31, answer, CallHealth.SUCCESS)
    assert entity.desk.breaker.state is CircuitState.CLOSED


def test_a_failed_probe_makes_the_break_longer() -> None:
    entity = Entity()
    entity.fail(0, 10)
    entity.conclude(31, of_type(Permitted, entity.ask(30)), CallHealth.FAILURE)
    assert entity.desk.breaker.retry_at == after(91)


@pytest.mark.parametrize(
    ("control", "state"),
    [
        (ManualControl.OPEN, CircuitState.FORCED_OPEN),
        (ManualControl.CLOSE, CircuitState.CLOSED),
        (ManualControl.DISABLE, CircuitState.DISABLED),
        (ManualControl.RESET, CircuitState.CLOSED),
    ],
)
def test_manual_controls_are_obeyed_and_noted(control: ManualControl, state: CircuitState) -> None:
    entity = Entity()
    entity.control(0, control, 60)
    assert entity.desk.breaker.state is state
    assert [entry.by for entry in entity.desk.breaker.audit.entries] == ["ana"]


def test_signals_answer_nothing_and_start_nothing() -> None:
    entity = Entity()
    report = entity.desk.report(0, failures=1)
    result = entity.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json())
    assert result.serialized_result is None
    assert result.actions == ()


@pytest.mark.shows("P7")
def test_a_machine_with_a_fast_clock_ends_no_pause_and_no_break() -> None:
    """The machine of the worker, not that of the entity, whose clock the circuit goes by."""
    entity = Entity()
    throttled = entity.desk.report(0, throttled_until=15)
    entity.run(REPORT, ReportMessage(throttled, SETTINGS, BUDGET).to_json(), 0)
    fast = entity.desk.report(3, failures=10, reporter="w2")
    entity.run(REPORT, ReportMessage(fast, SETTINGS, BUDGET).to_json(), 1)
    assert entity.desk.breaker.clock == after(1)
    assert entity.desk.breaker.throttled_until == after(15)
    assert entity.desk.breaker.retry_at == after(31)


def test_a_pause_lasts_as_long_as_the_dependency_asked_whatever_the_clocks() -> None:
    entity = Entity()
    slow = entity.desk.report(-2, throttled_until=13)
    entity.run(REPORT, ReportMessage(slow, SETTINGS, BUDGET).to_json(), 0)
    assert entity.desk.breaker.throttled_until == after(15)


def test_a_message_that_cannot_be_read_leaves_the_state_alone() -> None:
    entity = Entity()
    entity.fail(0, 3)
    before = entity.state
    with pytest.raises(ValueError, match="no stored Report"):
        entity.run(REPORT, {"report": {}})
    assert entity.state == before


def test_its_durable_name_is_circuit_breaker() -> None:
    assert CIRCUIT_BREAKER == "circuit_breaker"
    functions = {function.get_function_name(): function for function in blueprint_functions()}
    trigger = functions[CIRCUIT_BREAKER].get_trigger()
    assert trigger.get_dict_repr()["entityName"] == CIRCUIT_BREAKER


def blueprint_functions() -> list[Any]:
    """The functions that this blueprint registers, the SDK's own left out."""
    built = [builder._function for builder in blueprint._function_builders]
    return [function for function in built if not str(function._name).startswith("BuiltIn__")]


def test_an_opening_is_reported_with_its_evidence() -> None:
    entity, changes = Entity(), list[CircuitChanged]()
    subscribe(CircuitChanged, changes.append)
    report = replace(entity.desk.report(0, failures=10, successes=2), last_error="503: no backend")
    entity.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), 0)
    entity.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), 0)  # a signal may arrive twice
    entity.conclude(31, of_type(Permitted, entity.ask(30)), CallHealth.FAILURE)
    entity.control(40, ManualControl.OPEN, 600)
    assert [(each.after, each.evidence, each.by) for each in changes] == [
        ("open", "10 of 12 calls in 30 s failed; the last error: 503: no backend", "circuit"),
        ("half_open", "the break is over; the last error: 503: no backend", "circuit"),
        ("open", "a probe failed; the last error: 503: no backend", "circuit"),
        ("forced_open", "drill; the last error: 503: no backend", "ana"),
    ]


def test_every_change_of_an_outage_says_when_it_began_and_how_many_probes_failed_since() -> None:
    entity, changes = Entity(), list[CircuitChanged]()
    subscribe(CircuitChanged, changes.append)
    entity.fail(0, 10)
    for at, health in ((30, CallHealth.FAILURE), (100, CallHealth.SUCCESS)):
        entity.conclude(at + 1, of_type(Permitted, entity.ask(at)), health)
    entity.control(200, ManualControl.DISABLE)
    assert [(each.after, each.opened_at, each.failed_probes) for each in changes] == [
        ("open", after(0), 0),
        ("half_open", after(0), 0),
        ("open", after(0), 1),
        ("half_open", after(0), 1),
        ("closed", after(0), 1),
        ("disabled", None, 0),
    ]
    assert changes[-2].evidence == "1 probe got through"


def test_a_message_that_changes_no_state_is_not_reported() -> None:
    entity, changes = Entity(), list[CircuitChanged]()
    subscribe(CircuitChanged, changes.append)
    entity.fail(0, 1)
    assert not changes


def test_a_freeze_is_stored_beside_the_state_and_is_no_change_of_it() -> None:
    entity, changes = Entity(), list[CircuitChanged]()
    subscribe(CircuitChanged, changes.append)
    entity.run(FREEZE, Freeze(after(0), after(0), "ana", "drill").to_json())
    assert entity.desk.breaker.freeze == Freeze(after(0), after(0), "ana", "drill")
    assert (entity.desk.breaker.state, changes) == (CircuitState.CLOSED, [])


def test_a_pause_is_reported_with_its_begin_when_it_gets_longer_and_when_somebody_ends_it() -> None:
    entity, pauses = Entity(), list[DependencyPaused]()
    subscribe(DependencyPaused, pauses.append)
    for at, until in ((0, 1_800), (1, 1_700), (2, 1_900)):
        report = replace(entity.desk.report(at, throttled_until=until), throttled_by="429")
        entity.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), at)
    entity.control(60, ManualControl.CLOSE)
    entity.control(300, ManualControl.RESET)
    entity.control(400, ManualControl.RESET)
    assert [(each.since, each.until) for each in pauses] == [
        (after(0), after(1_800)),
        (after(0), after(1_900)),
        (after(0), after(300)),
    ]
    assert {(each.dependency, each.by, each.limit_key) for each in pauses} == {("payments", "429", None)}
