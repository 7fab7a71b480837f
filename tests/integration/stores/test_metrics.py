from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry.base.names import Category
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.facts import LimitsRead
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from durable_retry_console.metrics import minutes as metrics
from durable_retry_console.metrics.minutes import Minutes, remove_before
from durable_retry_console.metrics.series import metrics_between
from scripts.processes import eventually
from tests.support.builders import PAYMENTS
from tests.support.counting import attempt_ended, counted

pytestmark = pytest.mark.usefixtures("any_tables")

EVENING = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Worker:
    """One process with minutes of its own, and the clock of all."""

    now: datetime = EVENING

    def __init__(self) -> None:
        self.minutes = Minutes()

    def attempts(
        self, *instants: datetime, dependency: str = "payments", category: Category | None = None
    ) -> None:
        for instant in instants:
            Worker.now = instant
            self.minutes.count(
                dependency, counted(LimitsRead(dependency, 8, 0), attempt_ended(40.0, category))
            )

    def wrote_attempts(self, *instants: datetime, **more: Any) -> None:
        for instant in instants:
            self.attempts(instant, **more)
            assert self.minutes.flush()


@pytest.fixture(autouse=True)
def own_table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = "".join(letter for letter in request.node.name if letter.isalnum())[:60]
    monkeypatch.setattr(metrics, "TABLE", name)
    renamed = Config({"payments": replace(PAYMENTS, was=("till",))})
    with clock.reading(lambda: Worker.now), using(renamed):
        yield


def minutes_after(*numbers: int) -> list[datetime]:
    return [EVENING + number * MINUTE for number in numbers]


async def attempts_by_point(begin: datetime, end: datetime, *names: str) -> list[tuple[str, int]]:
    found = await metrics_between(names or ("payments",), begin, end)
    return [(f"{point.at:%H:%M}", point.attempts) for point in found.points if point.attempts]


async def test_minutes_of_two_workers_add_up_and_are_written_as_often_as_wanted() -> None:
    one, other = Worker(), Worker()
    one.attempts(*minutes_after(0, 0, 1))
    assert one.minutes.flush()
    one.attempts(*minutes_after(1))
    other.attempts(*minutes_after(1))
    assert one.minutes.flush()
    assert one.minutes.flush()
    assert other.minutes.flush()
    assert await attempts_by_point(EVENING, EVENING + 2 * MINUTE) == [("22:00", 2), ("22:01", 3)]


async def test_what_was_counted_by_an_earlier_name_is_of_the_present_one() -> None:
    worker = Worker()
    worker.wrote_attempts(*minutes_after(0, 1), dependency="till")
    worker.wrote_attempts(*minutes_after(1, 2))
    assert await attempts_by_point(EVENING, EVENING + 3 * MINUTE) == [
        ("22:00", 1),
        ("22:01", 2),
        ("22:02", 1),
    ]


async def test_a_range_over_midnight_and_two_dependencies() -> None:
    worker = Worker()
    worker.attempts(*minutes_after(118, 119, 120, 121))
    worker.attempts(*minutes_after(119), dependency="other")
    assert worker.minutes.flush()
    begin, end = minutes_after(119, 121)
    assert await attempts_by_point(begin, end, "payments") == [("23:59", 1), ("00:00", 1)]
    found = await metrics_between(("other", "payments"), begin, end)
    assert found.total.attempts == 3
    assert [one.current_concurrency for one in (found.total, *found.points, *found.dependencies)] == [
        *(None,) * 3,
        8,
        8,
    ], "limits of several dependencies have no sum"
    alone = await metrics_between(("payments",), begin, end)
    assert [one.current_concurrency for one in (alone.total, *alone.points)] == [8, 8, 8]
    assert [(one.dependency, one.attempts) for one in found.dependencies] == [
        ("other", 1),
        ("payments", 2),
    ]


async def test_a_long_range_has_every_number_in_longer_steps() -> None:
    one, other = Worker(), Worker()
    for worker in (one, other):
        worker.wrote_attempts(*minutes_after(*range(0, 70, 3)), category=Category.TRANSIENT)
        worker.wrote_attempts(*minutes_after(71), dependency="other")
    names = ("other", "payments")
    short = await metrics_between(names, EVENING, EVENING + 2 * HOUR)
    long = await metrics_between(names, EVENING - 4 * HOUR, EVENING + 2 * HOUR)
    assert (short.step_seconds, long.step_seconds) == (60, 300)
    assert (long.total, long.dependencies) == (short.total, short.dependencies)
    assert (long.total.attempts, len(long.points)) == (50, 72)


async def test_old_days_are_removed() -> None:
    Worker().wrote_attempts(*minutes_after(0, 1, 24 * 60))
    assert await remove_before(EVENING + HOUR, 10) == 0
    assert await remove_before(EVENING + timedelta(days=1), 10) == 3
    assert (await tables.rows_between(metrics.TABLE, "2026-03-04")).rows == []
    assert len((await tables.rows_between(metrics.TABLE, "2026-03-05")).rows) == 2


async def test_what_storage_did_not_take_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise ServiceResponseError("away")

    worker = Worker()
    worker.attempts(*minutes_after(0))
    with monkeypatch.context() as outage:
        outage.setattr(tables, "with_table", away)
        assert not worker.minutes.flush()
    worker.attempts(*minutes_after(1))
    assert worker.minutes.flush()
    assert await attempts_by_point(EVENING, EVENING + 2 * MINUTE) == [("22:00", 1), ("22:01", 1)]


async def test_a_thread_writes_by_itself_and_the_end_writes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FLUSH_SECONDS", 0.05)
    worker = Worker()
    worker.minutes.begin()
    worker.attempts(*minutes_after(0))
    eventually(lambda: not worker.minutes.has_unwritten, "the thread has written")
    monkeypatch.setattr(metrics, "FLUSH_SECONDS", 600.0)
    worker.attempts(*minutes_after(1, 2))
    worker.minutes.end()
    assert not worker.minutes.has_unwritten
    found = await attempts_by_point(EVENING, EVENING + 3 * MINUTE)
    assert found == [("22:00", 1), ("22:01", 1), ("22:02", 1)]
