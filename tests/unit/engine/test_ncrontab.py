from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from engine.ncrontab import NcrontabError, parse_ncrontab


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


@pytest.mark.parametrize(
    ("schedule", "now", "after", "until"),
    [
        ("0 */5 * * * *", "2026-11-21T10:02:00", "2026-11-21T10:05:00", "2026-11-21T10:00:00"),
        ("*/5 * * * *", "2026-11-21T10:02:00", "2026-11-21T10:05:00", "2026-11-21T10:00:00"),
        ("0 30 3 * * *", "2026-11-21T03:30:00", "2026-11-22T03:30:00", "2026-11-21T03:30:00"),
        ("* * * * * *", "2026-12-31T23:59:59", "2027-01-01T00:00:00", "2026-12-31T23:59:59"),
        ("0 0 0 29 feb *", "2026-11-21T00:00:00", "2028-02-29T00:00:00", "2024-02-29T00:00:00"),
        ("0 0 9 * * mon-fri", "2026-11-21T10:00:00", "2026-11-23T09:00:00", "2026-11-20T09:00:00"),
        ("0 0 9 * * 7", "2026-11-21T10:00:00", "2026-11-22T09:00:00", "2026-11-15T09:00:00"),
        ("15,45 0 8-18/5 1 jan-mar *", "2026-11-21T10:00:00", "2027-01-01T08:00:15", "2026-03-01T18:00:45"),
    ],
)
def test_due_times_lie_before_and_after(schedule: str, now: str, after: str, until: str) -> None:
    found = parse_ncrontab(schedule)
    assert (found.due_after(at(now)), found.due_until(at(now))) == (at(after), at(until))


def test_a_fraction_of_a_second_counts() -> None:
    schedule = parse_ncrontab("*/10 * * * * *")
    just_before = at("2026-11-21T10:00:09.999999")
    assert schedule.due_until(just_before) == at("2026-11-21T10:00:00")
    assert schedule.due_after(just_before) == at("2026-11-21T10:00:10")


def test_another_zone_is_the_same_instant() -> None:
    nine = datetime(2026, 11, 21, 9, 0, tzinfo=timezone(timedelta(hours=5)))
    assert parse_ncrontab("0 0 * * * *").due_until(nine) == nine.astimezone(UTC)


def test_due_times_between_two_instants_come_latest_first() -> None:
    found = parse_ncrontab("0 0 */6 * * *").dues_between(at("2026-11-20T06:00:00"), at("2026-11-21T00:00:00"))
    assert [due.hour for due in found] == [0, 18, 12]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * * 13 *",
        "* * * * * 8",
        "5-1 * * * * *",
        "*/0 * * * * *",
        "*-5 * * * * *",
        "x * * * * *",
        "* * * * mon *",
        "0 0 0 30 2 *",
        "00:05:00",
        "* * * * * * *",
        "\u0665 * * * * *",
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(NcrontabError):
        parse_ncrontab(text)


def test_before_the_first_time_of_a_day_the_day_before_counts() -> None:
    assert parse_ncrontab("0 30 8 * * *").due_until(at("2026-11-21T08:00:00")) == at("2026-11-20T08:30:00")


def test_a_date_that_does_not_exist_was_never_due_and_never_will_be() -> None:
    never = replace(parse_ncrontab("0 0 0 * * *"), days=frozenset({30}), months=frozenset({2}))
    for look in (never.due_until, never.due_after):
        with pytest.raises(NcrontabError, match="never c"):
            look(at("2026-11-21T08:00:00"))
