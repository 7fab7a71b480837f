"""The task hub by itself: rates beside the in-memory backend's, and what waiting costs."""

import asyncio
import json
import sys
import time
from pathlib import Path

from bench.hub_waiting import PENDING, SPREAD_SECONDS, WAITING
from bench.numbers import Row, Table, milliseconds
from bench.systems import PLAIN_APP, onebox
from scripts.processes import ROOT

CHILD_SECONDS = 240
KINDS = {"turns": "orchestrator turns", "calls": "activity round trips", "adds": "entity operations"}
NOBODY = "http://127.0.0.1:1"  # the plain app wants a target, and is not asked to call it


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Runs each side in a process of its own, one after the other.

    Args:
        folder: Where the hubs keep their data.
    """
    ours = await _child("bench.hub_rates", "onebox", _folder(folder, "rates"))
    theirs = await _child("bench.hub_rates", "memory", folder)
    began = time.perf_counter()
    async with onebox(folder, PLAIN_APP, FLAKY_TARGET_URL=NOBODY, DELAY_SECONDS="1"):
        serving_seconds = time.perf_counter() - began
    waiting = await _child("bench.hub_waiting", _folder(folder, "waiting"))
    return [_rates(ours, theirs, serving_seconds), _waiting(waiting)]


def _folder(parent: Path, name: str) -> Path:
    (folder := parent / name).mkdir()
    return folder


async def _child(module: str, *arguments: object) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *map(str, arguments)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(CHILD_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}; see above")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def _rates(ours: dict[str, float], theirs: dict[str, float], serving_seconds: float) -> Table:
    rows = []
    for kind, name in KINDS.items():
        ratio = f"{ours[kind] / theirs[kind]:.1f}"
        rows.append(Row(name, "1/s", (f"{ours[kind]:.0f}", f"{theirs[kind]:.0f}", ratio)))
        cpu = f"{kind}_cpu"
        ratio = f"{theirs[cpu] / ours[cpu]:.1f}"
        times = (milliseconds(ours[cpu]), milliseconds(theirs[cpu]))
        rows.append(Row("- processor time of one", "ms", (*times, ratio)))
    first = "first_seconds"
    times = (milliseconds(ours[first]), milliseconds(theirs[first]))
    rows.append(Row("start to first instance's end", "ms", (*times, f"{theirs[first] / ours[first]:.1f}")))
    rows.append(Row("onebox with Azurite serves an app", "ms", (milliseconds(serving_seconds), "-", "-")))
    notes = (
        "50 instances at once, 20 steps each (turns: 40); hub, worker and client in one process over gRPC.",
        "onebox commits every step to SQLite on disk; the in-memory backend keeps nothing.",
        "Processor time hardly depends on what else the machine does; rates do.",
    )
    return Table("The task hub by itself", ("onebox", "in memory", "times better"), tuple(rows), notes)


def _waiting(found: dict[str, float]) -> Table:
    whens = ("empty", "pending", "waiting")
    rows = (
        Row("memory of the process", "MiB", tuple(f"{found[f'memory_{when}']:.0f}" for when in whens)),
        Row("processor while nothing is due", "%", tuple(f"{found[f'idle_{when}']:.2f}" for when in whens)),
        Row("processor time of one turn", "ms", tuple(milliseconds(found[f"turn_{when}"]) for when in whens)),
        Row("timer late by p50", "ms", ("-", "-", milliseconds(found["late_p50"]))),
        Row("timer late by p99", "ms", ("-", "-", milliseconds(found["late_p99"]))),
    )
    notes = [
        f"Then {PENDING:,} instances that begin tomorrow; then {WAITING:,} more that each wait on a timer.",
        f"Those timers fire over {SPREAD_SECONDS:g} s; lateness counts to the commit of what comes after.",
        f"The {WAITING:,} took {found['fall_asleep']:.0f} s to start, take a turn and wait.",
    ]
    if not found["in_time"]:
        notes.append("Timers fell due before all was measured: the machine was too busy for these numbers.")
    columns = ("empty hub", f"{PENDING:,} pending", f"and {WAITING:,} waiting")
    return Table("Instances that wait", columns, rows, tuple(notes))
