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


INVOKERS = ["AppInvoker", "WaitingInvoker"]
KILLS = 20 if SAMPLE_SEED in os.environ else 200


@pytest.mark.timeout(180)
@pytest.mark.parametrize("invoker", INVOKERS)
async def test_nothing_accepted_is_lost_or_applied_twice(tmp_path: Path, invoker: str) -> None:
    accepted: list[str] = []
    for life, point in enumerate(FaultPoint):
        code, lines = await live(tmp_path, life, point, "2", INVOKER=invoker)
        assert code == -signal.SIGKILL, f"{point} was never visited"
        accepted += [line.split()[1] for line in lines if line.startswith("accepted")]

    await check(tmp_path, accepted, len(FaultPoint))


@pytest.mark.timeout(40 * KILLS)
@pytest.mark.parametrize("invoker", INVOKERS)
async def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path, invoker: str) -> None:
    draws = random.Random(SEED)  # noqa: S311 - instants that a seed gives again
    accepted: list[str] = []
    for life in range(KILLS):
        seconds = draws.uniform(0, LONGEST_LIFE_SECONDS)
        accepted += await short_life(tmp_path, life, seconds, INVOKER=invoker)
    assert accepted, "each life died before it accepted anything"
    await check(tmp_path, accepted, KILLS)
