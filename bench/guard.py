"""A guard against regressions: processor time of a healthy operation, in turns of the SDK.

Rates of different machines do not compare; the ratio of two times of processors in one run nearly does.
"""

import asyncio
import base64
import json
import statistics
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import task
from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import OrchestratorRequest

from bench.numbers import Row, Table
from bench.peers.benchmark import HEALTHY, Work, client_of
from bench.peers.systems import durable_retry, target

RECORD: Final = Path(__file__).with_name("guard.json")
TOLERANCE: Final = 0.2
WARM_UP_OPERATIONS = 50
TURNS = 1000
SLICES = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """What was measured in one slice of the run: processor time, in seconds."""

    operation_seconds: float
    turn_seconds: float


async def compare(folder: Path, operations: int) -> list[Table]:
    """Measures the ratio and compares it with the recorded one.

    Args:
        folder: Where the system keeps its data and logs.
        operations: How many to run, at least 10.

    Raises:
        SystemExit: It is more than a fifth above it.
    """
    recorded: float = json.loads(await asyncio.to_thread(RECORD.read_text))["turns_per_operation"]
    costs = await measure(folder, operations)
    ratio = turns_per_operation(costs)
    if is_regression(ratio, recorded):
        raise SystemExit(
            f"guard: a healthy operation costs {ratio:.1f} turns of the SDK, "
            f"more than {1 + TOLERANCE:g} times the recorded {recorded:.1f}"
        )
    return [_table(operations, costs, recorded)]


async def record(folder: Path, operations: int) -> list[Table]:
    """Measures the ratio and makes it the recorded one; arguments as for `compare`."""
    costs = await measure(folder, operations)
    recorded = round(turns_per_operation(costs), 1)
    await asyncio.to_thread(RECORD.write_text, json.dumps({"turns_per_operation": recorded}) + "\n")
    return [_table(operations, costs, recorded)]


def turns_per_operation(costs: list[Cost]) -> float:
    """Returns the ratio of both times, the median of the slices."""
    return statistics.median(each.operation_seconds / each.turn_seconds for each in costs)


def is_regression(ratio: float, recorded: float) -> bool:
    """Whether a measured ratio is more than a fifth over the recorded one."""
    return ratio > recorded * (1 + TOLERANCE)


async def measure(folder: Path, operations: int) -> list[Cost]:
    """Measures healthy operations and plain turns in slices, by turns: a busy machine slows both.

    The time of an operation is that of the onebox process, which runs hub, host and app; the emulator of
    the storage is apart.
    """
    costs = []
    async with (
        target(folder) as target_url,
        durable_retry(0)(folder, target_url) as system,
        client_of("durable-retry", system, target_url, folder / "client.log", sys.executable) as do,
    ):
        await do(Work("warm", WARM_UP_OPERATIONS, HEALTHY))
        for number in range(SLICES):
            before = plain_turn_seconds(TURNS)
            outcome = await do(Work(f"healthy{number}", operations // SLICES, HEALTHY))
            turn_seconds = (before + plain_turn_seconds(TURNS)) / 2
            costs.append(Cost(outcome.cpu_seconds["worker"], turn_seconds))
    return costs


def plain_turn_seconds(turns: int) -> float:
    """Returns the processor time of a plain orchestrator's turn through the SDK, the mean of so many."""
    worker, request = DurableFunctionsWorker(), first_turn()
    worker.execute_orchestration_request(plain, request)
    busy = time.process_time()
    for _ in range(turns):
        worker.execute_orchestration_request(plain, request)
    return (time.process_time() - busy) / turns


def plain(context: Any, value: int) -> Generator[task.Task[Any], Any, Any]:
    """Calls an activity."""
    return (yield context.call_activity("same", input=value))


def first_turn() -> str:
    """Returns the request for an instance's first turn, as the host sends it."""
    request = OrchestratorRequest(instanceId="guard")
    request.newEvents.append(helpers.new_orchestrator_started_event(datetime.now(UTC)))
    request.newEvents.append(helpers.new_execution_started_event("plain", "guard", "1"))
    return base64.b64encode(request.SerializeToString()).decode()


def _table(operations: int, costs: list[Cost], recorded: float) -> Table:
    operation_seconds = statistics.median(each.operation_seconds for each in costs)
    turn_seconds = statistics.median(each.turn_seconds for each in costs)
    rows = (
        Row("processor time of an operation", "ms", (f"{operation_seconds * 1000:.2f}",)),
        Row("processor time of a plain turn", "ms", (f"{turn_seconds * 1000:.3f}",)),
        Row("an operation in turns", "1", (f"{turns_per_operation(costs):.1f}",)),
        Row("recorded", "1", (f"{recorded:.1f}",)),
    )
    notes = (
        f"{operations} healthy operations, posted one after the other; the process of onebox alone.",
        f"Medians of {SLICES} slices; plain turns are measured before and after each.",
    )
    return Table("What an operation costs in turns of the SDK", ("Durable Retry",), rows, notes)
