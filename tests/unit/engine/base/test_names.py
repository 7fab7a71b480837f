"""Who goes first where operations wait."""

from datetime import timedelta

import pytest

from durable_retry.engine.base.names import Priority, counted_wait, released_at_fraction
from tests.support.builders import NOON, after


@pytest.mark.parametrize(
    ("priority", "seconds"), [(None, 60), (Priority.NORMAL, 60), (Priority.HIGH, 240), (Priority.LOW, 15)]
)
def test_a_minute_counts_by_the_priority(priority: Priority | None, seconds: float) -> None:
    assert counted_wait(NOON, priority, after(60)) == timedelta(seconds=seconds)
    assert counted_wait(after(60), priority, NOON) == timedelta(0)


def test_high_goes_first_and_low_last_in_a_release() -> None:
    draws = [number / 1_000 for number in range(1_000)]
    high = [released_at_fraction(draw, Priority.HIGH) for draw in draws]
    assert sum(place < 0.3 for place in high) == pytest.approx(510, abs=2)
    assert all(place <= draw for place, draw in zip(high, draws, strict=True))
    low = [released_at_fraction(draw, Priority.LOW) for draw in draws]
    assert (min(low), max(low) < 2.0) == (1.0, True)
    assert [released_at_fraction(draw, None) for draw in draws] == draws
