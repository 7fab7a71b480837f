"""Two restarts of one saga, one of which is held up while the other runs: what is past runs nothing."""

import asyncio
from random import Random
from typing import Any

import pytest

from activities.workflows import begin_restart, end_restart, submit
from durable_retry.base.names import Category, OperationState
from durable_retry.features.workflows import saga_store as sagas
from durable_retry.features.workflows.rules.restart import RestartBody, restarted
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.features.workflows.saga_store import (
    LatestRestart,
    RestartedElsewhereError,
    RestartStage,
    latest_restart,
    write_restart,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.storage import clients as storage_clients
from orchestrators.saga import saga
from tests.fault.app.workflow_items import PartHub
from tests.support.builders import NOON, an_operation
from tests.support.cuts import Cuts, Mode, PartStage, Turns, on_the_clock_of
from tests.support.tables import TablesInMemory

NAMES = ("reserve", "charge", "ship")


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)


class Runs:
    """The runs of a saga whose first step was undone since the second was refused."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.hub = PartHub(self._fate, Random(1))  # noqa: S311 - a seeded simulation
        done = Completion(operation_id="x", status=OperationState.SUCCEEDED, attempt_count=1)
        refused = Completion(
            operation_id="x",
            status=OperationState.DEAD_LETTERED,
            category=Category.BUSINESS_RULE,
            attempt_count=1,
        )
        ends = [(done, done), (refused, None), (None, None)]
        steps = [
            SagaStep(
                name=name,
                operation=an_operation(operation_id=f"op-do-{name}", key=f"do-{name}"),
                compensation=an_operation(operation_id=f"op-undo-{name}", key=f"undo-{name}"),
            ).ended(*each)
            for name, each in zip(NAMES, ends, strict=True)
        ]
        self.failed = Saga(saga_id="saga-1", created_at=NOON, steps=tuple(steps))

    def _fate(self, operation: OperationInput) -> OperationState:
        fails = self.fails and operation.key.endswith(f"do.{self.fails}")
        return OperationState.DEAD_LETTERED if fails else OperationState.SUCCEEDED

    def restart(self, by: str) -> dict[str, Any]:
        """Return the input of a restart's run."""
        again = restarted(self.failed, RestartBody(), NOON, by)
        return {"saga": again.to_json(), "restart": by}

    def write(self, by: str, before: LatestRestart | None) -> None:
        """Write a restart down in place of the one that was read; who asks is its token."""
        asyncio.run(write_restart(Saga.from_json(self.restart(by)["saga"]), by, before))

    def run(self, by: str) -> dict[str, Any]:
        """Play the run that a restart starts to its end, each activity twice, and return its document."""
        activities: dict[str, Any] = {
            "submit": lambda given: submit(given, TaskHub("hub")),
            "begin_restart": begin_restart,
            "end_restart": end_restart,
        }
        stage = PartStage(saga, "saga-1", self.restart(by), Turns(activities, twice=True).answer)
        stage.before_turn = lambda _: self.hub.move_on(stage)
        with self.hub.in_place(), on_the_clock_of(stage):
            document: dict[str, Any] = stage.run()
        return document


@pytest.mark.parametrize("fails", ["", "charge"])
def test_a_start_after_the_whole_run_of_a_later_restart_leaves_what_became_of_that(fails: str) -> None:
    runs = Runs(fails)
    runs.write("late", None)
    runs.write("other", LatestRestart(token="late"))
    document = runs.run("other")
    assert (document["restarts"][-1]["by"], document["status"]) == (
        "other",
        "compensated" if fails else "succeeded",
    )
    started = list(runs.hub.started)
    runs.fails = ""  # Somebody has replayed the dead letter of the step since, and it succeeded.
    assert settled(runs.run("late")) == settled(document)
    assert runs.hub.started == started


def test_a_run_that_an_earlier_restart_started_runs_the_latest_one() -> None:
    runs = Runs()
    runs.write("early", None)
    runs.write("latest", LatestRestart(token="early"))
    document = runs.run("early")
    assert [restart["by"] for restart in document["restarts"]] == ["latest"]
    assert asyncio.run(latest_restart("saga-1")) == LatestRestart(token="latest", stage=RestartStage.ENDED)


def test_who_read_the_saga_before_another_restart_was_written_or_began_writes_none() -> None:
    runs = Runs()
    runs.write("first", None)
    with pytest.raises(RestartedElsewhereError):
        runs.write("second", None)
    seen = LatestRestart(token="first")
    asyncio.run(begin_restart({"saga_id": "saga-1", "restart": "first"}))
    with pytest.raises(RestartedElsewhereError):
        runs.write("second", seen)
    runs.write("first", None)  # An answer was lost.
    document = runs.run("first")
    assert document["status"] == "succeeded"
    with pytest.raises(RestartedElsewhereError):
        runs.write("second", seen)


def test_a_run_whose_end_comes_after_a_later_restart_leaves_that() -> None:
    runs = Runs()
    runs.write("first", None)
    runs.run("first")
    runs.write("second", asyncio.run(latest_restart("saga-1")))
    given = {"saga_id": "saga-1", "restart": "first", "saga": runs.failed.to_json()}
    asyncio.run(end_restart(given))
    assert asyncio.run(latest_restart("saga-1")) == LatestRestart(token="second")


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_run_that_is_cut_at_any_of_its_writes_goes_on(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, place = Runs().run("only")["status"], 1
    while True:
        account = TablesInMemory()
        monkeypatch.setattr(storage_clients, "table_service", lambda account=account: account)
        runs, cuts = Runs(), Cuts(at=place, mode=mode)
        runs.write("first", None)
        with cuts.in_place():
            assert runs.run("first")["status"] == expected
        assert asyncio.run(latest_restart("saga-1")) == LatestRestart(token="first", stage=RestartStage.ENDED)
        if cuts.missed:
            break
        place += 1
    assert place > 2 * len(("begin_restart", "end_restart"))  # Each reads and writes its row at least.


def test_a_saga_of_any_size_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagas, "_PART_CHARS", 100)
    runs = Runs()
    runs.write("early", None)
    runs.write("latest", LatestRestart(token="early"))
    assert runs.run("early")["status"] == "succeeded"


def test_a_run_of_which_nothing_is_written_runs_what_it_was_started_with() -> None:
    assert Runs().run("only")["restarts"][-1]["by"] == "only"


def settled(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without the instant at which it was made."""
    return {name: value for name, value in document.items() if name != "updated_at"}
