import json
from dataclasses import replace
from typing import Any

import pytest
from azure.durable_functions.testing import EntitySignalAction, EntityTestResult, execute_entity

from durable_retry import clock
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.names import CIRCUIT_BREAKER, CIRCUIT_OPENINGS, MANUAL_CONTROL, PERMIT, REPORT
from durable_retry.engine.circuit.breaker import ManualControl, breaker_from_json
from durable_retry.engine.circuit.messages import (
    ManualControlMessage,
    PermitMessage,
    ReportMessage,
    answer_from_json,
)
from durable_retry.engine.circuit.openings import Opening, Openings
from durable_retry.engine.circuit.report import CallHealth, LastFailure, ProbeResult
from durable_retry.engine.circuit.snapshot import Permitted, Refused
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.circuit.transitions import ManualAction, ProbeRequest
from entities.circuit_breaker import CircuitBreaker, CircuitOpenings, blueprint
from tests.support.builders import after
from tests.support.circuit import BUDGET, SETTINGS, Desk


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
        self.desk.breaker = breaker_from_json(result.get_state(dict))
        return result

    def fail(self, at: float, failures: int) -> None:
        report = self.desk.report(at, failures=failures)
        self.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), at)

    def ask(self, at: float) -> Permitted | Refused:
        message = PermitMessage(ProbeRequest("op-1", 2, after(at), 15), SETTINGS)
        document = self.run(PERMIT, message.to_json(), at).get_result(dict)
        assert document is not None
        return answer_from_json(document)

    def conclude(self, at: float, answer: Permitted, verdict: CallHealth) -> None:
        assert answer.lease_id is not None
        result = ProbeResult(answer.lease_id, answer.epoch, verdict)
        report = self.desk.report(at, probes=(result,))
        self.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), at)

    def control(self, at: float, control: ManualControl, for_seconds: float | None = None) -> None:
        action = ManualAction(control, after(at), "ana", "drill", for_seconds)
        self.run(MANUAL_CONTROL, ManualControlMessage(action).to_json(), at)


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
    answer = entity.ask(30)
    assert isinstance(answer, Permitted)
    entity.conclude(31, answer, CallHealth.FAILURE)
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


def test_a_machine_with_a_fast_clock_ends_no_pause_and_no_break() -> None:
    """The machine of the worker, not that of the entity, whose clock the circuit goes by."""
    entity = Entity()
    throttled = entity.desk.report(0, throttled_until=15)
    entity.run(REPORT, ReportMessage(throttled, SETTINGS, BUDGET).to_json(), 0)
    fast = entity.desk.report(21, failures=10, reporter="w2")
    entity.run(REPORT, ReportMessage(fast, SETTINGS, BUDGET).to_json(), 1)
    assert entity.desk.breaker.clock == after(1)
    assert entity.desk.breaker.throttled_until == after(15)
    assert entity.desk.breaker.retry_at == after(31)


def test_a_pause_lasts_as_long_as_the_dependency_asked_whatever_the_clocks() -> None:
    entity = Entity()
    slow = entity.desk.report(-20, throttled_until=-5)
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


class Archive:
    """The entity beside the circuit; each of its signals arrives twice."""

    def __init__(self) -> None:
        self.state: str | None = None

    def take(self, result: EntityTestResult) -> None:
        for action in [*result.actions, *result.actions]:
            assert isinstance(action, EntitySignalAction)
            assert str(action.entity_id) == f"@{CIRCUIT_OPENINGS}@payments"
            kept = execute_entity(
                CircuitOpenings,
                action.operation,
                action.get_input(dict),
                None if self.state is None else json.loads(self.state),
                entity_name=CIRCUIT_OPENINGS,
                entity_key="payments",
            )
            self.state = kept.serialized_state

    def view(self) -> list[dict[str, Any]]:
        kept = Openings() if self.state is None else Openings.from_json(json.loads(self.state))
        shown: list[dict[str, Any]] = Page[Opening](items=kept.items[::-1]).to_json()["items"]
        return shown


def test_every_opening_is_kept_once_with_its_evidence() -> None:
    entity, archive = Entity(), Archive()
    report = replace(
        entity.desk.report(0, failures=10, successes=2), last_failure=LastFailure("transient", "status 503")
    )
    archive.take(entity.run(REPORT, ReportMessage(report, SETTINGS, BUDGET).to_json(), 0))
    answer = entity.ask(30)
    assert isinstance(answer, Permitted)
    assert answer.lease_id is not None
    probe = ProbeResult(answer.lease_id, answer.epoch, CallHealth.FAILURE)
    again = entity.desk.report(31, probes=(probe,))
    archive.take(entity.run(REPORT, ReportMessage(again, SETTINGS, BUDGET).to_json(), 31))
    action = ManualAction(ManualControl.OPEN, after(40), "ana", "drill", 600)
    archive.take(entity.run(MANUAL_CONTROL, ManualControlMessage(action).to_json(), 40))
    by_hand, probed, tripped = archive.view()
    assert (tripped["calls"], tripped["failures"], tripped["failure_ratio"]) == (12, 10, 0.8333)
    assert (tripped["last_category"], tripped["last_error"]) == ("transient", "status 503")
    assert (tripped["at"], tripped["break_seconds"]) == (to_rfc3339(after(0)), 30.0)
    assert (probed["reason"], probed["break_seconds"], probed["calls"]) == ("a probe failed", 60.0, 0)
    assert probed["last_error"] is None
    assert (by_hand["state"], by_hand["by"], by_hand["reason"]) == ("forced_open", "ana", "drill")
    assert by_hand["break_seconds"] == 600.0


def test_a_message_that_opens_nothing_tells_the_archive_nothing() -> None:
    entity = Entity()
    quiet = ReportMessage(entity.desk.report(0, failures=1), SETTINGS, BUDGET)
    assert entity.run(REPORT, quiet.to_json(), 0).actions == ()
    entity.control(1, ManualControl.OPEN)
    closing = ManualAction(ManualControl.CLOSE, after(2), "ana", "done", None)
    assert entity.run(MANUAL_CONTROL, ManualControlMessage(closing).to_json(), 2).actions == ()
    assert entity.desk.breaker.state is CircuitState.CLOSED
