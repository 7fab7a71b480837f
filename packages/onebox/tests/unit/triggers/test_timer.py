import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebox.clock import ManualClock
from onebox.triggers.schedule import parse_schedule
from onebox.triggers.timer import Timer, TimerRecords, TimerStatus

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)  # a Saturday


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("* * * * * *", "2026-11-21 12:00:01"),
        ("0 */5 * * * *", "2026-11-21 12:05:00"),
        ("30 0 * * * *", "2026-11-21 12:00:30"),
        ("0 0 12 * * *", "2026-11-22 12:00:00"),
        ("0 30 9 * * Mon-Fri", "2026-11-23 09:30:00"),
        ("0 0 0 1 jan *", "2027-01-01 00:00:00"),
        ("0 0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 0 0 13 * 5", "2027-08-13 00:00:00"),
        ("0 0 9-17/4 * * *", "2026-11-21 13:00:00"),
        ("0 0 20/2 * * *", "2026-11-21 20:00:00"),
        ("0 15,45 * * * *", "2026-11-21 12:15:00"),
        ("0 0 0 * * Su", "2026-11-22 00:00:00"),
        ("0 0 0 * * 5-5", "2026-11-27 00:00:00"),
        ("0 0 0 1 March-mar/2 *", "2027-03-01 00:00:00"),
        ("0 0 9 * * 1/5", "2026-11-23 09:00:00"),
        ("*/5 * * * *", "2026-11-21 12:05:00"),
        ("01:00:00", "2026-11-21 13:00:00"),
        ("1.00:00:00", "2026-11-22 12:00:00"),
    ],
)
def test_a_schedule_comes_due(schedule: str, due: str) -> None:
    assert parse_schedule(schedule).next_after(NOON) == at(due)


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "x",
        "* * *",
        "60 * * * * *",
        "* * 24 * * *",
        "0 0 0 30 2 *",
        "* * * * 13 *",
        "*/0 * * * * *",
        "5-1 * * * * *",
        "00:00:00",
        "a b c d e f",
        "0 0 0 * * 7",
        "0 0 0 * * 0-7",
        "0 0 0 * * munday",
        "0 0 0 * janury *",
        "0 0 mon * * *",
        "0 0 0 L * *",
        "0 0 0 * * fri#2",
        "0 0 0 * * fri-day",
        "0 0 0 * * 5-5/0",
        "24:00:00",
    ],
)
def test_what_never_comes_due_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_schedule(schedule)


@given(
    st.integers(min_value=0, max_value=3_000_000_000),
    st.sampled_from(["0 */7 3-9 * * *", "*/13 5 * 1,15 * *"]),
)
def test_due_times_follow_each_other_and_match(seconds: int, text: str) -> None:
    schedule, moment = parse_schedule(text), datetime.fromtimestamp(seconds, UTC)
    first = schedule.next_after(moment)
    second = schedule.next_after(first)
    assert moment < first < second
    assert schedule.next_after(first - timedelta(microseconds=1)) == first
    assert schedule.next_after(second - timedelta(seconds=1)) == second


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class Bench:
    """A timer, what it fired with, and a way to let time pass."""

    def __init__(self, schedule: str, *, records: TimerRecords | None = None, at_start: bool = False) -> None:
        self.clock = ManualClock(NOON)
        self.fired: list[tuple[datetime, dict[str, Any]]] = []
        self.takes = timedelta()
        self.fails = False
        self.timer = Timer(
            "tick", parse_schedule(schedule), self.fire, self.clock, records=records, run_on_startup=at_start
        )

    async def fire(self, datum: Any) -> None:
        self.fired.append((self.clock.now(), json.loads(datum.value)))
        self.clock.advance(self.takes)
        if self.fails:
            raise RuntimeError("cannot be fired")

    async def passes(self, span: timedelta) -> None:
        """Lets time pass, second by second."""
        for _ in range(int(span.total_seconds())):
            self.clock.advance(timedelta(seconds=1))
            await settle()

    @property
    def seconds(self) -> list[float]:
        return [(moment - NOON).total_seconds() for moment, _ in self.fired]


@pytest.fixture
async def benches() -> AsyncIterator[list[Bench]]:
    """Benches to be stopped at the end."""
    started: list[Bench] = []
    yield started
    for bench in started:
        await bench.timer.stop(0)


async def start(benches: list[Bench], bench: Bench) -> Bench:
    benches.append(bench)
    bench.timer.start()
    await settle()
    return bench


async def test_it_fires_on_schedule(benches: list[Bench]) -> None:
    bench = await start(benches, Bench("*/10 * * * * *"))
    await bench.passes(timedelta(seconds=35))
    assert bench.seconds == [10, 20, 30]
    assert bench.fired[0][1]["IsPastDue"] is False
    assert bench.fired[1][1]["ScheduleStatus"]["Last"] == "2026-11-21T12:00:10+00:00"
    assert bench.fired[1][1]["ScheduleStatus"]["Next"] == "2026-11-21T12:00:30+00:00"


async def test_an_interval_counts_from_the_due_time(benches: list[Bench]) -> None:
    bench = await start(benches, Bench("00:00:10"))
    await bench.passes(timedelta(seconds=25))
    assert bench.seconds == [10, 20]


async def test_runs_do_not_overlap_and_what_came_due_meanwhile_is_skipped(benches: list[Bench]) -> None:
    bench = await start(benches, Bench("*/10 * * * * *"))
    bench.takes = timedelta(seconds=25)
    await bench.passes(timedelta(seconds=15))
    assert bench.seconds == [10, 40]


async def test_it_can_fire_at_start(benches: list[Bench]) -> None:
    bench = await start(benches, Bench("0 0 0 * * *", at_start=True))
    assert bench.seconds == [0]
    assert bench.fired[0][1]["IsPastDue"] is False


async def test_what_was_missed_while_nothing_ran_fires_at_start_as_past_due(
    benches: list[Bench], tmp_path: Path
) -> None:
    records = TimerRecords(tmp_path / "timers.json")
    before = NOON - timedelta(days=1)
    records.write("tick", TimerStatus(before, NOON - timedelta(hours=1), before))
    bench = await start(benches, Bench("0 0 11 * * *", records=records))
    ((_, info),) = bench.fired
    assert info["IsPastDue"] is True
    assert info["ScheduleStatus"]["Last"] == "2026-11-20T12:00:00+00:00"
    known = records.read("tick")
    assert known is not None
    assert known.next_due == datetime(2026, 11, 22, 11, tzinfo=UTC)


async def test_nothing_is_made_good_when_nothing_was_missed(benches: list[Bench], tmp_path: Path) -> None:
    records = TimerRecords(tmp_path / "timers.json")
    records.write("tick", TimerStatus(None, NOON + timedelta(hours=1), NOON))
    bench = await start(benches, Bench("0 0 13 * * *", records=records))
    assert bench.fired == []


@pytest.mark.shows("R10")
async def test_an_error_in_firing_is_outlived(benches: list[Bench]) -> None:
    bench = Bench("*/10 * * * * *")
    bench.fails = True
    await start(benches, bench)
    await bench.passes(timedelta(seconds=25))
    assert bench.seconds == [10, 20]


def test_a_broken_record_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "timers.json"
    path.write_text("{")
    assert TimerRecords(path).read("tick") is None
