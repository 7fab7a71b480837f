"""Priorities of those who wait for a slot: low is never starved, and equal ones go by age."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.settings import LimitSettings
from tests.support.limited_crowd import Crowd

ONE = LimitSettings(max_concurrency=1)


@pytest.mark.parametrize("others", [Priority.HIGH, None])
@pytest.mark.parametrize("head_start", [2, 6])
def test_low_goes_although_others_never_cease_to_come(head_start: int, others: Priority | None) -> None:
    # As many come as can go: without a bound the one with `low` would wait for ever.
    crowd = Crowd(ONE)
    crowd.arrive(head_start, holds=1.0, priority=others)
    (low,) = crowd.arrive(1, holds=1.0, priority=Priority.LOW)
    for second in range(1, 240):
        crowd.arrive(1, float(second), holds=1.0, priority=others)
    crowd.run(240.0)
    assert low.started is not None
    assert low.started <= (head_start + 5) * (20 if others is Priority.HIGH else 5)


def test_high_goes_before_what_has_waited_for_less_than_four_times_as_long() -> None:
    crowd = Crowd(ONE)
    crowd.arrive(40, holds=1.0)
    (high,) = crowd.arrive(1, 9.0, holds=1.0, priority=Priority.HIGH)
    crowd.run()
    assert high.started is not None
    # Three seconds later it has waited for four times as long as they will have. Some may ask before it.
    assert 11.0 <= high.started <= 16.0


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8, unique=True), st.sampled_from([*Priority, None]))
def test_equal_ones_go_by_age_but_for_those_that_ask_at_about_the_same_time(
    dues: list[int], priority: Priority | None
) -> None:
    crowd = Crowd(ONE)
    attempts = [crowd.arrive(1, float(due), holds=3.0, priority=priority)[0] for due in sorted(dues)]
    crowd.run()
    order = sorted(range(len(attempts)), key=lambda number: attempts[number].started or 0.0)
    assert all(abs(number - place) <= 4 for place, number in enumerate(order))
    assert all(attempt.started is not None for attempt in attempts)
