"""What one operation costs the app alone, in processor time: what a worker in Azure pays as well.

Each kind of operation runs once on onebox's task hub, and what the hub asked of the app is kept. Then the app
does all of that again and again, without a hub: the trigger, the turns by the SDK with full replay, the
activities with their real calls, the entity operations.

`python -m bench.app_cost FOLDER TARGET_URL OPERATIONS` measures in a process of its own, since a process can
load the app once.
"""

import asyncio
import base64
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import azure.functions as func
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask.internal import orchestrator_service_pb2 as pb

from activities.operation import attempt, dead_letter
from bench.metered_app import MeteredApp, MeteredInvoker, metered_app
from bench.numbers import Row, Table
from bench.plain_turn import plain_turn_seconds
from bench.systems import flaky_target
from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.engine.base.names import ATTEMPT, CIRCUIT_BREAKER, DEAD_LETTER, IDEMPOTENCY_RECORD
from durable_retry.engine.operations.idempotency import RecordState
from durable_retry.stores import operation_notes
from durable_retry.stores.operation_notes import write_noted
from durable_retry.stores.task_hub import client_for, read_operation, read_record
from durable_retry.triggers.http.submissions import submit_operation
from entities.circuit_breaker import CircuitBreaker
from entities.idempotency_record import IdempotencyRecord
from onebox.hub.local_channel import serve_locally, stop_serving
from onebox.worker.durable import DurableClients, DurableUrls
from orchestrators.operation import operation
from scripts.processes import ROOT

CASES: Final = {"healthy": "/echo", "one failure": "/fail/1", "dead letter": "/status/400"}
"""The path that each kind of operation calls."""
INDEX: Final = "index of operations"
STEPS: Final = ("submission", "orchestrator turns", "activities", "entity operations", INDEX)
SLICES: Final = 9
ROUNDS: Final = 3
"""Of each checkout, when two are measured by turns."""
PLAIN_TURNS: Final = 200
POLL_SECONDS = 0.02
FINISH_SECONDS = 60
_NO_HUB: Final = "127.0.0.1:1"
_HTTP_ACCEPTED: Final = 202

_ACTIVITIES: Final[dict[str, Callable[..., Awaitable[Any]]]] = {ATTEMPT: attempt, DEAD_LETTER: dead_letter}
_ENTITIES: Final = {IDEMPOTENCY_RECORD: IdempotencyRecord, CIRCUIT_BREAKER: CircuitBreaker}
_ASKED: Final = frozenset(
    {
        *("taskScheduled", "timerCreated", "subOrchestrationInstanceCreated", "eventSent"),
        *("entityOperationCalled", "entityOperationSignaled", "executionCompleted", "orchestratorCompleted"),
    }
)
"""Events of a history that a turn itself has written."""


@dataclass(slots=True)
class Kept:
    """What the task hub asked of the app for one operation.

    Attributes:
        key: The operation's.
        operation_id: The operation's.
        turns: `OrchestratorRequest`s with the whole history, as base64 text.
        activities: Name and input as JSON text.
        entities: Name and `EntityBatchRequest` as base64 text.
    """

    key: str
    operation_id: str = ""
    turns: list[str] = field(default_factory=list)
    activities: list[tuple[str, str]] = field(default_factory=list)
    entities: list[tuple[str, str]] = field(default_factory=list)


class NoHub:
    """A task hub that takes everything and has nothing: what a durable client costs without its answers."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def StartInstance(self, request: Any, _: Any) -> Any:  # noqa: N802 # the protocol's name
        """Take a start."""
        self.calls["start"] += 1
        return pb.CreateInstanceResponse(instanceId=request.instanceId)

    async def GetEntity(self, _request: Any, _: Any) -> Any:  # noqa: N802 # the protocol's name
        """Say that there is no such entity."""
        self.calls["entity"] += 1
        return pb.GetEntityResponse(exists=False)

    async def SignalEntity(self, _request: Any, _: Any) -> Any:  # noqa: N802 # the protocol's name
        """Take a signal."""
        self.calls["signal"] += 1
        return pb.SignalEntityResponse()


async def measure(folder: Path, operations: int) -> list[Table]:
    """Measures each kind of operation in a process of its own.

    `BENCH_BEFORE` names another checkout to measure by turns with this one; its columns come first.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many of each kind, at least 9.
    """
    before = os.environ.get("BENCH_BEFORE")
    checkouts = {"": ROOT} if before is None else {", before": Path(before), "": ROOT}
    found: dict[str, dict[str, Any]] = {}
    async with flaky_target(folder) as target_url:
        for number, (name, checkout) in enumerate([*checkouts.items()] * (1 if before is None else ROUNDS)):
            await asyncio.to_thread((folder / f"app{number}").mkdir)
            more = await _in_own_process(checkout, folder / f"app{number}", target_url, operations)
            found[name] = _joined(found[name], more) if name in found else more
    return [_table(found, operations // SLICES)]


def _joined(one: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Returns the slices of two runs as those of one."""
    steps = {case: {step: one[case][step] + more[case][step] for step in STEPS} for case in CASES}
    return {"turn": one["turn"] + more["turn"], **steps}


