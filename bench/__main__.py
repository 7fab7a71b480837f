"""`python -m bench [NAME ...]`: prints tables, as Markdown that also reads in a terminal."""

import argparse
import asyncio
import os
import platform
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    app_cost,
    circuit,
    cost,
    guard,
    hub,
    intake,
    outage,
    storage,
    telemetry,
    throughput,
    upkeep,
    views,
    waiting,
)
from bench.numbers import Table
from bench.peers import benchmark as peers

type Benchmark = Callable[[Path, int], Awaitable[list[Table]]]

INTRODUCTION = """# Benchmarks

Written by `make bench ARGS="--write docs/benchmarks.md"`; `make bench` prints the same. Each system runs
in processes of its own, one after the other, against the same flaky target on loopback; the load comes
from a further process, and all share the machine's cores. Numbers of different machines do not compare;
the columns of one table do.

`make bench ARGS="--operations 1000 peers"` runs the same jobs on this project, Restate, DBOS and durabletask.
It installs them into `.bench/`, for which it needs npm. `workers` runs them on this project alone, with its
functions in onebox's process and in worker processes.

`make bench ARGS="--operations 50000 waiting"` lets so many operations wait, which takes some minutes.

`make bench ARGS=guard` fails when a healthy operation costs over 1.2 times the recorded number of plain turns
of the SDK (`bench/guard.json`). After a change that is worth its cost, `make bench ARGS=guard-record` records
that number anew, on a machine that does nothing else.
"""

BENCHMARKS: dict[str, Benchmark] = {
    "throughput": throughput.measure,
    "cost": cost.measure,
    "app": app_cost.measure,
    "hub": hub.measure,
    "intake": intake.measure,
    "circuit": circuit.measure,
    "hot": circuit.measure_hot,
    "outage": outage.measure,
    "dead-letters": storage.measure_dead_letters,
    "outbox": storage.measure_outbox,
    "upkeep": upkeep.measure,
    "telemetry": telemetry.measure,
    "views": views.measure,
    "waiting": waiting.measure,
    "peers": peers.measure,
    "workers": peers.measure_workers,
    "guard": guard.compare,
    "guard-record": guard.record,
}
BY_NAME_ONLY = {"peers", "workers", "guard", "guard-record", "views", "waiting"}
"""Run only when named: peers must be installed first, views need a browser, the guard is a check, and
`waiting` says something about tens of thousands, which take minutes."""

HELP = f"of {', '.join(BENCHMARKS)}; the default is all but {', '.join(sorted(BY_NAME_ONLY))}"


def parse() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measures the engine beside plain functions."
    )
    parser.add_argument("names", nargs="*", help=HELP)
    parser.add_argument(
        "--operations", type=int, default=500, help="how many are posted at once (default: 500)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write a document with the tables")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return arguments


async def measure(names: list[str], operations: int) -> list[str]:
    """Runs the benchmarks one after the other, and prints and returns what each one found."""
    now = datetime.now(UTC).date()
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}"
    parts = [f"{machine}, {now}; load average before the start {os.getloadavg()[0]:.1f}.\n"]
    print(parts[0], flush=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
            for table in await BENCHMARKS[name](Path(folder), operations):
                parts.append(f"{table.markdown()}\n")
                print(parts[-1], flush=True)
    return parts


def main() -> None:
    """Runs what the command line names."""
    arguments = parse()
    default = [name for name in BENCHMARKS if name not in BY_NAME_ONLY]
    parts = asyncio.run(measure(arguments.names or default, arguments.operations))
    if arguments.write is not None:
        arguments.write.write_text("\n".join([INTRODUCTION, *parts]))


if __name__ == "__main__":
    main()
