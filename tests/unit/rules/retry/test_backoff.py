"""The delay before the next attempt."""

import pytest

from durable_retry.rules.limits.settings import LimitSettings
from durable_retry.rules.retry.backoff import (
    MAX_WAITS,
    Bounds,
    PolicyLimits,
    backoff,
    bounds_of,
    ceiling_seconds,
    limits_shown,
    preview,
)
from durable_retry.rules.retry.policy import PRESETS, RetryPolicy, Timeouts

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
    assert bounds_of(RetryPolicy(jitter="none"), 2) == Bounds(4, 4)
    assert bounds_of(RetryPolicy(jitter="full"), 2) == Bounds(0, 4)
    assert bounds_of(RetryPolicy(jitter="equal"), 2) == Bounds(2, 4)


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


def test_every_wait_is_shown_least_expected_and_most() -> None:
    shown = preview(RetryPolicy(jitter="equal"), Timeouts()).model_dump(mode="json")
    assert shown == {
        "waits": [
            {"after_attempt": 1, "least_seconds": 1, "expected_seconds": 1.5, "most_seconds": 2},
            {"after_attempt": 2, "least_seconds": 2, "expected_seconds": 3, "most_seconds": 4},
            {"after_attempt": 3, "least_seconds": 4, "expected_seconds": 6, "most_seconds": 8},
            {"after_attempt": 4, "least_seconds": 8, "expected_seconds": 12, "most_seconds": 16},
        ],
        "waits_complete": True,
        "total": {
            "least_seconds": 15,
            "expected_seconds": 22.5,
            "most_seconds": 30,
            "attempts_at_most_seconds": 50,
        },
        "deadline_seconds": 3600,
        "fits_deadline": True,
        "warnings": [],
        "limits": None,
    }


@pytest.mark.parametrize(("deadline", "fits"), [(0, True), (80, True), (79, False)])
def test_waits_and_attempts_together_must_fit_the_deadline(deadline: float, *, fits: bool) -> None:
    assert preview(RetryPolicy(), Timeouts(deadline_seconds=deadline)).fits_deadline is fits


def test_the_webhook_schedule_needs_more_than_an_hour() -> None:
    shown = preview(PRESETS["webhook"].policy, Timeouts())
    assert [wait.most_seconds for wait in shown.waits][:3] == [5, 300, 1800]
    assert shown.total.least_seconds == shown.total.most_seconds == 272_105
    assert not shown.fits_deadline


def test_one_attempt_has_no_waits() -> None:
    shown = preview(PRESETS["none"].policy, Timeouts())
    assert shown.waits == ()
    assert shown.waits_complete


def test_unlimited_attempts_are_listed_up_to_the_deadline() -> None:
    shown = preview(RetryPolicy(max_attempts=-1, jitter="none"), Timeouts(deadline_seconds=200))
    assert [wait.most_seconds for wait in shown.waits] == [2, 4, 8, 16, 32, 60, 60]
    assert shown.waits_complete
    assert shown.fits_deadline


def test_attempts_for_ever_are_listed_up_to_the_bound_with_a_warning() -> None:
    shown = preview(RetryPolicy(max_attempts=-1), Timeouts(deadline_seconds=0))
    assert (len(shown.waits), shown.waits_complete) == (MAX_WAITS, False)
    assert "for ever" in shown.warnings[0]


def test_long_lists_end_somewhere() -> None:
    shown = preview(RetryPolicy(max_attempts=10**9), Timeouts())
    assert len(shown.waits) == MAX_WAITS
    assert not shown.waits_complete
    assert not shown.fits_deadline
    assert preview(RetryPolicy(max_attempts=MAX_WAITS + 1), Timeouts()).waits_complete


def test_no_limit_is_null() -> None:
    shown = limits_shown(LimitSettings(), 10.0)
    assert shown == PolicyLimits(at_once=None, starts_per_second=None, slowest_per_second=None)


def test_the_slower_of_two_limits_counts_when_attempts_take_their_whole_timeout() -> None:
    limits = LimitSettings(max_concurrency=20, rate_per_second=5.0)
    assert limits_shown(limits, 10.0).slowest_per_second == 2
    assert limits_shown(limits, 2.0).slowest_per_second == 5
