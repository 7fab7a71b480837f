"""Steps of a range."""

from datetime import UTC, datetime, timedelta
from math import ceil

import pytest

from durable_retry_console.metrics.series import MOST_POINTS, floored, step_for
from tests.support.builders import NOON


@pytest.mark.parametrize(
    ("minutes", "step"),
    [(1, 1), (15, 1), (60, 1), (6 * 60, 5), (24 * 60, 10), (72 * 60, 30), (7 * 24 * 60, 60)],
)
def test_a_step_keeps_a_range_to_a_few_points(minutes: int, step: int) -> None:
    length = timedelta(minutes=minutes)
    assert step_for(NOON - length, NOON) == timedelta(minutes=step)
    assert ceil(length / timedelta(minutes=step)) < MOST_POINTS


def test_a_step_begins_on_a_multiple_of_itself() -> None:
    instant = datetime(2026, 11, 22, 13, 47, 31, 5, UTC)
    assert floored(instant, timedelta(minutes=5)) == datetime(2026, 11, 22, 13, 45, tzinfo=UTC)
    assert floored(instant, timedelta(days=1)) == datetime(2026, 11, 22, tzinfo=UTC)
