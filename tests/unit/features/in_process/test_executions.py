import json
from collections.abc import AsyncIterator, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest
from durabletask import task
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

import durable_retry
from tests.support.builders import NOON
from tests.support.executor import Instance, Orchestrator, end_of


def calling(context: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
    for _ in range(2):
        yield from durable_retry.call(context, dependency="payments", request={"path": "/charges"})


def first_style(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    yield from durable_retry.call(context, dependency="payments", request={"path": "/charges"})


def called_by(actions: list[pb.OrchestratorAction]) -> str:
    (call,) = [each.createSubOrchestration for each in actions]
    return call.instanceId


@pytest.mark.parametrize("orchestrator", [calling, first_style])
def test_each_execution_of_an_instance_calls_operations_of_its_own(orchestrator: Orchestrator) -> None:
    """The ids of children repeat when their parent continues as new."""
    asked = [called_by(Instance(orchestrator).begin(execution=each)) for each in ("e-1", "e-1", "e-2")]
    assert asked[0] == asked[1] != asked[2]


def test_a_call_has_the_same_id_in_every_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance(calling)
    (first,) = instance.begin()
    created = pb.SubOrchestrationInstanceCreatedEvent(name="call_operation")
    result = helpers.get_string_value(json.dumps({"document": {"status": "succeeded", "result": 1}}))
    ended = pb.SubOrchestrationInstanceCompletedEvent(taskScheduledId=1, result=result)
    instance.past.append(pb.HistoryEvent(eventId=1, subOrchestrationInstanceCreated=created))
    monkeypatch.setattr("tests.support.executor.NOON", NOON + timedelta(hours=1))
    (second,) = instance.go_on(pb.HistoryEvent(eventId=-1, subOrchestrationInstanceCompleted=ended))
    assert first.createSubOrchestration.instanceId != second.createSubOrchestration.instanceId
    again = Instance(calling)
    again.past = instance.past[:3]
    (replayed,) = again.go_on(pb.HistoryEvent(eventId=-1, subOrchestrationInstanceCompleted=ended))
    assert replayed.createSubOrchestration.instanceId == second.createSubOrchestration.instanceId


def child(ctx: task.OrchestrationContext, _input: Any) -> Generator[Any, Any, Any]:
    return (yield ctx.call_activity("first"))


def first_of_all(ctx: task.OrchestrationContext, given: Any) -> Generator[Any, Any, Any]:
    return (yield child(ctx, given))


def behind_a_task(ctx: task.OrchestrationContext, given: Any) -> Generator[Any, Any, Any]:
    yield ctx.call_activity("first")
    return (yield from first_of_all(ctx, given))


def adapted(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    return (yield child(context, None))  # type: ignore[arg-type]


async def awaiting(_ctx: task.OrchestrationContext, _input: Any) -> int:
    return 1


async def awaiting_and_yielding(_ctx: task.OrchestrationContext, _input: Any) -> AsyncIterator[int]:
    yield 2


def line_of(text: str) -> int:
    return Path(__file__).read_text().split(f"    {text}")[0].count("\n") + 1


@pytest.mark.parametrize("orchestrator", [first_of_all, behind_a_task, adapted])
def test_an_orchestrator_that_yields_no_task_fails_with_the_line_and_what_to_write(
    orchestrator: Orchestrator,
) -> None:
    instance = Instance(orchestrator)
    actions = instance.begin()
    if orchestrator is behind_a_task:
        scheduled = helpers.new_task_scheduled_event(1, "first")
        actions = instance.go_on(scheduled, helpers.new_task_completed_event(1, "1"))
    ends = {"adapted": "ontext"}
    line = line_of("return (yield child(c" + ends.get(orchestrator.__name__, "tx"))
    assert end_of(actions) == (
        f"FAILED: {__file__}:{line}: the orchestrator yielded something that is no task: write "
        "`yield from durable_retry.call(...)`, and a plain `yield` for the tasks of its context"
    )


@pytest.mark.parametrize(
    ("orchestrator", "body"), [(awaiting, "return 1"), (awaiting_and_yielding, "yield 2")]
)
def test_an_async_orchestrator_fails_with_its_line_and_what_to_write(
    orchestrator: Orchestrator, body: str
) -> None:
    line = line_of(body) - 1
    assert end_of(Instance(orchestrator).begin()) == (
        f"FAILED: {__file__}:{line}: the orchestrator is an `async def`: write `def`, "
        "`yield` for `await`, and `yield from durable_retry.call(...)`"
    )
