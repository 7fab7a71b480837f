"""Operations per second, submit latency, and how late retries fire."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bench.numbers import Row, Table, milliseconds, percentile
from bench.systems import (
    AT_ONCE,
    Outcome,
    Submit,
    Work,
    durable_retry,
    flaky_target,
    plain_functions,
    plain_on_onebox,
    run,
)

DELAY_SECONDS = 1.0
WARM_UP_OPERATIONS = 20

type System = Callable[[Path, str, float], AbstractAsyncContextManager[Submit]]

SYSTEMS: dict[str, System] = {
    "Durable Retry, onebox": durable_retry,
    "plain RetryPolicy, onebox": plain_on_onebox,
    "plain RetryPolicy, in memory": plain_functions,
}


async def measure(folder: Path, operations: int) -> list[Table]:
    """Runs the same work on both systems, one after the other, without failures and with.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many are posted at once, at least 3.
    """
    healthy: list[Outcome] = []
    failing: list[Outcome] = []
    async with flaky_target(folder) as target_url:
        for number, system in enumerate(SYSTEMS.values()):
            async with system(folder, target_url, DELAY_SECONDS) as submit:
                await run(Work(f"warm{number}", WARM_UP_OPERATIONS, 3, DELAY_SECONDS), submit, target_url)
                healthy.append(
                    await run(Work(f"well{number}", operations, 0, DELAY_SECONDS), submit, target_url)
                )
                failing.append(
                    await run(Work(f"ill{number}", operations, 3, DELAY_SECONDS), submit, target_url)
                )
    return [
        _table(f"{operations} operations posted at once, none fails", healthy),
        _table(f"{operations} operations posted at once, every third fails once", failing),
    ]


def _table(title: str, outcomes: list[Outcome]) -> Table:
    rows = [
        _row("operations per second", "1/s", outcomes, lambda one: f"{one.operations_per_second:.0f}"),
        _row(
            "submit latency p50", "ms", outcomes, lambda one: milliseconds(percentile(one.submit_seconds, 50))
        ),
        _row(
            "submit latency p99", "ms", outcomes, lambda one: milliseconds(percentile(one.submit_seconds, 99))
        ),
    ]
    notes = [
        f"{AT_ONCE} posts at a time: to onebox over HTTP, to Microsoft's in-memory backend over gRPC.",
        "onebox commits every turn to SQLite on disk; the in-memory backend keeps nothing.",
        "Plain: `call_activity` with the SDK's `RetryPolicy`; no claim of the key, no record of the result.",
        "Time runs from the first post to the last request's arrival at the target.",
    ]
    if all(one.late_seconds for one in outcomes):
        rows += [
            _row(
                "retry late by p50",
                "ms",
                outcomes,
                lambda one: milliseconds(percentile(one.late_seconds, 50)),
            ),
            _row(
                "retry late by p99",
                "ms",
                outcomes,
                lambda one: milliseconds(percentile(one.late_seconds, 99)),
            ),
        ]
        notes.append(
            f"Lateness: between the arrivals of both tries at the target, less the asked {DELAY_SECONDS:g} s."
        )
    rows.append(_row("calls beyond the expected", "1", outcomes, lambda one: str(one.duplicate_tries)))
    return Table(title, tuple(SYSTEMS), tuple(rows), tuple(notes))


def _row(name: str, unit: str, outcomes: list[Outcome], show: Callable[[Outcome], str]) -> Row:
    return Row(name, unit, tuple(show(one) for one in outcomes))
