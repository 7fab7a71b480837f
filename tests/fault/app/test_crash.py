"""kill -9 of host, worker or storage emulator at random instants, `KILLS` times: see bench/crash.py."""

import os
from pathlib import Path

import pytest

from bench.crash import Plan, crash
from tests.long_checks import SAMPLE_SEED

KILLS = int(os.environ.get("KILLS", "2" if SAMPLE_SEED in os.environ else "200"))
SEED = int(os.environ.get(SAMPLE_SEED, "31"))
OPERATIONS_OF_A_LIFE = 60
SECONDS_OF_A_LIFE = 60

pytestmark = [pytest.mark.long, pytest.mark.timeout(KILLS * SECONDS_OF_A_LIFE + 600)]


@pytest.mark.parametrize("workers", [0, 1], ids=["own process", "worker process"])
async def test_kills_of_any_part_lose_nothing_hasten_nothing_and_miscount_no_attempt(
    workers: int, tmp_path: Path
) -> None:
    plan = Plan(OPERATIONS_OF_A_LIFE * KILLS, KILLS, SEED, workers)
    findings, kills = await crash(tmp_path, plan)
    assert len(kills) == KILLS
    assert not any(findings.broken.values()), findings.broken
