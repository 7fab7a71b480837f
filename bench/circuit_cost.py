"""What the circuit costs in messages, at different shares of operations whose first attempt fails.

`python -m bench.circuit_cost FOLDER TARGET_URL PERCENT OPERATIONS` measures one share in a process of its
own, since a process can load the app once, and prints what it counted as JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import httpx

from bench.metered_app import Requests, served_app
from bench.numbers import Row, Table
from bench.systems import flaky_target
from durable_retry.engine.circuit import Breaker
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts
from durable_retry.stores.circuit import CircuitEntity
from durable_retry.stores.task_hub import read_operation, start_operation
from onebox.clock import SystemClock
from scripts.processes import ROOT

SETTINGS = Path(__file__).with_name("circuits.toml")
PERCENTS = (0, 5, 50, 100)
FINISH_SECONDS = 600
"""Where every operation fails once, a probe that is its first try keeps the circuit open once more."""
POLL_SECONDS = 0.5
AT_ONCE = 50
SPREAD = 37
"""Coprime to 100, so that those that fail lie between the others."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What one run took, all operations together."""

    operations: int
    seconds: float
    calls: int
    turns: int
    activities: int
    record_operations: int
    reports: int
    permits: int
    reads: int


async def measure(folder: Path, operations: int) -> list[Table]:
    """Runs each share in a process of its own."""
    async with flaky_target(folder) as target_url:
        runs = [await _in_own_process(folder, target_url, percent, operations) for percent in PERCENTS]
    return [_table(runs, operations)]


async def _in_own_process(folder: Path, target_url: str, percent: int, operations: int) -> Counted:
    arguments = [str(folder / f"share-{percent}"), target_url, str(percent), str(operations)]
    log_path = folder / f"share-{percent}.log"
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "bench.circuit_cost", *arguments],
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "DEPENDENCIES_FILE": str(SETTINGS)},
        )
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(
            f"the share of {percent} % ended with {process.returncode}: {log_path.read_text()[-2_000:]}"
        )
    return Counted(**json.loads(output.splitlines()[-1]))


def _table(runs: list[Counted], operations: int) -> Table:
    def per_operation(name: str, field: str) -> Row:
        return Row(name, "1/op", tuple(f"{getattr(run, field) / run.operations:.3f}" for run in runs))

    rows = (
        per_operation("calls at the dependency", "calls"),
        per_operation("orchestrator turns", "turns"),
        per_operation("activity executions", "activities"),
        per_operation("operations on idempotency records", "record_operations"),
        per_operation("circuit: reports", "reports"),
        per_operation("circuit: requests for a probe", "permits"),
        per_operation("circuit: readings", "reads"),
        Row("until all succeeded", "s", tuple(f"{run.seconds:.1f}" for run in runs)),
    )
    notes = (
        f"{operations} operations started at once; of so many percent, the first attempt is answered 503.",
        "From 50 % on the circuit trips, and whatever is left waits for the probe and its turn.",
        "Default circuit but for breaks of 2 s: they wake whoever waits far more often than the usual 30 s.",
        "One process. Readings and reports go by time, not by the number of operations.",
    )
    columns = tuple(f"{percent} % fail" for percent in PERCENTS)
    return Table("What the circuit costs, per operation", columns, rows, notes)


async def run(folder: Path, target_url: str, percent: int, operations: int) -> Counted:
    """Runs one share to its end and counts."""
    reads = Requests()
    async with served_app(folder, target_url, SystemClock()) as (hub, invoker):
        with _counting_reads(reads):
            began = time.monotonic()
            ids = await _start_all(hub, percent, operations)
            await _until_all_succeeded(hub, ids)
            seconds = time.monotonic() - began
    by_operation = invoker.meter.by_operation
    async with httpx.AsyncClient(base_url=target_url) as target:
        keys = (await target.get("/counts")).json()["keys"]
    return Counted(
        operations=operations,
        seconds=seconds,
        calls=sum(count for key, count in keys.items() if key.startswith(f"share-{percent}-")),
        turns=invoker.meter.turns,
        activities=invoker.meter.activities,
        record_operations=sum(
            number for name, number in by_operation.items() if name.startswith("idempotency_record.")
        ),
        reports=by_operation["circuit_breaker.report"],
        permits=by_operation["circuit_breaker.permit"],
        reads=reads.count,
    )


async def _start_all(hub: str, percent: int, operations: int) -> list[str]:
    lanes = asyncio.Semaphore(AT_ONCE)

    async def start(number: int) -> str:
        fails = number * SPREAD % 100 < percent
        operation = _operation(f"share-{percent}-{number}", "/fail/1" if fails else "/echo")
        async with lanes:
            await start_operation(hub, operation)
        return operation.operation_id

    return await asyncio.gather(*(start(number) for number in range(operations)))


async def _until_all_succeeded(hub: str, ids: list[str]) -> None:
    left = set(ids)
    async with asyncio.timeout(FINISH_SECONDS):
        while left:
            for each in sorted(left)[:AT_ONCE]:
                instance = await read_operation(hub, each)
                if instance is None or instance.output is None:
                    break
                left.discard(each)
            else:
                continue
            await asyncio.sleep(POLL_SECONDS)


def _operation(key: str, path: str) -> OperationInput:
    return OperationInput(
        operation_id=f"op-{key}",
        key=key,
        source="bench",
        dependency="flaky",
        fingerprint=key,
        policy=RetryPolicy(strategy="fixed", initial_seconds=1.0, jitter="none", max_attempts=-1),
        timeouts=Timeouts(deadline_seconds=0),
        created_at=datetime.now(UTC),
        request={"method": "POST", "path": path, "query": {}, "headers": {}, "json": {"amount": 5}},
    )


@contextmanager
def _counting_reads(reads: Requests) -> Iterator[None]:
    """Counts how often this process reads a circuit."""
    read = CircuitEntity.read

    async def count_and_read(entity: CircuitEntity) -> Breaker:
        reads.count += 1
        return await read(entity)

    with patch.object(CircuitEntity, "read", count_and_read):
        yield


if __name__ == "__main__":
    given = sys.argv[1:]
    Path(given[0]).mkdir(parents=True)
    counted = asyncio.run(run(Path(given[0]), given[1], int(given[2]), int(given[3])))
    print(json.dumps(asdict(counted)))
