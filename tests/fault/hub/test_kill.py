"""One hub that is killed (SIGKILL) at every named point in turn, with more work coming in each life."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from onebox.hub import FaultPoint
from tests.fault.hub.workload import OUTPUT

pytestmark = pytest.mark.long


_ROOT = Path(__file__).parents[3]


async def _live(folder: Path, life: int, *where: str) -> tuple[int, list[str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.hub.child", str(folder), str(life), *where),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines()


@pytest.mark.timeout(180)
async def test_nothing_accepted_is_lost_or_applied_twice(tmp_path: Path) -> None:
    accepted: list[str] = []
    for life, point in enumerate(FaultPoint):
        code, lines = await _live(tmp_path, life, point, "2")
        assert code == -signal.SIGKILL, f"{point} was never visited"
        accepted += [line.split()[1] for line in lines if line.startswith("accepted")]

    code, lines = await _live(tmp_path, len(FaultPoint))
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
    runs = len((tmp_path / "runs.log").read_text().split())
    distinct = 2 * len(mixed) + 2 * len(rounds)
    assert distinct <= runs, "an activity never ran"
    assert runs - distinct <= 64, "more activities ran again than can have been in flight"
