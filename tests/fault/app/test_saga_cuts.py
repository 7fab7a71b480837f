"""Sagas whose starts are cut short, and whose reports come late, twice or never: each seed is one life.

Whatever happens, every operation is started once, in order, and the saga says what became of each.
A failing seed is in the test's name.
"""

from random import Random
from typing import Any

import pytest
from durabletask.client import OrchestrationStatus

from activities.workflows import submit
from durable_retry.base.names import Category, OperationState
from durable_retry.features.workflows.rules.document import saga_document
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.features.workflows.saga_store import document_of_saga, saga_progress
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import MAX_BYTES, size_bytes
from orchestrators.saga import saga
from tests.fault.app.workflow_items import PartHub
from tests.support.builders import NOON, an_operation
from tests.support.cuts import PartStage, Turns, on_the_clock_of


def part(name: str) -> OperationInput:
    return an_operation(operation_id=f"op-{name}", key=name)


def a_saga(steps: int) -> Saga:
    return Saga(
        saga_id="saga-1",
        created_at=NOON,
        steps=tuple(
            SagaStep(name=f"s{at}", operation=part(f"do-{at}"), compensation=part(f"undo-{at}"))
            for at in range(steps)
        ),
    )


def lived(seed: int, fails_at: int | None) -> tuple[dict[str, Any], PartHub, PartStage]:
    rng = Random(seed)  # noqa: S311 - a seeded simulation

    def fate(operation: OperationInput) -> OperationState:
        failed = operation.key == f"do-{fails_at}"
        return OperationState.DEAD_LETTERED if failed else OperationState.SUCCEEDED

    hub = PartHub(fate, rng, cut_ratio=0.2)
    steps = Turns({"submit": lambda given: submit(given, TaskHub("hub"))}, twice=seed % 3 == 0)
    stage = PartStage(saga, "saga-1", {"saga": a_saga(6).to_json()}, steps.answer)
    stage.before_turn = lambda _: hub.move_on(stage)
    with hub.in_place(), on_the_clock_of(stage):
        document = stage.run()
    return document, hub, stage


@pytest.mark.parametrize("seed", range(40))
def test_a_saga_runs_every_step_once_in_order(seed: int) -> None:
    document, hub, _ = lived(seed, fails_at=None)
    assert document["status"] == "succeeded"
    assert hub.started == [f"do-{at}" for at in range(6)]
    assert hub.most_running == 1


@pytest.mark.parametrize("seed", range(40))
def test_a_saga_that_fails_undoes_what_was_done_once_last_first(seed: int) -> None:
    fails_at = seed % 6
    document, hub, _ = lived(seed, fails_at)
    done, undone = [f"do-{at}" for at in range(fails_at + 1)], [f"undo-{at}" for at in range(fails_at)]
    assert hub.started == [*done, *reversed(undone)]
    assert document["status"] == "compensated"
    assert document["undone"] == [f"s{at}" for at in range(fails_at)]
    assert (document["stands"], document["unknown"]) == ([], [])


def test_a_long_saga_keeps_a_short_history() -> None:
    hub = PartHub(lambda _: OperationState.SUCCEEDED, Random(1))  # noqa: S311 - a seeded simulation
    steps = Turns({"submit": lambda given: submit(given, TaskHub("hub"))})
    stage = PartStage(saga, "saga-1", {"saga": a_saga(50).to_json()}, steps.answer)
    stage.before_turn = lambda _: hub.move_on(stage)
    with hub.in_place(), on_the_clock_of(stage):
        document = stage.run()
    assert document["status"] == "succeeded"
    assert stage.executions > 2
    assert stage.longest_history < 250


def test_a_running_saga_shows_its_ends() -> None:
    hub_document, _, stage = lived(0, fails_at=5)
    assert [step["status"] for step in hub_document["steps"]][-1] == "dead_lettered"
    assert stage.custom_status["endings"][5][0]["status"] == "dead_lettered"


def test_a_custom_status_of_any_saga_fits_and_shows_the_state_of_every_step() -> None:
    """Fifty steps with results that others need, and compensations that all failed at length."""
    done = Completion(
        operation_id="op-" + "d" * 32,
        status=OperationState.SUCCEEDED,
        attempt_count=1_000,
        values={"/json": "x" * 5_000},
    )
    undone = Completion(
        operation_id="op-" + "u" * 32,
        status=OperationState.DEAD_LETTERED,
        category=Category.DEADLINE_EXCEEDED,
        attempt_count=1_000,
        error="e" * 300,
    )
    begun = a_saga(50)
    over = begun.with_steps(tuple(step.ended(done, undone) for step in begun.steps))
    status = saga_progress(over)
    assert size_bytes(status) <= MAX_BYTES
    instance = Instance(
        "saga-1", OrchestrationStatus.RUNNING, NOON, NOON, {"saga": begun.to_json()}, status, None
    )
    shown = document_of_saga(instance)
    assert [step.effect for step in shown.steps] == [step.effect for step in saga_document(over, NOON).steps]
    assert {step.compensation.status for step in shown.steps if step.compensation} == {"dead_lettered"}
