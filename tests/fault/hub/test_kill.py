"""One hub that is killed (SIGKILL) at every named point in turn, with more work coming in each life."""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from onebox.hub import FaultPoint
from scripts.long_checks import SAMPLE_SEED
from tests.fault.hub.workload import OUTPUT

pytestmark = pytest.mark.long


SEED = int(os.environ.get(SAMPLE_SEED, "15"))
KILLS = 20 if SAMPLE_SEED in os.environ else 200
LONGEST_LIFE_SECONDS = 0.4
_ROOT = Path(__file__).parents[3]


async def live(folder: Path, life: int, *where: str, **env: str) -> tuple[int, list[str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.hub.child", str(folder), str(life), *where),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines()


@pytest.mark.timeout(180)
async def test_nothing_accepted_is_lost_or_applied_twice(tmp_path: Path) -> None:
    accepted: list[str] = []
    for life, point in enumerate(FaultPoint):
        code, lines = await live(tmp_path, life, point, "2")
        assert code == -signal.SIGKILL, f"{point} was never visited"
        accepted += [line.split()[1] for line in lines if line.startswith("accepted")]

    await check(tmp_path, accepted, len(FaultPoint))


async def check(folder: Path, accepted: list[str], lives: int) -> None:
    """Let one more life finish everything, and look at what became of it."""
    code, lines = await live(folder, lives)
    accepted += [line.split()[1] for line in lines if line.startswith("accepted")]
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


async def short_life(folder: Path, life: int, seconds: float, **env: str) -> list[str]:
    """Kill a life so many seconds after it began; return what it had accepted."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.hub.child", str(folder), str(life), "wait"),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"began\n"
    await asyncio.sleep(seconds)  # the instant of the death is what the seed draws
    process.kill()
    out, _ = await process.communicate()
    return [line.split()[1] for line in out.decode().splitlines() if line.startswith("accepted")]


@pytest.mark.timeout(40 * KILLS)
async def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    draws = random.Random(SEED)  # noqa: S311 - instants that a seed gives again
    accepted: list[str] = []
    for life in range(KILLS):
        accepted += await short_life(tmp_path, life, draws.uniform(0, LONGEST_LIFE_SECONDS))
    assert accepted, "each life died before it accepted anything"
    await check(tmp_path, accepted, KILLS)
