"""What a worker may rely on, of the entity in a task hub and of the fake in memory alike."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.circuit.cache import circuit_of, close_circuits
from durable_retry.circuit.circuits import held_keys
from durable_retry.circuit.entity import CircuitEntity, SharedCircuit
from durable_retry.features.key_circuits.upkeep import forget_idle_circuits
from durable_retry.rules.circuit import breaker as breaker_rules
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.settings.configuration import using
from scripts.processes import free_port
from tests.support.azurite import Storage
from tests.support.builders import NOON
from tests.support.circuit import BUDGET, SETTINGS, Desk
from tests.support.hub import TaskHubStage, binding_for
from tests.support.shared_circuit import CircuitInMemory

WAIT_SECONDS = 10


def present() -> float:
    """The present in the seconds that the desk counts in; what is older than a minute is old."""
    return (datetime.now(UTC) - NOON).total_seconds()


async def until(shared: SharedCircuit, holds: Callable[[Breaker], bool]) -> Breaker:
    """Read until something holds: a signal is taken in a moment after it was sent."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds(breaker := await shared.read()):  # noqa: ASYNC110 # asks another process
            await asyncio.sleep(0.02)
    return breaker


@pytest.fixture(params=["entity", "in memory"])
async def shared(request: pytest.FixtureRequest, task_hub: TaskHubStage) -> SharedCircuit:
    return (
        CircuitEntity(task_hub.binding, "payments")
        if request.param == "entity"
        else CircuitInMemory(now=lambda: datetime.now(UTC))
    )


@pytest.fixture(params=["entity", "in memory"])
async def unreachable(request: pytest.FixtureRequest) -> SharedCircuit:
    return (
        CircuitEntity(binding_for(free_port()), "x")
        if request.param == "entity"
        else CircuitInMemory(is_down=True)
    )


async def test_a_circuit_without_reports_is_new(shared: SharedCircuit) -> None:
    assert await shared.read() == Breaker()


async def test_what_is_reported_is_read(shared: SharedCircuit) -> None:
    await shared.report(ReportMessage(Desk().report(present(), failures=10), SETTINGS, BUDGET))
    breaker = await until(shared, lambda seen: seen.state is CircuitState.OPEN)
    assert breaker.reason == "10 of 10 calls in 30 s failed"


async def test_the_same_report_sent_twice_counts_once(shared: SharedCircuit) -> None:
    desk = Desk()
    first, second = desk.report(present(), failures=3), desk.report(present(), failures=1)
    for report in (first, first, second):
        await shared.report(ReportMessage(report, SETTINGS, BUDGET))
    breaker = await until(shared, lambda seen: seen.reporters.highest("w1") == 2)
    assert breaker.window.everything().failures == 4


async def test_a_task_hub_that_does_not_answer_is_unavailable(unreachable: SharedCircuit) -> None:
    with pytest.raises(TaskHubUnavailableError):
        await unreachable.read()
    with pytest.raises(TaskHubUnavailableError):
        await unreachable.report(ReportMessage(Desk().report(0), SETTINGS, BUDGET))


async def test_a_manual_control_is_taken_by_signal(task_hub: TaskHubStage) -> None:
    entity = CircuitEntity(task_hub.binding, "payments")
    await entity.control(ManualAction(ManualControl.OPEN, NOON, "ada", "maintenance"))
    breaker = await until(entity, lambda seen: seen.state is CircuitState.FORCED_OPEN)
    assert (breaker.changed_by, breaker.reason) == ("ada", "maintenance")


async def test_a_process_keeps_one_copy_per_dependency_with_a_name_of_its_own(task_hub: TaskHubStage) -> None:
    dependency = Dependency(name="payments", base_url="http://127.0.0.1:9")
    copy = circuit_of(task_hub.binding, dependency)
    assert circuit_of(task_hub.binding, dependency) is copy
    assert len(copy.buffer.reporter) == 32
    close_circuits()
    assert circuit_of(task_hub.binding, dependency).buffer.reporter != copy.buffer.reporter
    close_circuits()


async def test_the_circuits_of_limit_keys_are_listed_while_open_and_forgotten_when_idle(
    task_hub: TaskHubStage, own_tables: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_tables
    hub, failures = task_hub.binding, {"customer 17/ü": 10, "b": 1}
    entities = {key: CircuitEntity(hub, "payments", key) for key in failures}
    for key, entity in entities.items():
        report = Desk().report(present(), failures=failures[key])
        await entity.report(ReportMessage(report, SETTINGS, BUDGET, key))
        await until(entity, lambda seen: seen.clock is not None)
    whole = await until(CircuitEntity(hub, "payments"), lambda seen: seen.keys is not None)
    assert [each.limit_key for each in await held_keys(hub, by_key("payments"), whole)] == ["customer 17/ü"]
    assert await held_keys(hub, Dependency(name="payments"), whole) == []  # the setting was taken back

    monkeypatch.setattr(breaker_rules, "IDLE_AFTER", timedelta())
    with using(Config({name: by_key(name) for name in ("pay", "payments")})):
        await forget_idle_circuits(hub, datetime.now(UTC))
    await until(entities["b"], lambda seen: seen == Breaker())
    assert (await entities["customer 17/ü"].read()).state is CircuitState.OPEN


def by_key(name: str) -> Dependency:
    return Dependency(name=name, circuit=CircuitSettings(by="limit_key"))
