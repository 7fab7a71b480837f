"""Posts many operations at once and reads at the target what became of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

AT_ONCE = 50
POLL_SECONDS = 0.05
FINISH_SECONDS = 180

type Submit = Callable[[str, str], Awaitable[None]]
"""Starts one operation: (key, path at the target) -> accepted."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is posted: the same for every system that is compared.

    Attributes:
        prefix: What the keys of this run begin with, so that runs do not meet.
        operations: How many, at least 1.
        failing_every: One in so many operations fails once; 0 = none does.
        delay_seconds: The wait before the second attempt, fixed and without jitter: lateness can be told.
    """

    prefix: str
    operations: int
    failing_every: int
    delay_seconds: float

    def calls(self) -> dict[str, str]:
        """Returns the path that each key calls."""
        return {f"{self.prefix}-{number}": self._path(number) for number in range(self.operations)}

    def expected_tries(self) -> int:
        """Returns how many requests the target has to see in all."""
        return self.operations + sum(path != "/echo" for path in self.calls().values())

    def _path(self, number: int) -> str:
        failing = self.failing_every > 0 and number % self.failing_every == 0
        return "/fail/1" if failing else "/echo"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run measured.

    Attributes:
        operations_per_second: Operations over the time from the first post to the last arrival at the target.
        submit_seconds: Per operation, from posting it to its acceptance.
        late_seconds: Per retry, how much later than asked the second try arrived at the target.
        duplicate_tries: Requests that the target saw beyond the expected ones.
    """

    operations_per_second: float
    submit_seconds: list[float]
    late_seconds: list[float]
    duplicate_tries: int


async def run(work: Work, submit: Submit, target_url: str) -> Outcome:
    """Posts the work, waits until the target has seen all of it, and measures.

    Raises:
        TimeoutError: The target did not see all of it within 180 s.
    """
    async with httpx.AsyncClient(base_url=target_url, timeout=30) as target:
        began = time.time()
        submit_seconds = await _submit_all(work, submit)
        tries = await _until_seen(work, target)
        arrivals = await _arrivals(work, target)
    last = max(moment for moments in arrivals.values() for moment in moments)
    return Outcome(
        operations_per_second=work.operations / (last - began),
        submit_seconds=submit_seconds,
        late_seconds=[
            moments[1] - moments[0] - work.delay_seconds for moments in arrivals.values() if len(moments) > 1
        ],
        duplicate_tries=tries - work.expected_tries(),
    )


async def _submit_all(work: Work, submit: Submit) -> list[float]:
    lanes = asyncio.Semaphore(AT_ONCE)

    async def one(key: str, path: str) -> float:
        async with lanes:
            began = time.perf_counter()
            await submit(key, path)
            return time.perf_counter() - began

    return await asyncio.gather(*(one(key, path) for key, path in work.calls().items()))


async def _until_seen(work: Work, target: httpx.AsyncClient) -> int:
    async with asyncio.timeout(FINISH_SECONDS):
        while True:
            keys = (await target.get("/counts")).json()["keys"]
            seen: int = sum(count for key, count in keys.items() if key.startswith(f"{work.prefix}-"))
            if seen >= work.expected_tries():
                return seen
            await asyncio.sleep(POLL_SECONDS)


async def _arrivals(work: Work, target: httpx.AsyncClient) -> dict[str, list[float]]:
    arrivals = {}
    for key in work.calls():
        record: dict[str, Any] = (await target.get(f"/counts/{key}")).json()
        arrivals[key] = [datetime.fromisoformat(one["received_at"]).timestamp() for one in record["tries"]]
    return arrivals