async def _in_own_process(checkout: Path, folder: Path, target_url: str, operations: int) -> dict[str, Any]:
    with (folder / "app.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            # This file also for another checkout, and not its folder's modules in place of the library's.
            *[sys.executable, "-P", __file__, str(folder), target_url, str(operations)],
            cwd=checkout,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(checkout)},
        )
        output, _ = await process.communicate()
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


async def take_and_time(folder: Path, target_url: str, operations: int) -> dict[str, Any]:
    """Measures in this process.

    Returns:
        Seconds of processor time by slice: `turn`, of a plain turn; by case, of each step per operation.
    """
    os.environ["DEPENDENCIES_FILE"] = str(_dependencies(folder))
    found: dict[str, Any] = {"turn": [], **{case: {step: [] for step in STEPS} for case in CASES}}
    async with metered_app(folder, target_url) as app, no_hub() as hub:
        kept = {case: await keep(app, case, path) for case, path in CASES.items()}
        # Its writes come at the end of each slice, and not with whatever the loop does just then.
        with patch.object(operation_notes, "_plan"), patch.object(operation_notes, "_announce", _nothing):
            await _time_slices(found, kept, hub, operations // SLICES)
    return found


def _dependencies(folder: Path) -> Path:
    """Writes the configuration with a budget that lets as many retries go as are measured."""
    file, text = folder / "dependencies.toml", (ROOT / "dependencies.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("minimum_per_second = 10.0", "minimum_per_second = 10000.0"), "utf-8")
    return file


async def _nothing(*_: Any) -> None:
    pass


async def _time_slices(found: dict[str, Any], kept: dict[str, Kept], hub: str, operations: int) -> None:
    for case, one in kept.items():
        await _time_slice(f"warm-{case}", one, hub, operations)
    for number in range(SLICES):
        found["turn"].append(plain_turn_seconds(PLAIN_TURNS))
        for case, one in kept.items():
            for step, seconds in (await _time_slice(f"{number}-{case}", one, hub, operations)).items():
                found[case][step].append(seconds)


async def _time_slice(name: str, kept: Kept, hub: str, operations: int) -> dict[str, float]:
    worker = DurableFunctionsWorker()
    seconds: dict[str, float] = {}
    keys = [_key(f"{name}-{number}") for number in range(operations)]
    with _timed(seconds, "submission", operations):
        for key in keys:
            answer = await submit_operation(submission_of(key, "/echo"), hub)
            assert answer.status_code == _HTTP_ACCEPTED, answer.get_body()  # noqa: S101 # else it is no cost
    with _timed(seconds, "orchestrator turns", operations):
        for _ in keys:
            for request in kept.turns:
                worker.execute_orchestration_request(operation, request)
    with _timed(seconds, "activities", operations):
        for key in keys:
            await _activities(kept, key, hub)
    with _timed(seconds, "entity operations", operations):
        for _ in keys:
            for kind, request in kept.entities:
                worker.execute_entity_batch_request(_ENTITIES[kind], request)
    with _timed(seconds, INDEX, operations):
        await write_noted()
    return seconds


def _key(name: str) -> str:
    """Returns a key that no other run has: the target answers by what it has seen of a key."""
    return f"{os.getpid()}-{name.replace(' ', '-')}"


@contextmanager
def _timed(seconds: dict[str, float], step: str, operations: int) -> Iterator[None]:
    busy = time.process_time()
    yield
    seconds[step] = (time.process_time() - busy) / operations


async def _activities(kept: Kept, key: str, hub: str) -> None:
    for name, given in kept.activities:
        # The target counts calls by their key, and a dead letter has its operation's id.
        call = json.loads(given.replace(kept.key, key).replace(kept.operation_id, f"op-{key}"))
        answer = await (_ACTIVITIES[name](call, hub) if name == ATTEMPT else _ACTIVITIES[name](call))
        json.dumps(answer)
        assert "stopped" not in answer, answer  # noqa: S101 # a refused attempt costs less


async def keep(app: MeteredApp, case: str, path: str) -> Kept:
    """Runs an operation on the hub and returns what the hub asked of the app for it."""
    kept = Kept(key=_key(f"kept-{case}"))
    with _keeping(kept):
        answer = await submit_operation(submission_of(kept.key, path), app.hub)
        kept.operation_id = json.loads(answer.get_body())["operation_id"]
        async with asyncio.timeout(FINISH_SECONDS):
            while not await _is_over(app, kept.operation_id):  # noqa: ASYNC110 # asks the hub
                await asyncio.sleep(POLL_SECONDS)
    client = await client_for(app.hub)
    chunks = client._get_stub().StreamInstanceHistory(  # noqa: SLF001 # the public one gives objects
        pb.StreamInstanceHistoryRequest(instanceId=kept.operation_id)
    )
    kept.turns = turns_of(kept.operation_id, [event async for chunk in chunks for event in chunk.events])
    return kept


async def _is_over(app: MeteredApp, operation_id: str) -> bool:
    """Moves the clock over the wait for the next attempt, if it is waiting."""
    instance = await read_operation(app.hub, operation_id)
    shown = None if instance is None else instance.custom_status
    if shown is not None and shown["next_attempt_at"] is not None:
        app.clock.advance_to(max(app.clock.now(), from_rfc3339(shown["next_attempt_at"])))
    record = await read_record(app.hub, operation_id)
    return record is not None and record.state is RecordState.COMPLETED


@contextmanager
def _keeping(kept: Kept) -> Iterator[None]:
    run_entity, run_activity = MeteredInvoker.entity, MeteredInvoker.activity

    async def entity(self: MeteredInvoker, name: str, request: pb.EntityBatchRequest) -> Any:
        kept.entities.append((name, base64.b64encode(request.SerializeToString()).decode()))
        return await run_entity(self, name, request)

    async def activity(self: MeteredInvoker, name: str, instance_id: str, task_id: int, given: Any) -> Any:
        kept.activities.append((name, given))
        return await run_activity(self, name, instance_id, task_id, given)

    with patch.object(MeteredInvoker, "entity", entity), patch.object(MeteredInvoker, "activity", activity):
        yield


def turns_of(instance_id: str, history: list[Any]) -> list[str]:
    """Returns the request for each turn of a history, as the host sends it."""
    starts = [number for number, event in enumerate(history) if event.HasField("orchestratorStarted")]
    turns = []
    for start, end in zip(starts, [*starts[1:], len(history)], strict=True):
        new = [event for event in history[start:end] if event.WhichOneof("eventType") not in _ASKED]
        request = pb.OrchestratorRequest(instanceId=instance_id, pastEvents=history[:start], newEvents=new)
        turns.append(base64.b64encode(request.SerializeToString()).decode())
    return turns


def submission_of(key: str, path: str) -> func.HttpRequest:
    """Returns the post of an operation."""
    call = {
        "method": "POST",
        "path": path,
        "headers": {"X-Order": key},
        "json": {"amount": 5, "currency": "EUR"},
    }
    body = {"dependency": "flaky", "request": call}
    return func.HttpRequest(
        method="POST",
        url="http://127.0.0.1:7071/api/operations",
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
        body=json.dumps(body).encode(),
    )


@asynccontextmanager
async def no_hub() -> AsyncIterator[str]:
    """Serves a `NoHub`; yields the configuration of its durable client."""
    serve_locally(_NO_HUB, NoHub())
    try:
        urls = DurableUrls("http://127.0.0.1", "bench")
        # As on Azure Storage, where a start is looked at again; a key that is new needs one look.
        yield str(DurableClients(urls, _NO_HUB, starts_are_atomic=True).datum().value)
    finally:
        stop_serving(_NO_HUB)


def _table(found: dict[str, dict[str, Any]], operations: int) -> Table:
    columns = [(f"{case}{name}", found[name], found[name][case]) for case in CASES for name in found]

    def totals(of: dict[str, list[float]]) -> list[float]:
        return [sum(slices) for slices in zip(*of.values(), strict=True)]

    rows = [
        Row(step, "ms", tuple(f"{statistics.median(of[step]) * 1000:.2f}" for _, _, of in columns))
        for step in STEPS
    ]
    rows += [
        Row("all", "ms", tuple(f"{statistics.median(totals(of)) * 1000:.2f}" for _, _, of in columns)),
        Row(
            "the same in plain turns",
            "1",
            tuple(
                f"{statistics.median(a / b for a, b in zip(totals(of), run['turn'], strict=True)):.1f}"
                for _, run, of in columns
            ),
        ),
    ]
    slices = next(iter(found.values()))["turn"]
    notes = (
        f"Medians of {len(slices)} slices of {operations} operations; processor time of the app's process.",
        "Called as the worker calls it: base64 in and out, every turn replays the whole history.",
        "Without the task hub, the host and gRPC; with the call to the target and the requests to storage.",
        "The index of operations takes a row for a slice.",
        "A plain turn is the first of an orchestrator that calls an activity, measured beside each slice.",
    )
    names = tuple(name for name, _, _ in columns)
    return Table("What an operation costs the app alone", names, tuple(rows), notes)


def main() -> None:
    """Measures as the command line says and prints the seconds as JSON."""
    folder, target_url, operations = sys.argv[1:]
    print(json.dumps(asyncio.run(take_and_time(Path(folder), target_url, int(operations)))))


if __name__ == "__main__":
    main()
