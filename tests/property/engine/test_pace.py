"""Whatever arrives when: what is left of a rate limit lasts until the end of its window."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.engine.limits.limiter import Limiter, Slot, SlotRequest, acquire
from durable_retry.engine.limits.settings import LimitSettings, limits_at
from durable_retry.engine.pace import RateLeft, quota_of
from tests.support.builders import NOON

QUOTAS = st.builds(RateLeft, st.integers(1, 40), st.floats(0.1, 3_600), st.just(100.0))


def starts_in(window: RateLeft, arrivals: list[float]) -> list[datetime]:
    """Returns when the entity lets attempts start that arrive in this order, all inside of the window."""
    quota, limiter, starts = quota_of(window, NOON, None), Limiter(), []
    for number, part in enumerate(sorted(arrivals)):
        now = NOON + timedelta(seconds=part * window.seconds)
        needed = limits_at(now, LimitSettings(), quota)
        request = SlotRequest(f"op-{number}:1", 70.0, needed.settings, pace=needed.pace)
        limiter, answer = acquire(limiter, request, now)
        if isinstance(answer, Slot):
            starts.append(now)
        elif answer.reserved:
            at = now + timedelta(seconds=answer.seconds)
            assert acquire(limiter, replace(request, reserved=True), at)[1] == Slot()
            starts.append(at)
        else:
            assert needed.pace is not None
            assert needed.pace.seconds <= max(answer.seconds, 0.5) <= max(2 * needed.pace.seconds, 0.5)
    return starts


@given(QUOTAS, st.lists(st.floats(0, 0.99), max_size=100))
def test_no_more_start_in_a_window_than_are_left(window: RateLeft, arrivals: list[float]) -> None:
    starts = starts_in(window, arrivals)
    end = NOON + timedelta(seconds=window.seconds)
    assert all(at <= end for at in starts)
    # Half of a rate of two or more is left to the workers' shares; the rate has three digits.
    assert len(starts) <= window.remaining * 1.01 + 1


@given(QUOTAS, st.lists(st.floats(0, 0.99), max_size=100))
def test_starts_are_evenly_spaced(window: RateLeft, arrivals: list[float]) -> None:
    starts = sorted(starts_in(window, arrivals))
    step = window.seconds / window.remaining
    assert all(
        (later - earlier).total_seconds() >= step * 0.98 - 0.002 for earlier, later in pairwise(starts)
    )
