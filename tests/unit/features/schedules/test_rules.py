from datetime import UTC, datetime, timedelta, timezone

import pytest

from durable_retry.features.schedules.rules import (
    MAX_CAUGHT_UP,
    NcrontabError,
    ScheduledOperation,
    parse_ncrontab,
    parse_schedules,
)
from tests.support.mistakes import pointers_of


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


@pytest.mark.parametrize(
    ("schedule", "now", "until"),
    [
        ("0 */5 * * * *", "2026-11-21T10:02:00", "2026-11-21T10:00:00"),
        ("*/5 * * * *", "2026-11-21T10:02:00", "2026-11-21T10:00:00"),
        ("0 30 3 * * *", "2026-11-21T03:30:00", "2026-11-21T03:30:00"),
        ("* * * * * *", "2026-12-31T23:59:59", "2026-12-31T23:59:59"),
        ("0 0 0 29 feb *", "2026-11-21T00:00:00", "2024-02-29T00:00:00"),
        ("0 0 9 * * mon-fri", "2026-11-21T10:00:00", "2026-11-20T09:00:00"),
        ("0 0 9 * * su", "2026-11-21T10:00:00", "2026-11-15T09:00:00"),
        ("0 0 9 13 * fri", "2026-11-21T10:00:00", "2026-11-13T09:00:00"),
        ("0 0 9 * January Monday", "2026-11-21T10:00:00", "2026-01-26T09:00:00"),
        ("0 5/20 * * * *", "2026-11-21T10:00:00", "2026-11-21T09:45:00"),
        ("0 0 9 * * 5-5", "2026-11-21T10:00:00", "2026-11-20T09:00:00"),
        ("0 0 9 * * Friday-fri/2", "2026-11-19T10:00:00", "2026-11-13T09:00:00"),
        ("0 0 9 1 1-jan *", "2026-11-21T10:00:00", "2026-01-01T09:00:00"),
        ("15,45 0 8-18/5 1 jan-mar *", "2026-11-21T10:00:00", "2026-03-01T18:00:45"),
    ],
)
def test_the_last_due_time_lies_before(schedule: str, now: str, until: str) -> None:
    assert parse_ncrontab(schedule).due_until(at(now)) == at(until)


def test_a_fraction_of_a_second_counts() -> None:
    schedule = parse_ncrontab("*/10 * * * * *")
    assert schedule.due_until(at("2026-11-21T10:00:09.999999")) == at("2026-11-21T10:00:00")
    assert schedule.due_until(at("2026-11-21T10:00:10")) == at("2026-11-21T10:00:10")


def test_a_day_that_never_comes_is_named_as_such() -> None:
    with pytest.raises(NcrontabError, match=r"'0 0 0 31 2 \*' never comes due"):
        parse_ncrontab("0 0 0 31 2 *")


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
        "* * * * * 7",
        "* * * * * 1-7",
        "* * * * * 8",
        "* * * * * munday",
        "* * * * janury *",
        "* * mon * * *",
        "5-1 * * * * *",
        "*/0 * * * * *",
        "*-5 * * * * *",
        "x * * * * *",
        "* * * * mon *",
        "* * * * mon-mon *",
        "* * * * * mon-xyz",
        "* * * * * 5-5/0",
        "0 0 0 30 2 *",
        "00:05:00",
        "* * * * * * *",
        "\u0665 * * * * *",
        "* * * l * *",
        "0 0 9 * * 1#2",
        "? * * * * *",
        "r * * * * *",
        "0 0 9 * * sat-sun",
        "* * * * dec-jan *",
        "0 0 9 * foo *",
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(NcrontabError):
        parse_ncrontab(text)


def test_before_the_first_time_of_a_day_the_day_before_counts() -> None:
    assert parse_ncrontab("0 30 8 * * *").due_until(at("2026-11-21T08:00:00")) == at("2026-11-20T08:30:00")


CALL = 'dependency = "reports"\nrequest = { method = "POST", path = "/nightly" }\n'
NOW = datetime.fromisoformat("2026-11-21T10:00:00.020Z")


def scheduled(more: str = "", schedule: str = "0 * * * * *") -> ScheduledOperation:
    (found,) = parse_schedules(f'[operations.nightly]\nschedule = "{schedule}"\n{more}\n{CALL}')
    return found


def minutes(*ago: float) -> list[datetime]:
    return [NOW.replace(microsecond=0) - timedelta(minutes=each) for each in ago]


def test_an_operation_is_read_with_its_schedule() -> None:
    found = scheduled()
    assert (found.name, found.expression, found.request.dependency) == ("nightly", "0 * * * * *", "reports")
    assert found.key(minutes(0)[0]) == "nightly@2026-11-21T10:00:00Z"


def test_a_fire_stands_for_the_due_time_that_it_is_about() -> None:
    (last,) = minutes(1)
    for off in (timedelta(milliseconds=-300), timedelta(), timedelta(seconds=20)):
        assert scheduled().dues(last, NOW + off, is_late=False) == minutes(0)


@pytest.mark.parametrize(
    ("catch_up", "expected"), [("last", minutes(0)), ("all", minutes(2, 1, 0)), ("none", [])]
)
def test_a_late_fire_makes_good_what_was_asked_for(catch_up: str, expected: list[datetime]) -> None:
    (last,) = minutes(3)
    assert scheduled(f'catch_up = "{catch_up}"').dues(last, NOW, is_late=True) == expected


def test_catching_up_has_a_limit_and_takes_the_latest() -> None:
    found = scheduled('catch_up = "all"').dues(NOW - timedelta(days=7), NOW, is_late=True)
    assert (len(found), found[-1]) == (MAX_CAUGHT_UP, minutes(0)[0])


def test_without_a_record_only_the_latest_counts() -> None:
    assert scheduled('catch_up = "all"').dues(None, NOW, is_late=True) == minutes(0)


INPUT = "/operations/a/input/0"


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ("nonsense", [""]),
        ("", [""]),
        ("[operations]", [""]),
        ("operations = 5", [""]),
        (f"[operations.a]\n{CALL}", ["/operations/a/schedule"]),
        (f'[operations.a]\nschedule = "0 0"\n{CALL}', ["/operations/a/schedule"]),
        (f'[operations.A_b]\nschedule = "0 * * * * *"\n{CALL}', ["/operations/A_b"]),
        (f'[operations.a]\nschedule = "0 * * * * *"\nkey = "k"\n{CALL}', ["/operations/a/key"]),
        (f'[operations.a]\nschedule = "0 * * * * *"\ncatch_up = "some"\n{CALL}', ["/operations/a/catch_up"]),
        ('[operations.a]\nschedule = "0 * * * * *"\nhandler = "h"\ninput = 2026-11-21', ["/operations/a"]),
        *(
            (f'[operations.a]\nschedule = "0 * * * * *"\nhandler = "h"\ninput = [{number}]', [INPUT])
            for number in ("0.1000000000000000055", "inf", "1_234_567_890_123_456_7.1")
        ),
        ('[operations.a]\nschedule = "0 * * * * *"\ncolour = 1', ["/operations/a", "/operations/a/colour"]),
        ("[operations]\na = 5\n[more]", ["/more", "/operations/a"]),
    ],
)
def test_every_mistake_is_reported_with_its_pointer(text: str, pointers: list[str]) -> None:
    assert pointers_of(parse_schedules, text) == pointers
