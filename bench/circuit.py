"""What the circuit costs in messages, and whether the entity of one hot dependency holds anybody up.

Messages are counted at different shares of operations whose first attempt fails. One hot dependency is
measured against fifty, and against none with a circuit.

`python -m bench.circuit FOLDER TARGET_URL PERCENT OPERATIONS` measures one share in a process of its
own, since a process can load the app once, and prints what it counted as JSON.
"""

import asyncio
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import httpx

from bench.child import run_child
from bench.metered_app import Requests, served_app
from bench.numbers import Row, Table, milliseconds, percentile
from bench.systems import Outcome, Work, flaky_target, onebox, run
from durable_retry.engine.circuit import Breaker
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts
from durable_retry.stores.circuit import CircuitEntity
from durable_retry.stores.task_hub import read_operation, start_operation
from onebox.clock import SystemClock
from scripts.processes import ROOT

# What the benchmarks of the circuit call: the shared circuit at its defaults but for a short break, one hot
# dependency beside fifty, and one without a circuit. The hot ones never trip, so that what is measured is the
# reporting of failures and not the waiting. No retry budget: it would only make the runs longer.
SETTINGS = """
[defaults.retry_budget]
ratio = 0

[defaults.retry]
max_attempts = -1

[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"
circuit = { break_seconds = 2, max_break_seconds = 8 }

[dependencies.off]
base_url = "${FLAKY_TARGET_URL}"
circuit = { enabled = false }
"""
HOT_SETTINGS = """
[dependencies.NAME]
base_url = "${FLAKY_TARGET_URL}"
circuit = { minimum_calls = 1000000 }
"""
SETTINGS_FILE = "circuits.toml"
PERCENTS = (0, 5, 50, 100)
FINISH_SECONDS = 600
"""Where every operation fails once, a probe that is its first try keeps the circuit open once more."""
POLL_SECONDS = 0.5
AT_ONCE = 50
STRIDE = 37
"""Coprime to 100, so that those that fail lie between the others."""
HOT_OPERATIONS = 1_000
DELAY_SECONDS = 10.0
"""Long enough that all of them wait at once when the first becomes due."""
MANY = 50

type Choice = Callable[[int], str]


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
    write_settings(folder)
    async with flaky_target(folder) as target_url:
        runs = [await _in_own_process(folder, target_url, percent, operations) for percent in PERCENTS]
    return [_share_table(runs, operations)]


def write_settings(folder: Path) -> Path:
    """Writes the dependencies into a file of the folder, and returns its path."""
    hot = (HOT_SETTINGS.replace("NAME", name) for name in ("hot", *(many(number) for number in range(MANY))))
    path = folder / SETTINGS_FILE
    path.write_text("".join([SETTINGS, *hot]))
    return path


def many(number: int) -> str:
    """Returns the name of one of the fifty dependencies."""
    return f"many-{number % MANY:02d}"


async def _in_own_process(folder: Path, target_url: str, percent: int, operations: int) -> Counted:
    counted = await run_child(
        *("-m", "bench.circuit", folder / f"share-{percent}", target_url, percent, operations),
        log=folder / f"share-{percent}.log",
        env={**os.environ, "DEPENDENCIES_FILE": str(folder / SETTINGS_FILE)},
    )
    return Counted(**counted)


def _share_table(runs: list[Counted], operations: int) -> Table:
    def per_operation(name: str, field: str) -> Row:
        return Row(name, "1/op", tuple(f"{getattr(run, field) / run.operations:.3f}" for run in runs))

    rows = (
        per_operation("calls at the dependency", "calls"),
        per_operation("orchestrator turns", "turns"),
        per_operation("activity executions", "activities"),
        per_operation("operations on idempotency records", "record_operations"),
        per_operation("circuit: reports", "reports"),
        per_operation("circuit: requests for a probe", "permits"),
        per_operation("circuit: reads", "reads"),
        Row("until all succeeded", "s", tuple(f"{run.seconds:.1f}" for run in runs)),
    )
    notes = (
        f"{operations} operations started at once; of so many percent, the first attempt is answered 503.",
        "From 50 % on the circuit trips, and whatever is left waits for the probe and its turn.",
        "Default circuit but for breaks of 2 s: they wake whoever waits far more often than the usual 30 s.",
        "One process. Reads and reports go by time, not by the number of operations.",
    )
    columns = tuple(f"{percent} % fail" for percent in PERCENTS)
    return Table("What the circuit costs, per operation", columns, rows, notes)


