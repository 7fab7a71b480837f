from datetime import datetime, timedelta

import pytest

from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.intake.schedules import MAX_CAUGHT_UP, ScheduledOperation, parse_schedules

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
        ('[operations.a]\nschedule = "0 * * * * *"\ncolour = 1', ["/operations/a", "/operations/a/colour"]),
        ("[operations]\na = 5\n[more]", ["/more", "/operations/a"]),
    ],
)
def test_every_mistake_is_told_with_its_place(text: str, pointers: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schedules(text)
    assert [problem.pointer for problem in caught.value.problems] == pointers
