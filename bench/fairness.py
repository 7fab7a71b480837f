"""What one customer waits at a limited dependency, alone and beside another one whose operations fail."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.numbers import Row, Table, milliseconds, percentile
from bench.peers.benchmark import calls_of
from bench.peers.systems import durable_retry, target

AT_ONCE = 4
BURST = 20
BURSTS = 6
BURST_SECONDS = 10.0
WARM_UP_BURSTS = 3
WARM_UP_SECONDS = 5.0
"""After them the limiter's mean duration of an attempt is that of these calls."""
GIVE_UP_SECONDS = 60.0
POSTS_AT_ONCE = 8
POLL_SECONDS = 1.0
OPERATIONS_OF_OTHER = 20
"""For each operation that the command line asks for: 500 make 10,000."""

DEPENDENCIES = f"""[dependencies.flaky]
base_url = "{{target_url}}"
idempotency = {{{{ header = "Idempotency-Key" }}}}
circuit = {{{{ %s }}}}
limits = {{{{ max_concurrency = {AT_ONCE} }}}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What one customer has beside it.

    Attributes:
        others: Operations of the other customer, which all fail.
        has_keys: Whether both have limit keys.
        circuit: The settings of the circuit.
    """

    others: int
    has_keys: bool = True
    circuit: str = "enabled = false"


async def measure(folder: Path, operations: int) -> list[Table]:
    """Plays the same bursts of one customer in each case, on a system of its own.

    Args:
        folder: Where the systems keep their data and logs.
        operations: A twentieth of what the other customer submits.
    """
    others = OPERATIONS_OF_OTHER * operations
    cases = {
        "alone": Case(0),
        f"beside {others:,} that fail": Case(others),
        "the same, a circuit for each key": Case(others, circuit='by = "limit_key"'),
        "the same without limit keys": Case(others, has_keys=False),
    }
    waits = {}
    for name, case in cases.items():
        (own := folder / name).mkdir()
        waits[name] = await play(case, own)
    return [_table(waits)]


async def play(case: Case, folder: Path) -> list[float | None]:
    """Returns the seconds from each submission of the customer to its call; None where none came."""
    async with (
        target(folder) as target_url,
        durable_retry(0, DEPENDENCIES % case.circuit)(folder, target_url) as system,
    ):
        async with _posting(system.address) as post:
            for burst in range(WARM_UP_BURSTS):
                numbers = range(burst * BURST, (burst + 1) * BURST)
                await asyncio.gather(*(post("warm", number, 0, None) for number in numbers))
                await asyncio.sleep(WARM_UP_SECONDS)
            key = "other" if case.has_keys else None
            await asyncio.gather(*(post("other", number, 99, key) for number in range(case.others)))
            began, asked = time.monotonic(), dict[str, float]()
            key = "own" if case.has_keys else None
            for burst in range(BURSTS):
                await asyncio.sleep(max(0.0, began + burst * BURST_SECONDS - time.monotonic()))
                numbers = range(burst * BURST, (burst + 1) * BURST)
                asked |= dict(await asyncio.gather(*(post("own", number, 0, key) for number in numbers)))
        called = dict[str, float]()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while len(called) < len(asked) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            called = {call.key: call.arrival for call in await calls_of(target_url) if call.key in asked}
    return [called[name] - at if name in called else None for name, at in asked.items()]


@asynccontextmanager
async def _posting(url: str) -> AsyncIterator[Any]:
    places = asyncio.Semaphore(POSTS_AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def post(prefix: str, number: int, failures: int, key: str | None) -> tuple[str, float]:
            name = f"{prefix}-{number}"
            request = {"path": f"/attempts/{failures - 1}/{name}", "json": {}}
            body = {"dependency": "flaky", "key": name, "request": request}
            async with places:
                asked = time.monotonic()
                answer = await client.post(
                    "/api/operations", json=body | ({} if key is None else {"limit_key": key})
                )
                answer.raise_for_status()
            return name, asked

        yield post


def _table(waits: dict[str, list[float | None]]) -> Table:
    def row(percent: float) -> Row:
        values = []
        for each in waits.values():
            wait = percentile([GIVE_UP_SECONDS if one is None else one for one in each], percent)
            values.append(f"over {milliseconds(wait)}" if wait >= GIVE_UP_SECONDS else milliseconds(wait))
        return Row(f"wait of the customer p{percent:g}", "ms", tuple(values))

    return Table(
        title="One customer beside another one",
        columns=tuple(waits),
        rows=(row(50), row(99)),
        notes=(
            f"At a dependency with `max_concurrency = {AT_ONCE}`, calls of 50 ms, no circuit unless named.",
            f"{BURST} operations every {BURST_SECONDS:g} s, {BURSTS} times, once the other submitted all.",
            "Wait: from a submission to its call. Two equal shares make twice the wait of a burst alone.",
        ),
    )