async def run_share(folder: Path, target_url: str, percent: int, operations: int) -> Counted:
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
        fails = number * STRIDE % 100 < percent
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


CASES: dict[str, Choice] = {
    "one dependency": lambda _number: "hot",
    "fifty dependencies": many,
    "one, circuit off": lambda _number: "off",
}


async def measure_hot(folder: Path, _operations: int) -> list[Table]:
    """Lets every one of 1,000 operations fail once and try again, per case on an app of its own."""
    outcomes: list[Outcome] = []
    processor_seconds: list[float] = []
    async with flaky_target(folder) as target_url:
        for name, choose in CASES.items():
            place = folder / re.sub("[ ,]+", "-", name)
            await asyncio.to_thread(place.mkdir)
            used_before = _processor_seconds()
            outcomes.append(await _one(place, target_url, choose))
            processor_seconds.append(_processor_seconds() - used_before)
    return [_hot_table(outcomes, processor_seconds)]


def _processor_seconds() -> float:
    """Returns the processor time of the apps that have ended; the target still runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _one(folder: Path, target_url: str, choose: Choice) -> Outcome:
    env = {"FLAKY_TARGET_URL": target_url, "DEPENDENCIES_FILE": str(write_settings(folder))}
    async with onebox(folder, ROOT, **env) as client:

        async def submit(key: str, path: str) -> None:
            retry = {"strategy": "fixed", "initial_seconds": DELAY_SECONDS, "jitter": "none"}
            request = {"method": "POST", "path": path, "json": {"amount": 5}}
            dependency = choose(int(key.rpartition("-")[2]))
            body = {"dependency": dependency, "key": key, "request": request, "retry": retry}
            (await client.post("/api/operations", json=body)).raise_for_status()

        await run(Work(f"warm-{folder.name}", 20, 0, DELAY_SECONDS), submit, target_url)
        return await run(Work(folder.name, HOT_OPERATIONS, 1, DELAY_SECONDS), submit, target_url)


def _hot_table(outcomes: list[Outcome], processor_seconds: list[float]) -> Table:
    rows = (
        _row("submit latency p50", outcomes, lambda one: percentile(one.submit_seconds, 50)),
        _row("submit latency p99", outcomes, lambda one: percentile(one.submit_seconds, 99)),
        _row("retry late by p50", outcomes, lambda one: percentile(one.late_seconds, 50)),
        _row("retry late by p99", outcomes, lambda one: percentile(one.late_seconds, 99)),
        Row("operations per second", "1/s", tuple(f"{one.operations_per_second:.0f}" for one in outcomes)),
        Row("processor time of the app", "s", tuple(f"{each:.1f}" for each in processor_seconds)),
        Row("calls beyond the expected", "1", tuple(str(one.duplicate_tries) for one in outcomes)),
    )
    notes = (
        f"{HOT_OPERATIONS} operations; each fails once, is reported, tries again {DELAY_SECONDS:g} s later.",
        "The circuits' minimum_calls is out of reach, so that none trips: what is measured is the reporting.",
        "Processor time: from the app's start to its end; it says most where other work shares the machine.",
        "Time runs from the first post to the last request's arrival, the wait included.",
    )
    return Table("1,000 operations in flight, every one fails once", tuple(CASES), rows, notes)


def _row(name: str, outcomes: list[Outcome], seconds_of: Callable[[Outcome], float]) -> Row:
    return Row(name, "ms", tuple(milliseconds(seconds_of(one)) for one in outcomes))


if __name__ == "__main__":
    given = sys.argv[1:]
    Path(given[0]).mkdir(parents=True)
    counted = asyncio.run(run_share(Path(given[0]), given[1], int(given[2]), int(given[3])))
    print(json.dumps(asdict(counted)))
