"""One hot dependency against fifty, and against none with a circuit: does its entity hold anybody up?"""

import asyncio
import re
import resource
from collections.abc import Callable
from pathlib import Path

from bench.circuit_cost import SETTINGS
from bench.load import Outcome, Work, run
from bench.numbers import Row, Table, milliseconds, percentile
from bench.systems import flaky_target, onebox
from scripts.processes import ROOT

OPERATIONS = 1_000
DELAY_SECONDS = 10.0
"""Long enough that all of them wait at once when the first becomes due."""
MANY = 50

type Choice = Callable[[int], str]

CASES: dict[str, Choice] = {
    "one dependency": lambda _number: "hot",
    "fifty dependencies": lambda number: f"many-{number % MANY:02d}",
    "one, circuit off": lambda _number: "off",
}


async def measure(folder: Path, _operations: int) -> list[Table]:
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
    return [_table(outcomes, processor_seconds)]


def _processor_seconds() -> float:
    """Returns the processor time of the apps that have ended; the target still runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _one(folder: Path, target_url: str, choose: Choice) -> Outcome:
    env = {"FLAKY_TARGET_URL": target_url, "DEPENDENCIES_FILE": str(SETTINGS)}
    async with onebox(folder, ROOT, **env) as client:

        async def submit(key: str, path: str) -> None:
            retry = {"strategy": "fixed", "initial_seconds": DELAY_SECONDS, "jitter": "none"}
            request = {"method": "POST", "path": path, "json": {"amount": 5}}
            dependency = choose(int(key.rpartition("-")[2]))
            body = {"dependency": dependency, "key": key, "request": request, "retry": retry}
            (await client.post("/api/operations", json=body)).raise_for_status()

        await run(Work(f"warm-{folder.name}", 20, 0, DELAY_SECONDS), submit, target_url)
        return await run(Work(folder.name, OPERATIONS, 1, DELAY_SECONDS), submit, target_url)


def _table(outcomes: list[Outcome], processor_seconds: list[float]) -> Table:
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
        f"{OPERATIONS} operations; each fails once, is reported, and tries again {DELAY_SECONDS:g} s later.",
        "The circuits' minimum_calls is out of reach, so that none trips: what is measured is the reporting.",
        "Processor time: from the app's start to its end; it says most where other work shares the machine.",
        "Time runs from the first post to the last request's arrival, the wait included.",
    )
    return Table("1,000 operations in flight, every one fails once", tuple(CASES), rows, notes)


def _row(name: str, outcomes: list[Outcome], seconds_of: Callable[[Outcome], float]) -> Row:
    return Row(name, "ms", tuple(milliseconds(seconds_of(one)) for one in outcomes))
