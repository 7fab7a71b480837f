"""What a start of the app takes: the first request after idle waits for it, and for the host's own."""

import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.numbers import Row, Table

_ROOT: Final = Path(__file__).parents[1]

_RUNS: Final = 9

_IMPORTS: Final = {
    "python alone": "pass",
    "the SDK": "import azure.durable_functions",
    "the app": "import function_app",
}


@dataclass(frozen=True, slots=True)
class _Start:
    wall_seconds: float
    cpu_seconds: float


async def measure(_folder: Path, _operations: int) -> list[Table]:
    """Imports the app in interpreters of their own, in turn with the SDK alone."""
    starts: dict[str, list[_Start]] = {name: [] for name in _IMPORTS}
    for _ in range(_RUNS + 1):
        for name, code in _IMPORTS.items():
            starts[name].append(_started(code))
    # The first of each compiles modules, which a deployment has compiled.
    warm = [found[1:] for found in starts.values()]
    note = (
        f"`import function_app` in a new interpreter, {_RUNS} times. Routes, activities, the console and"
        " the SDK of storage are imported when they are first used."
    )
    return [
        Table(
            title="A start of the app",
            columns=tuple(_IMPORTS),
            rows=(
                _row(
                    "processor time, median",
                    [[each.cpu_seconds for each in found] for found in warm],
                    median=True,
                ),
                _row("processor time, least", [[each.cpu_seconds for each in found] for found in warm]),
                _row("time, least", [[each.wall_seconds for each in found] for found in warm]),
            ),
            notes=(note,),
        )
    ]


def _row(name: str, columns: list[list[float]], *, median: bool = False) -> Row:
    choose = statistics.median if median else min
    return Row(name, "s", tuple(f"{choose(values):.2f}" for values in columns))


def _started(code: str) -> _Start:
    environ = {"AzureWebJobsStorage": "UseDevelopmentStorage=true", "FLAKY_TARGET_URL": "http://127.0.0.1:9"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=_ROOT, env=os.environ | environ, check=True)  # noqa: S603 # see above
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return _Start(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
