from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebox.triggers.schedule import parse_schedule

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)  # a Saturday


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
        ("0 0 0 * * 7", "2026-11-22 00:00:00"),
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
