"""`make test-long`: the tests marked `long`, all of them or a bounded, seeded sample.

A full run also runs the end-to-end tests on a task hub with the weaker terms of Azure Storage, without those
that `tests/support/semantics.py` lists.

A sample runs whole test files until its time is up: first those that install the wheels, the demo and the
one that runs the end-to-end tests on Microsoft's task hub, then the others in a random order.
The seed that it prints gives the same order and simulated worlds again; a sample plays a tenth of these. A
file that the time limit cuts off is reported and does not fail the check.
"""

import argparse
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

SAMPLE_SECONDS = 480
"""With the start of the last file, a sample stays within ten minutes."""

LONGEST_FILE_SECONDS = 120
"""No file of a sample gets more than this beyond the bound."""

ALWAYS: Final = (
    "packages/onebox/tests/integration/test_wheel.py",
    "tests/e2e/test_installed.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_microsoft_hub.py",
)
"""Part of every sample: no other test notices a wheel that lacks a file, a demo that is out of date, or what
only our own hub permits."""

SEEDS = 1_000_000

SAMPLE_SEED = "LONG_CHECKS_SAMPLE_SEED"
"""Environment variable with the seed of a sample; tests that draw cases use it, and draw fewer."""

NO_TESTS = 5
"""pytest's exit code when nothing was collected."""


def pytest(*arguments: str) -> list[str]:
    """Return the command of a run of long tests."""
    return [sys.executable, "-m", "pytest", "-m", "long", *arguments]


def long_files() -> list[str]:
    """Return the files that have long tests, in order.

    Raises:
        SystemExit: They cannot be collected, or there are none.
    """
    command = pytest("--collect-only")
    collected = subprocess.run(command, capture_output=True, text=True, check=False)
    if collected.returncode != 0:
        sys.exit(f"long checks: cannot collect:\n{collected.stdout}{collected.stderr}")
    return sorted({line.split("::")[0] for line in collected.stdout.splitlines() if "::" in line})


def run_files(files: Sequence[str], seconds: float | None, seed: int) -> list[str]:
    """Run files one after the other until the seconds are spent.

    Args:
        files: Paths below the repository.
        seconds: The bound; None runs all.
        seed: The seed of a sample.

    Returns:
        Those that failed.
    """
    began = time.monotonic()
    environment = os.environ | ({} if seconds is None else {SAMPLE_SEED: str(seed)})
    failed = []
    for file in files:
        left = None if seconds is None else seconds - (time.monotonic() - began)
        if left is not None and left <= 0:
            print(f"long checks: the time is up before {file}", flush=True)
            break
        print(f"long checks: {file}", flush=True)
        try:
            timeout = None if left is None else left + LONGEST_FILE_SECONDS
            # In a sample a file ends at its first failure: one that is cut off reports no earlier failures.
            command = pytest(file) if seconds is None else pytest("--exitfirst", file)
            ended = subprocess.run(command, check=False, timeout=timeout, env=environment)
        except subprocess.TimeoutExpired:
            print(f"long checks: {file} was cut off", flush=True)
            continue
        if ended.returncode not in {0, NO_TESTS}:
            failed.append(file)
    return failed


AZURE: Final = (
    *("batches", "bulk_replay", "categories", "circuits", "dead_letters", "handlers", "memory"),
    *("operations", "outbox", "queue", "sagas", "sources", "steering"),
)
"""The end-to-end tests of what the app promises; the others are about its tools."""


def holds_on_azures_terms(seed: int) -> bool:
    """Run the end-to-end tests on the terms of Azure Storage, drawn with a seed; return whether they pass."""
    files = [f"tests/e2e/test_{name}.py" for name in AZURE]
    semantics = f"azure:{seed}"
    print(f"long checks: the end-to-end tests with --semantics {semantics}", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "not long", "--semantics", semantics, *files]
    return subprocess.run(command, check=False).returncode == 0


def main() -> None:
    """Run the long tests; exit code 1 when one failed."""
    parser = argparse.ArgumentParser(prog="make test-long", description=__doc__)
    parser.add_argument("--sample", action="store_true", help=f"stop after {SAMPLE_SECONDS} s")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(SEEDS), help="of the order")
    arguments = parser.parse_args()
    files = long_files()
    print(f"long checks: {len(files)} files, seed {arguments.seed}", flush=True)
    random.Random(arguments.seed).shuffle(files)  # noqa: S311 - an order that a seed gives again
    if arguments.sample:
        files.sort(key=lambda file: file not in ALWAYS)
    failed = run_files(files, SAMPLE_SECONDS if arguments.sample else None, arguments.seed)
    if not arguments.sample and not holds_on_azures_terms(arguments.seed):
        failed.append("the end-to-end tests on Azure's terms")
    if failed:
        sys.exit(f"long checks: failed: {', '.join(failed)} (seed {arguments.seed})")


if __name__ == "__main__":
    main()
