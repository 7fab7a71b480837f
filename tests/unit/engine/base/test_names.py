"""Who goes first where operations wait."""

from datetime import timedelta

import pytest

from durable_retry.engine.base.names import Priority, counted_wait
from tests.support.builders import NOON, after


@pytest.mark.parametrize(
    ("priority", "seconds"), [(None, 60), (Priority.NORMAL, 60), (Priority.HIGH, 240), (Priority.LOW, 15)]
)
def test_a_minute_counts_by_the_priority(priority: Priority | None, seconds: float) -> None:
    assert counted_wait(NOON, priority, after(60)) == timedelta(seconds=seconds)
    assert counted_wait(after(60), priority, NOON) == timedelta(0)
