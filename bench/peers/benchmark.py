"""This project and what people would use instead: the same jobs, the same client, in turn."""

import asyncio
import itertools
import json
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.numbers import Row, Table, milliseconds, percentile
from bench.peers.systems import (
    BACKOFF_SECONDS,
    FUNCTIONS,
    PYTHON,
    SYSTEMS,
    WORKERS,
    Running,
    System,
    set_up,
    target,
)
from bench.peers.target import UNAVAILABLE, Call
from scripts.processes import LOG_END, ROOT

FAILURES = (0, 0, 0, 1, 1, 2)
"""How often the jobs fail, in turn: half succeed at once, a third fail once, a sixth twice."""
HEALTHY = (0,)
LINE_BYTES = 2**24  # the client answers in one line
ROUNDS = 3
WARM_UP_JOBS = 4 * len(FAILURES)
PACE_PER_SECOND = 25.0
MOST_PACED_JOBS = 500
CLIENTS = 4

NOTES = (
    f"Median of {ROUNDS} rounds, each with fresh data and {WARM_UP_JOBS} jobs to warm up.",
    "A job is one HTTP call. Half succeed at once, a third fail once, a sixth twice.",
    "The next try is due 0.2 s after a failure; late is its arrival at the target after that.",
    "One client submits one job after the other, then reads every result back.",
    "durable-retry: onebox with defaults: key, record, circuit and budget on, every turn on disk.",
    "durable-retry: circuit and budget have limits above half of the calls, so that no job waits.",
    "retry-policy: an orchestrator with the SDK's RetryPolicy and one activity, on onebox too; nothing else.",
    "restate: one node, 24 partitions, RocksDB, flushed to disk at each commit.",
    "dbos-sqlite: the library's defaults, but that its queue is looked at every 0.1 s.",
    "durabletask-mem: Microsoft's in-memory backend. plain-asyncio: one event loop. Neither keeps anything.",
    "durable-retry and dbos-sqlite keep their hub's state in the worker's process; dbos' client writes too.",
)


