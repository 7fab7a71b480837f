"""An unsafe change of an orchestrator beside the old code: operations of both in every state, and back."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any, Final

import pytest

from durable_retry.base.names import OPERATION
from durable_retry.hub import task_hub as hub
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.runtime import clock
from orchestrators import operation as orchestrator
from tests.replay.with_a_wait import with_a_wait
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing

CHANGED: Final = "operation_2"
WAIT_SECONDS: Final = 4.0
STATES: Final = ("retry", "circuit", "attempt")


class Dependency:
    """Answers by the state that an operation is to be in, which is the last part of its id."""

    def __init__(self) -> None:
        self.goes_on = Event()
        self.refused: set[str] = set()
        self.under_way: set[str] = set()

    def __call__(self, name: str, given: dict[str, Any]) -> Any:
        operation_id = given["operation"]["operation_id"]
        state = operation_id.rpartition("-")[2]
        if state == "circuit" and operation_id not in self.refused:
            self.refused.add(operation_id)
            base = clock.now() + timedelta(seconds=WAIT_SECONDS)
            return {"stopped": Refused(base, 0, base, "open").to_json()}
        if state == "attempt":
            self.under_way.add(operation_id)
            assert self.goes_on.wait(30)
        return failing(1 if state == "retry" else 0)(name, given)


@pytest.fixture
def stage() -> Iterator[TaskHubStage]:
    """A worker that has the old orchestrator and the changed one."""
    with task_hub_stage(instead={CHANGED: with_a_wait(orchestrator.operation)}) as running:
        yield running


def operation_in(state: str, number: int) -> OperationInput:
    policy = RetryPolicy(strategy="fixed", initial_seconds=WAIT_SECONDS, jitter="none")
    base = an_operation(operation_id=f"op-{number}-{state}", policy=policy)
    return replace(base, deadline_at=clock.now() + timedelta(hours=1))


async def is_there(stage: TaskHubStage, dependency: Dependency, operation: OperationInput) -> bool:
    """Whether an operation is in the state of its name."""
    instance = existing(await stage.binding.read_instance(operation.operation_id))
    state = operation.operation_id.rpartition("-")[2]
    shown = (instance.custom_status or {}).get("status")
    if state == "attempt":
        return operation.operation_id in dependency.under_way
    return shown == f"waiting_{state}"


async def test_old_and_new_operations_end_side_by_side_and_so_after_the_way_back(
    stage: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependency = Dependency()
    stage.answer = dependency
    started: list[tuple[str, OperationInput]] = []
    for number, name in enumerate((OPERATION, CHANGED, OPERATION)):
        monkeypatch.setattr(hub, "STARTED_OPERATION", name)
        batch = [operation_in(state, number) for state in STATES]
        for operation in batch:
            assert await stage.binding.start_operation(operation)
        for operation in batch:
            async with asyncio.timeout(60):
                while not await is_there(stage, dependency, operation):  # noqa: ASYNC110 # asks over gRPC
                    await asyncio.sleep(0.05)
        started += [(name, operation) for operation in batch]
    dependency.goes_on.set()
    client = await stage.binding.client()
    for name, operation in started:
        instance = await stage.binding.wait_for_end(operation.operation_id, 30)
        state = await client.get_orchestration_state(operation.operation_id)
        assert instance is not None
        assert (existing(state).name, (instance.output or {})["status"]) == (name, "succeeded"), instance
    await hub.close_clients()
