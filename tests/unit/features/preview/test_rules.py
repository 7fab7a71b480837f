import pytest

from durable_retry.features.preview.rules import MAX_WAITS, PolicyLimits, limits_shown, preview
from durable_retry.rules.config.dependency import Bounds
from durable_retry.rules.retry.policy import PRESETS, RetryPolicy, Timeouts


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


class TwoLimits(Bounds):
    """Twenty attempts at once, and five a second."""

    @property
    def max_concurrency(self) -> int:
        return 20

    @property
    def rate_per_second(self) -> float:
        return 5.0


def test_no_limit_is_null() -> None:
    shown = limits_shown(Bounds(), 10.0)
    assert shown == PolicyLimits(at_once=None, starts_per_second=None, slowest_per_second=None)


def test_the_slower_of_two_limits_counts_when_attempts_take_their_whole_timeout() -> None:
    limits = TwoLimits()
    assert limits_shown(limits, 10.0).slowest_per_second == 2
    assert limits_shown(limits, 2.0).slowest_per_second == 5