@dataclass(frozen=True, slots=True)
class Work:
    """What is submitted.

    Attributes:
        prefix: What the keys begin with, so that the pieces of work on one target do not meet.
        jobs: How many, at least 1.
        failures: How often the jobs fail, in turn.
        per_second: The pace of the submissions; 0 = as fast as they are accepted.
        at_once: How many are submitted at the same time, at least 1.
    """

    prefix: str
    jobs: int
    failures: tuple[int, ...] = FAILURES
    per_second: float = 0.0
    at_once: int = 1

    def paths(self) -> list[tuple[str, str]]:
        """Returns key and path at the target of every job."""
        keys = [f"{self.prefix}-{number}" for number in range(self.jobs)]
        return [(key, f"/fails/{self._failures(number)}/{key}") for number, key in enumerate(keys)]

    def expected_calls(self) -> int:
        """Returns how many calls the target must see."""
        return sum(self._failures(number) + 1 for number in range(self.jobs))

    def _failures(self, number: int) -> int:
        return self.failures[number % len(self.failures)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one piece of work took.

    Attributes:
        jobs_per_second: Jobs over the time from the first submission to the last result read back.
        submit_seconds: Each submission, until it was accepted.
        late_seconds: Each retry's arrival, less the answer to the call before and the asked wait.
        unexpected_calls: Calls beyond the expected.
        cpu_seconds: Processor time per job, by group of processes; `client` is the client's own.
    """

    jobs_per_second: float
    submit_seconds: list[float]
    late_seconds: list[float]
    unexpected_calls: int
    cpu_seconds: dict[str, float]


type Ask = Callable[..., Awaitable[dict[str, Any]]]
type Run = Callable[[Work], Awaitable[Outcome]]
type Quantity = Callable[[Outcome], float]


@asynccontextmanager
async def client_of(name: str, system: Running, log: Path, python: Path | str = PYTHON) -> AsyncIterator[Ask]:
    """Starts the system's client; gives what has it do jobs and returns its answer.

    Args:
        name: The system's; what follows a comma in it is for the reader.
        system: Where it serves.
        log: The file that the client's errors are appended to.
        python: Has the libraries that the client needs.
    """
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "bench.peers.client", name.partition(",")[0], system.address),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_BYTES,
        )

    async def ask(jobs: list[tuple[str, str]], per_second: float = 0.0, at_once: int = 1) -> dict[str, Any]:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the client has no pipes")
        asked = {"jobs": jobs, "per_second": per_second, "at_once": at_once}
        process.stdin.write(f"{json.dumps(asked)}\n".encode())
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            said = await asyncio.to_thread(log.read_text)
            raise RuntimeError(f"the client of {name} gave up:\n{said[-LOG_END:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    try:
        yield ask
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def outcome(work: Work, answer: dict[str, Any], seen: list[Call], cpu_seconds: dict[str, float]) -> Outcome:
    """Joins what the client measured with what the target saw.

    Args:
        work: What was done.
        answer: The client's answer (see `bench.peers.client`).
        seen: All calls that the target has seen, in the order of arrival.
        cpu_seconds: Processor time per job and group.
    """
    by_key: dict[str, list[Call]] = {key: [] for key, _ in work.paths()}
    for call in seen:
        if call.key in by_key:
            by_key[call.key].append(call)
    late_seconds = [
        later.arrival - earlier.answer - BACKOFF_SECONDS
        for calls in by_key.values()
        for earlier, later in itertools.pairwise(calls)
        if earlier.status == UNAVAILABLE
    ]
    return Outcome(
        jobs_per_second=work.jobs / answer["seconds"],
        submit_seconds=answer["submit_seconds"],
        late_seconds=late_seconds,
        unexpected_calls=sum(map(len, by_key.values())) - work.expected_calls(),
        cpu_seconds=cpu_seconds | {"client": answer["cpu_seconds"] / work.jobs},
    )


async def calls_of(target_url: str) -> list[Call]:
    """Returns what the target has seen, in the order of arrival."""
    async with httpx.AsyncClient(timeout=60) as target:
        return [Call(*each) for each in (await target.get(f"{target_url}/log")).json()]


async def measure(folder: Path, operations: int) -> list[Table]:
    """Runs the same jobs on every system: as fast as one and four clients get, and at 25 a second.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many jobs, at least 6.
    """
    title = f"{operations} jobs on this project and its peers"
    return await _measure(folder, operations, SYSTEMS, title, NOTES)


async def measure_workers(folder: Path, operations: int) -> list[Table]:
    """Runs the same jobs on this project, without and with worker processes."""
    title = f"{operations} jobs, their functions in onebox's process and in worker processes"
    return await _measure(folder, operations, WORKERS, title, NOTES[:4], suffix=", with worker processes")


async def _measure(
    folder: Path,
    operations: int,
    systems: Mapping[str, System],
    title: str,
    notes: tuple[str, ...],
    *,
    suffix: str = "",
) -> list[Table]:
    await asyncio.to_thread(set_up)
    paced_jobs = min(operations, MOST_PACED_JOBS)
    works = {
        title: Work("fast", operations),
        f"{operations} of those jobs by {CLIENTS} clients at once{suffix}": Work(
            "together", operations, at_once=CLIENTS
        ),
        f"{paced_jobs} of those jobs at {PACE_PER_SECOND:g} a second{suffix}": Work(
            "paced", paced_jobs, per_second=PACE_PER_SECOND
        ),
    }
    found: dict[str, dict[str, list[Outcome]]] = {each: {name: [] for name in systems} for each in works}
    for number in range(ROUNDS):
        for name, system in systems.items():
            # Each in a folder of its own: no round finds the data of another.
            (own := folder / f"{name}-{number}").mkdir()
            outcomes = await run(name, system, own, tuple(works.values()))
            for each, outcome_of_work in zip(works, outcomes, strict=True):
                found[each][name].append(outcome_of_work)
    return [_table(each, found[each], notes if each == title else ()) for each in works]


async def run(name: str, served: System, folder: Path, works: tuple[Work, ...]) -> list[Outcome]:
    """Starts a system, warms it up, and does the pieces of work one after the other."""
    async with running(name, served, folder, Work("warm", WARM_UP_JOBS)) as do:
        return [await do(work) for work in works]


@asynccontextmanager
async def running(
    name: str, served: System, folder: Path, warm_up: Work, python: Path | str = PYTHON
) -> AsyncIterator[Run]:
    """Starts a target, a system and its client, and warms them up; gives what does a piece of work.

    Args:
        name: The system's; what follows a comma in it is for the reader.
        served: The system.
        folder: Where it keeps its data and logs.
        warm_up: Is done first.
        python: Has the libraries that the client needs.
    """
    async with (
        target(folder) as target_url,
        served(folder, target_url) as system,
        client_of(name, system, folder / "client.log", python) as ask,
    ):

        async def do(work: Work) -> Outcome:
            before = system.cpu_seconds()
            answer = await ask(work.paths(), work.per_second, work.at_once)
            after = system.cpu_seconds()
            if answer["failed"]:
                raise RuntimeError(f"jobs of {name} failed: {answer['failed']}")
            used = {group: (after[group] - before.get(group, 0.0)) / work.jobs for group in after}
            return outcome(work, answer, await calls_of(target_url), used)

        await do(warm_up)
        yield do


def _table(title: str, outcomes: dict[str, list[Outcome]], notes: tuple[str, ...]) -> Table:
    def row(name: str, unit: str, quantity: Quantity, show: Callable[[float], str]) -> Row:
        medians = (statistics.median(map(quantity, each)) for each in outcomes.values())
        return Row(name, unit, tuple(show(median) for median in medians))

    def cpu(*groups: str) -> Quantity:
        return lambda one: sum(one.cpu_seconds.get(group, 0.0) for group in groups)

    apart = (row("- worker processes", "ms", cpu(FUNCTIONS), milliseconds),)
    has_apart = any(FUNCTIONS in one.cpu_seconds for each in outcomes.values() for one in each)
    rows = (
        row("jobs per second", "1/s", lambda one: one.jobs_per_second, lambda rate: f"{rate:.0f}"),
        row("submit latency p50", "ms", lambda one: percentile(one.submit_seconds, 50), milliseconds),
        row("retry late by p50", "ms", lambda one: percentile(one.late_seconds, 50), milliseconds),
        row("retry late by p99", "ms", lambda one: percentile(one.late_seconds, 99), milliseconds),
        row("processor time of a job", "ms", cpu("worker", FUNCTIONS, "store"), milliseconds),
        row("- worker", "ms", cpu("worker"), milliseconds),
        *(apart if has_apart else ()),
        row("- store", "ms", cpu("store"), milliseconds),
        row("- the client, apart", "ms", cpu("client"), milliseconds),
        row("calls beyond the expected", "1", lambda one: one.unexpected_calls, lambda calls: f"{calls:.0f}"),
    )
    return Table(title, tuple(outcomes), rows, notes)
