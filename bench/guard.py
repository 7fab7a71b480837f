"""A guard against regressions: processor time of a healthy operation, in jobs of the SDK alone.

Rates of different machines do not compare. The ratio of two processor times in one run nearly does, if both
run much code. A loop over one turn of the SDK does not: where others use the processor's caches, an operation
has taken 1.7 times as long, and that loop as long as ever.
"""

import asyncio
import json
import statistics
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.numbers import Row, Table
from bench.peers.benchmark import HEALTHY, Run, Work, running
from bench.peers.systems import DURABLE_RETRY, System, durable_retry, durabletask

RECORD: Final = Path(__file__).with_name("guard.json")
TOLERANCE: Final = 0.2
WARM_UP_OPERATIONS = 50
SLICES = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """What was measured in one slice of the run: processor time, in seconds."""

    operation_seconds: float
    sdk_seconds: float


async def compare(folder: Path, operations: int) -> list[Table]:
    """Measures the ratio and compares it with the recorded one.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many to run, at least 10.

    Raises:
        SystemExit: It is more than a fifth above it.
    """
    recorded: float = json.loads(await asyncio.to_thread(RECORD.read_text))["sdk_jobs_per_operation"]
    costs = await measure(folder, operations)
    ratio = sdk_jobs_per_operation(costs)
    if is_regression(ratio, recorded):
        raise SystemExit(
            f"guard: a healthy operation costs {ratio:.2f} jobs of the SDK, "
            f"more than {1 + TOLERANCE:g} times the recorded {recorded:.2f}"
        )
    return [_table(operations, costs, recorded)]


async def record(folder: Path, operations: int) -> list[Table]:
    """Measures the ratio and makes it the recorded one; arguments as for `compare`."""
    costs = await measure(folder, operations)
    recorded = round(sdk_jobs_per_operation(costs), 2)
    await asyncio.to_thread(RECORD.write_text, json.dumps({"sdk_jobs_per_operation": recorded}) + "\n")
    return [_table(operations, costs, recorded)]


def sdk_jobs_per_operation(costs: list[Cost]) -> float:
    """Returns the ratio of both times, the median of the slices."""
    return statistics.median(each.operation_seconds / each.sdk_seconds for each in costs)


def is_regression(ratio: float, recorded: float) -> bool:
    """Whether a measured ratio is more than a fifth over the recorded one."""
    return ratio > recorded * (1 + TOLERANCE)


async def measure(folder: Path, operations: int) -> list[Cost]:
    """Measures healthy operations and jobs of the SDK in slices, by turns: a busy machine slows both.

    The time of an operation is that of the onebox process, which runs hub, host and app; the emulator of
    the storage is apart. The time of a job is that of the SDK's worker and of its backend.
    """
    jobs, costs = operations // SLICES, []
    async with (
        _running(DURABLE_RETRY, durable_retry(0), folder) as operate,
        _running("durabletask-mem", partial(durabletask, python=sys.executable), folder) as work,
    ):
        for number in range(SLICES):
            ours = (await operate(Work(f"healthy{number}", jobs, HEALTHY))).cpu_seconds
            sdks = (await work(Work(f"healthy{number}", jobs, HEALTHY))).cpu_seconds
            costs.append(Cost(ours["worker"], sdks["worker"] + sdks["store"]))
    return costs


def _running(name: str, served: System, folder: Path) -> AbstractAsyncContextManager[Run]:
    """Starts a system in a folder of its own, with the Python of this project."""
    (own := folder / name).mkdir()
    return running(name, served, own, Work("warm", WARM_UP_OPERATIONS, HEALTHY), sys.executable)


def _table(operations: int, costs: list[Cost], recorded: float) -> Table:
    operation_seconds = statistics.median(each.operation_seconds for each in costs)
    sdk_seconds = statistics.median(each.sdk_seconds for each in costs)
    rows = (
        Row("processor time of an operation", "ms", (f"{operation_seconds * 1000:.2f}",)),
        Row("processor time of a job of the SDK", "ms", (f"{sdk_seconds * 1000:.2f}",)),
        Row("an operation in jobs of the SDK", "1", (f"{sdk_jobs_per_operation(costs):.2f}",)),
        Row("recorded", "1", (f"{recorded:.2f}",)),
    )
    notes = (
        f"{operations} healthy operations, posted one after the other; the process of onebox alone.",
        "A job of the SDK is the same call by a plain orchestration on Microsoft's in-memory backend.",
        f"Medians of {SLICES} slices, by turns.",
    )
    return Table("What an operation costs in jobs of the SDK", ("Durable Retry",), rows, notes)
