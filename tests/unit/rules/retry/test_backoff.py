import pytest

from durable_retry.rules.retry.backoff import (
    WaitBounds,
    backoff,
    bounds_of,
    ceiling_seconds,
)
from durable_retry.rules.retry.policy import RetryPolicy

EXPONENTIAL = RetryPolicy(initial_seconds=2, factor=2, max_seconds=60)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 2), (2, 4), (5, 32), (6, 60), (1_024, 60), (1_025, 60), (10**9, 60)]
)
def test_exponential_waits_double_up_to_the_cap(attempt: int, seconds: float) -> None:
    assert ceiling_seconds(EXPONENTIAL, attempt) == seconds


@pytest.mark.parametrize("attempt", [1, 2, 10**9])
def test_a_factor_of_one_never_grows(attempt: int) -> None:
    assert ceiling_seconds(RetryPolicy(factor=1), attempt) == 2


def test_the_cap_holds_for_the_first_wait_too() -> None:
    assert ceiling_seconds(RetryPolicy(initial_seconds=90), 1) == 60


@pytest.mark.parametrize("policy", [RetryPolicy(initial_seconds=0), RetryPolicy(max_seconds=0)])
def test_no_wait_stays_no_wait(policy: RetryPolicy) -> None:
    assert ceiling_seconds(policy, 10**9) == 0


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 2), (3, 6), (10**9, 60)])
def test_linear_waits_grow_by_the_first(attempt: int, seconds: float) -> None:
    assert ceiling_seconds(RetryPolicy(strategy="linear"), attempt) == seconds


def test_fixed_waits_stay() -> None:
    assert [ceiling_seconds(RetryPolicy(strategy="fixed"), attempt) for attempt in (1, 10**9)] == [2, 2]


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 5), (2, 300), (3, 300), (10**9, 300)])
def test_a_schedule_repeats_its_last_entry_and_ignores_the_cap(attempt: int, seconds: float) -> None:
    policy = RetryPolicy(strategy="schedule", schedule_seconds=(5, 300))
    assert ceiling_seconds(policy, attempt) == seconds


def test_an_empty_schedule_does_not_wait() -> None:
    assert ceiling_seconds(RetryPolicy(strategy="schedule"), 1) == 0


def test_jitter_is_drawn_inside_its_bounds() -> None:
    assert bounds_of(RetryPolicy(jitter="none"), 2) == WaitBounds(4, 4)
    assert bounds_of(RetryPolicy(jitter="full"), 2) == WaitBounds(0, 4)
    assert bounds_of(RetryPolicy(jitter="equal"), 2) == WaitBounds(2, 4)


def test_a_replay_draws_the_same_wait() -> None:
    assert backoff(EXPONENTIAL, "op-1", 3) == backoff(EXPONENTIAL, "op-1", 3)


def test_operations_and_attempts_draw_apart() -> None:
    draws = {
        backoff(EXPONENTIAL, f"op-{name}", attempt).delay_seconds for name in "abc" for attempt in (7, 8)
    }
    assert len(draws) == 6


def test_the_reasons_name_the_strategy_and_the_jitter() -> None:
    assert backoff(EXPONENTIAL, "op-1", 1).reasons == ("exponential 2 s", "full jitter")
    assert backoff(RetryPolicy(jitter="none"), "op-1", 1).reasons == ("exponential 2 s",)


@pytest.mark.parametrize(
    ("initial", "most", "ceiling"), [(0, 30, 0.0), (2, 0, 0.0), (0.5, 30, 4.0), (1, 1, 1.0)]
)
def test_an_exponential_wait_is_zero_only_when_it_begins_or_ends_at_zero(
    initial: float, most: float, ceiling: float
) -> None:
    policy = RetryPolicy(initial_seconds=initial, max_seconds=most, factor=2.0)
    assert ceiling_seconds(policy, 4) == ceiling
