"""`python -m bench [NAME ...]`: prints one table per benchmark, as Markdown that also reads in a terminal."""

import argparse
import asyncio
import os
import platform
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import cost, throughput
from bench.numbers import Table

type Benchmark = Callable[[Path, int], Awaitable[list[Table]]]

BENCHMARKS: dict[str, Benchmark] = {"throughput": throughput.measure, "cost": cost.measure}


def parse() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measures the engine beside plain functions."
    )
    parser.add_argument("names", nargs="*", help=f"which to run (default: all of {', '.join(BENCHMARKS)})")
    parser.add_argument(
        "--operations", type=int, default=500, help="how many are posted at once (default: 500)"
    )
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return arguments


async def measure(names: list[str], operations: int) -> None:
    """Runs the benchmarks one after the other and prints each one's tables when it is done."""
    now = datetime.now(UTC).date()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}, {now}\n",
        flush=True,
    )
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
            for table in await BENCHMARKS[name](Path(folder), operations):
                print(table.markdown(), end="\n\n", flush=True)


def main() -> None:
    """Runs what the command line names."""
    arguments = parse()
    asyncio.run(measure(arguments.names or list(BENCHMARKS), arguments.operations))


if __name__ == "__main__":
    main()
