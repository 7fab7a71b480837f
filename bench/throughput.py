"""Operations per second, submit latency, and how late retries fire, with many submissions at once."""

import sys
from functools import partial
from pathlib import Path

from bench.numbers import Row, Table, milliseconds, percentile
from bench.peers.benchmark import HEALTHY, Outcome, Work, running
from bench.peers.systems import (
    BACKOFF_SECONDS,
    DURABLE_RETRY,
    System,
    durable_retry,
    durabletask,
    retry_policy,
)

AT_ONCE = 50
WARM_UP_OPERATIONS = 20
EVERY_THIRD = (1, 0, 0)

SYSTEMS: dict[str, tuple[str, System]] = {
    "Durable Retry, onebox": (DURABLE_RETRY, durable_retry(0)),
    "plain RetryPolicy, onebox": ("retry-policy", retry_policy),
    "plain RetryPolicy, in memory": ("durabletask-mem", partial(durabletask, python=sys.executable)),
}
"""Each system, and what the client calls it."""


async def measure(folder: Path, operations: int) -> list[Table]:
    """Runs the same work on each system, one after the other, without failures and with.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many are posted at once, at least 3.
    """
    healthy: list[Outcome] = []
    failing: list[Outcome] = []
    warm_up = Work("warm", WARM_UP_OPERATIONS, EVERY_THIRD)
    for name, served in SYSTEMS.values():
        (own := folder / name).mkdir()
        async with running(name, served, own, warm_up, sys.executable) as run:
            healthy.append(await run(Work("well", operations, HEALTHY, at_once=AT_ONCE)))
            failing.append(await run(Work("ill", operations, EVERY_THIRD, at_once=AT_ONCE)))
    return [
        _table(f"{operations} operations posted at once, none fails", healthy, ()),
        _table(f"{operations} operations posted at once, every third fails once", failing, _late(failing)),
    ]


def _late(outcomes: list[Outcome]) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"retry late by p{percent}",
            "ms",
            tuple(milliseconds(percentile(outcome.late_seconds, percent)) for outcome in outcomes),
        )
        for percent in (50, 99)
    )


def _table(title: str, outcomes: list[Outcome], late: tuple[Row, ...]) -> Table:
    def submitted(percent: float) -> tuple[str, ...]:
        return tuple(milliseconds(percentile(outcome.submit_seconds, percent)) for outcome in outcomes)

    rows = (
        Row("operations per second", "1/s", tuple(f"{outcome.jobs_per_second:.0f}" for outcome in outcomes)),
        Row("submit latency p50", "ms", submitted(50)),
        Row("submit latency p99", "ms", submitted(99)),
        *late,
        Row("calls beyond the expected", "1", tuple(str(outcome.unexpected_calls) for outcome in outcomes)),
    )
    notes = (
        f"{AT_ONCE} posts at a time: to onebox over HTTP, to Microsoft's in-memory backend over gRPC.",
        "onebox commits every turn to SQLite on disk; the in-memory backend keeps nothing.",
        "Plain: `call_activity` with the SDK's `RetryPolicy`; no record of the result.",
        "Time runs from the first post until the last result has been read back.",
        *(
            (f"Lateness: from a failed call's answer to the next call, less the asked {BACKOFF_SECONDS} s.",)
            if late
            else ()
        ),
    )
    return Table(title, tuple(SYSTEMS), rows, notes)
