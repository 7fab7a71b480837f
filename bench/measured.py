"""Counting the requests to storage that something takes, and timing it."""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.metered_app import Requests, counting_requests


@dataclass(frozen=True, slots=True)
class Measured:
    """What one action took: requests, and seconds in the median of some rounds."""

    requests: int
    seconds: float


async def measured(act: Callable[[], Awaitable[Any]], rounds: int) -> Measured:
    """Does something so many times; the requests are those of one round on average."""
    requests, seconds = Requests(), []
    with counting_requests(requests):
        for _ in range(rounds):
            began = time.perf_counter()
            await act()
            seconds.append(time.perf_counter() - began)
    return Measured(requests.count // rounds, statistics.median(seconds))
