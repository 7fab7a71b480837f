"""Recorded histories of the `operation` orchestration, as files: protobuf in JSON.

    python -m tests.replay.recording          records every shape anew

Record anew only what a change is meant to break, and only when no operation of that shape can be running.
They were recorded on Microsoft's in-memory backend, with the SDK's own worker over gRPC.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict

from engine.budget import BudgetPostponed
from engine.circuit import CircuitSettings, Refused
from engine.gate import NeedsProbe, Stop, stop_to_json
from engine.operation import OperationInput
from engine.policy import RetryPolicy
from engine.vocabulary import Category
from stores import clock
from stores import task_hub as hub
from stores.waiting_operations import wake
from tests.operation_stage import Answer, an_operation, failing
from tests.task_hub_stage import TaskHubStage, task_hub_stage
from tools.processes import ROOT

FOLDER: Final = Path(__file__).parent / "histories"

_WAIT_SECONDS: Final = 60


@dataclass(frozen=True)
class Recording:
    """One execution of the orchestration, from its start to its completion.

    Attributes:
        shape: What happened in it.
        events: Its history without the last event, the completion.
        output: What it returned.
    """

    shape: str
    events: list[pb.HistoryEvent]
    output: Any


def load(shape: str) -> Recording:
    """Read a recording."""
    document = json.loads((FOLDER / f"{shape}.json").read_text(encoding="utf-8"))
    events = [ParseDict(event, pb.HistoryEvent()) for event in document["events"]]
    return Recording(shape, events, document["output"])


def shapes() -> list[str]:
    """Return the names of all recordings."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Shape:
    """How to bring an operation about."""

    operation: OperationInput
    answer: Answer
    steer: Callable[[TaskHubStage], Awaitable[None]] | None = None


def _quick(**changes: Any) -> OperationInput:
    policy = RetryPolicy(strategy="fixed", initial_seconds=0.05, jitter="none", max_attempts=30)
    return replace(an_operation(), policy=policy, deadline_at=clock.now() + timedelta(hours=1), **changes)


async def _cancel(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - the worker runs on threads of its own
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await hub.raise_event(stage.binding, "op-test", hub.CANCEL_EVENT, {})


async def _hurry(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await hub.raise_event(stage.binding, "op-test", hub.RETRY_NOW_EVENT, {"attempt": 2})


def _worker_failing_once() -> Answer:
    failures = iter([RuntimeError("the worker died")])

    def answer(name: str, given: dict[str, Any]) -> Any:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return failing(0)(name, given)

    return answer


def _held_up_once(stop: Callable[[], Stop], then: Answer) -> Answer:
    """Hold the first run of the attempt up, and no later one."""
    stops = iter([stop])

    def answer(name: str, given: dict[str, Any]) -> Any:
        held = next(stops, None) if name == "attempt" else None
        return then(name, given) if held is None else {"stopped": stop_to_json(held())}

    return answer


def _refused_for(seconds: float) -> Refused:
    base = clock.now() + timedelta(seconds=seconds)
    return Refused(base, 0, base, "the circuit is open: 10 of 10 calls in 30 s failed")


def _postponed() -> BudgetPostponed:
    return BudgetPostponed(clock.now() + timedelta(seconds=0.1), reserved=True)


async def _wake(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await wake(stage.binding, ["op-test"], clock.now())


def _all_shapes() -> dict[str, Shape]:
    slow = RetryPolicy(strategy="fixed", initial_seconds=60.0, jitter="none")
    event = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}
    return {
        "healthy": Shape(_quick(), failing(0)),
        "retried": Shape(_quick(), failing(2)),
        "dead_lettered": Shape(_quick(), failing(9, Category.MALFORMED, 422)),
        "cancelled_while_waiting": Shape(replace(_quick(), policy=slow), failing(9), _cancel),
        "hurried": Shape(replace(_quick(), policy=slow), failing(1), _hurry),
        "worker_failed": Shape(_quick(), _worker_failing_once()),
        "with_events": Shape(_quick(on_success=(event,)), failing(0)),
        "continued_as_new": Shape(_quick(), failing(22)),
        "circuit_waited": Shape(_quick(), _held_up_once(lambda: _refused_for(0.1), failing(1))),
        "circuit_woken": Shape(_quick(), _held_up_once(lambda: _refused_for(600), failing(0)), _wake),
        "probed": Shape(_quick(), _held_up_once(lambda: NeedsProbe(CircuitSettings()), failing(0))),
        "budget_waited": Shape(_quick(), _held_up_once(_postponed, failing(0))),
    }


async def record(name: str, shape: Shape) -> None:
    """Run one shape and write its last execution's history."""
    with task_hub_stage() as stage:
        stage.answer = shape.answer
        await hub.start_operation(stage.binding, shape.operation)
        if shape.steer is not None:
            await shape.steer(stage)
        instance = await hub.wait_for_operation(stage.binding, "op-test", _WAIT_SECONDS)
        assert instance is not None
        events = await _history(stage)
        await hub.close_clients()
    document = {"output": instance.output, "events": [MessageToDict(event) for event in events]}
    # A stack trace names the folder of whoever recorded; where the project lies means nothing here.
    text = json.dumps(document, indent=1).replace(f"{ROOT}/", "")
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


async def _history(stage: TaskHubStage) -> list[pb.HistoryEvent]:
    """Read the raw history: the SDK's client turns it into objects that have no way back."""
    client = await hub.client_for(stage.binding)
    request = pb.StreamInstanceHistoryRequest(instanceId="op-test")
    chunks = client._get_stub().StreamInstanceHistory(request)
    events = [event async for chunk in chunks for event in chunk.events]
    return [event for event in events if not event.HasField("executionCompleted")]


async def _record_all() -> None:
    for name, shape in _all_shapes().items():
        await record(name, shape)


if __name__ == "__main__":
    asyncio.run(_record_all())
