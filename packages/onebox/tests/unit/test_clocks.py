import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from onebox.clock import ManualClock, SystemClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(NOON)
    assert clock.now() == NOON
    clock.advance(timedelta(hours=1))
    assert clock.now() == NOON + timedelta(hours=1)
    assert clock.monotonic() == 3600


async def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock(NOON)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(timedelta(seconds=-1))


async def test_a_wait_ends_when_its_instant_has_come() -> None:
    clock = ManualClock(NOON)
    waiting = asyncio.create_task(clock.wait(NOON + timedelta(minutes=5), asyncio.Event()))
    await asyncio.sleep(0)
    assert clock.next_due == NOON + timedelta(minutes=5)
    clock.advance(timedelta(minutes=4))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(timedelta(minutes=1))
    await asyncio.wait_for(waiting, timeout=60)
    assert clock.next_due is None


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["manual", "system"])
async def test_a_wait_ends_when_it_is_woken(clock: ManualClock | SystemClock) -> None:
    wake = asyncio.Event()
    waiting = asyncio.create_task(clock.wait(clock.now() + timedelta(hours=1), wake))
    await asyncio.sleep(0)
    wake.set()
    await asyncio.wait_for(waiting, timeout=60)


async def test_the_system_clock_waits_for_an_instant() -> None:
    clock = SystemClock()
    until = clock.now() + timedelta(milliseconds=20)
    while clock.now() < until:
        await clock.wait(until, asyncio.Event())
    assert clock.now() - until < timedelta(seconds=5)


class Machine:
    """A wall clock that can be set, and a monotonic one that cannot."""

    def __init__(self) -> None:
        self.wall_ns = int(NOON.timestamp()) * 10**9
        self.monotonic_ns = 5
        self.clock = SystemClock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def pass_seconds(self, seconds: float) -> datetime:
        self.wall_ns += round(seconds * 1e9)
        self.monotonic_ns += round(seconds * 1e9)
        return self.clock.now()

    def step(self, seconds: float) -> datetime:
        self.wall_ns += round(seconds * 1e9)
        return self.clock.now()


def test_the_clock_is_the_machines() -> None:
    machine = Machine()
    assert machine.clock.now() == NOON
    assert machine.pass_seconds(1.5) == NOON + timedelta(seconds=1.5)
    assert machine.clock.monotonic() == pytest.approx(1.5)


def test_a_step_forward_is_followed() -> None:
    assert Machine().step(3600) == NOON + timedelta(hours=1)


def test_after_a_step_back_time_goes_on_at_half_speed_until_the_machine_has_caught_up() -> None:
    machine = Machine()
    assert machine.step(-1) == NOON
    assert machine.pass_seconds(1) == NOON + timedelta(seconds=0.5)
    assert machine.pass_seconds(1) == NOON + timedelta(seconds=1)
    assert machine.pass_seconds(1) == NOON + timedelta(seconds=2)
