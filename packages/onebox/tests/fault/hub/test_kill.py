"""One hub that is killed (SIGKILL) at every named point in turn, with more work coming in each life."""

import os
import random
import signal
from pathlib import Path

import pytest

from onebox.hub import FaultPoint
from tests.long_checks import SAMPLE_SEED
from tests.support.onebox.hub_lives import LONGEST_LIFE_SECONDS, SEED, check, live, short_life

pytestmark = pytest.mark.long


KILLS = 20 if SAMPLE_SEED in os.environ else 200


@pytest.mark.timeout(180)
async def test_nothing_accepted_is_lost_or_applied_twice(tmp_path: Path) -> None:
    accepted: list[str] = []
    for life, point in enumerate(FaultPoint):
        code, lines = await live(tmp_path, life, point, "2")
        assert code == -signal.SIGKILL, f"{point} was never visited"
        accepted += [line.split()[1] for line in lines if line.startswith("accepted")]

    await check(tmp_path, accepted, len(FaultPoint))


@pytest.mark.timeout(40 * KILLS)
async def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    draws = random.Random(SEED)  # noqa: S311 - instants that a seed gives again
    accepted: list[str] = []
    for life in range(KILLS):
        accepted += await short_life(tmp_path, life, draws.uniform(0, LONGEST_LIFE_SECONDS))
    assert accepted, "each life died before it accepted anything"
    await check(tmp_path, accepted, KILLS)
