from datetime import timedelta

import pytest

from onebox.clock import ManualClock
from onebox.worker.crashes import Crashes


@pytest.mark.parametrize("processes", [1, 2, 10])
def test_three_crashes_for_each_process_are_too_many(processes: int) -> None:
    crashes = Crashes(processes, ManualClock())
    for _ in range(3 * processes - 1):
        crashes.note()
        assert not crashes.are_too_many
    crashes.note()
    assert crashes.are_too_many


@pytest.mark.parametrize(("minutes", "too_many"), [(30, True), (30.1, False)])
def test_crashes_are_forgotten_after_more_than_half_an_hour_without_one(
    minutes: float, *, too_many: bool
) -> None:
    clock = ManualClock()
    crashes = Crashes(1, clock)
    for _ in range(2):
        crashes.note()
        clock.advance(timedelta(minutes=minutes))
    crashes.note()
    assert crashes.are_too_many is too_many
