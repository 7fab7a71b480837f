"""Upkeep holds at 200 operations a second: what is kept for a day is as much as the operations of a day."""

from datetime import timedelta

import pytest

from bench import upkeep
from bench.upkeep import KEPT, PER_SECOND, SCALE, Week

pytestmark = pytest.mark.long

A_DAY = PER_SECOND * KEPT.total_seconds() / SCALE


async def test_sizes_stay_bounded_and_every_part_has_time_left() -> None:
    week = Week()
    await week.live(days=4)
    for name, size in week.sizes[-1].items():
        per_operation = {"Outbox": 1.5, "instances": 1.5}.get(name, 1.0)
        # Rounds begin once an hour, and find what became too old since the one before.
        assert size <= A_DAY * per_operation * 1.1 + 20, name
        assert size <= 1.01 * week.sizes[-2][name] + 5, name
    assert max(week.busy.values()) < timedelta(days=4).total_seconds() / 2


async def test_upkeep_that_falls_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "REQUEST_SECONDS", 20 * upkeep.REQUEST_SECONDS)
    week = Week()
    await week.live(days=3)
    assert week.sizes[-1]["OperationIndex"] > 1.2 * A_DAY
