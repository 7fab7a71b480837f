"""The task hub over several lives, each a process that is killed or ends its work, and the check after."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from scripts.processes import ROOT
from tests.long_checks import SAMPLE_SEED
from tests.support.narrowing import existing
from tests.support.onebox.workload import OUTPUT

SEED: Final = int(os.environ.get(SAMPLE_SEED, "15"))
LONGEST_LIFE_SECONDS: Final = 0.4


async def _begin(folder: Path, life: int, *where: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.onebox.hub_child", str(folder), str(life), *where),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **env},
    )


async def live(folder: Path, life: int, *where: str, **env: str) -> tuple[int, list[str]]:
    """Run a life to its end; return its exit code and the lines that it wrote."""
    process = await _begin(folder, life, *where, **env)
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines()


async def short_life(folder: Path, life: int, seconds: float, **env: str) -> list[str]:
    """Kill a life so many seconds after it began; return what it had accepted."""
    process = await _begin(folder, life, "wait", **env)
    assert await existing(process.stdout).readline() == b"began\n"
    await asyncio.sleep(seconds)  # the instant of the death is what the seed draws
    process.kill()
    out, _ = await process.communicate()
    return accepted_in(out.decode().splitlines())


def accepted_in(lines: list[str]) -> list[str]:
    """Return what a life had accepted, by the lines that it wrote."""
    return [line.split()[1] for line in lines if line.startswith("accepted")]


async def check(folder: Path, accepted: list[str], lives: int) -> None:
    """Run one more life to the end of all work, and check the results."""
    code, lines = await live(folder, lives)
    accepted += accepted_in(lines)
    assert code == 0
    report = json.loads(lines[-1])
    outputs: dict[str, str | None] = report["outputs"]
    mixed = [instance_id for instance_id in outputs if instance_id.startswith("mixed")]
    rounds = [instance_id for instance_id in outputs if instance_id.startswith("rounds")]

    assert set(accepted) <= set(outputs), "an accepted start was lost"
    assert {outputs[instance_id] for instance_id in mixed} == {OUTPUT}
    assert report["counter"] == str(len(mixed)), "an awaited entity call was lost or applied twice"
    assert report["signals"] == str(2 * len(rounds)), "a signal was lost or applied twice"
    runs = len((folder / "runs.log").read_text().split())
    distinct = 2 * len(mixed) + 2 * len(rounds)
    assert distinct <= runs, "an activity never ran"
    assert runs - distinct <= 64 * lives, "more activities ran again than can have been in flight"
