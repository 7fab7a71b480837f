"""`python -m bench [NAME ...]`: prints tables, as Markdown that also reads in a terminal."""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench import cost, drill, fairness, guard, start, throughput
from bench.numbers import Table, describe_machine, with_tables
from bench.peers import benchmark as peers

type Benchmark = Callable[[Path, int], Coroutine[Any, Any, list[Table]]]

BENCHMARKS: dict[str, Benchmark] = {
    "throughput": throughput.measure,
    "cost": cost.measure,
    "start": start.measure,
    "fairness": fairness.measure,
    "peers": peers.measure,
    "workers": peers.measure_workers,
    "drill": drill.measure,
    "guard": guard.compare,
    "guard-record": guard.record,
}
BY_NAME_ONLY = {"fairness", "peers", "workers", "drill", "guard", "guard-record"}
"""Run only when named: they take long, the peers must be installed first, and the guard is a check."""

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
    parser.add_argument("--write", type=Path, metavar="FILE", help="also put the tables into this document")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return arguments


def measure(names: list[str], operations: int) -> list[Table]:
    """Runs the benchmarks one after the other, and prints and returns what each one found."""
    found = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
            # Each has an event loop of its own: what the app still plans on it ends with it.
            for table in asyncio.run(BENCHMARKS[name](Path(folder), operations)):
                print(f"{table.markdown()}\n", flush=True)
                found.append(table)
    return found


def main() -> None:
    """Runs what the command line names."""
    arguments = parse()
    default = [name for name in BENCHMARKS if name not in BY_NAME_ONLY]
    machine = describe_machine()
    print(f"{machine}\n", flush=True)
    tables = measure(arguments.names or default, arguments.operations)
    if arguments.write is not None:
        before = arguments.write.read_text() if arguments.write.exists() else ""
        arguments.write.write_text(with_tables(before, tables, machine))


if __name__ == "__main__":
    main()
