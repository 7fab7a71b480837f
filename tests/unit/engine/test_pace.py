"""What is left of a dependency's rate limit, and how calls are spread over it."""

from dataclasses import replace

import pytest

from durable_retry.engine.pace import LONGEST_WINDOW, Pace, Quota, RateLeft, newest, pace_of, quota_of
from tests.support.builders import NOON, after

LOW = quota_of(RateLeft(5, 10, 20), NOON, None)


def test_what_is_left_lasts_until_the_window_ends() -> None:
    assert Quota(5, 20, NOON, after(10)) == LOW
    assert LOW.per_second == 0.5


@pytest.mark.parametrize(("remaining", "is_low"), [(11, False), (10, True), (1, True)])
def test_nothing_is_slowed_while_more_than_half_is_left(remaining: float, *, is_low: bool) -> None:
    assert quota_of(RateLeft(remaining, 10, 20), NOON, None).is_low is is_low


def test_without_a_stated_limit_the_most_that_was_seen_counts() -> None:
    first = quota_of(RateLeft(8, 10), NOON, None)
    later = quota_of(RateLeft(4, 9), after(1), first)
    more = quota_of(RateLeft(12, 10), after(10), later)
    assert (first.limit, first.is_low) == (8, False)
    assert (later.limit, later.is_low) == (8, True)
    assert (more.limit, more.is_low) == (12, False)


def test_a_window_longer_than_a_day_is_cut() -> None:
    assert quota_of(RateLeft(1, 1e7, 9), NOON, None).until == NOON + LONGEST_WINDOW


def test_the_shortest_window_has_a_length() -> None:
    assert quota_of(RateLeft(1, 1e-9, 9), NOON, None).per_second == 1_000


def test_the_latest_answer_counts_until_its_window_ends() -> None:
    later = replace(LOW, remaining=3, seen_at=after(1))
    assert newest(after(2), LOW, later, None) == later
    assert newest(after(10), LOW, later) is None
    assert newest(NOON) is None


def test_a_quota_and_a_pace_survive_their_json() -> None:
    pace = pace_of(LOW, after(4), may_be_passed=True)
    assert Quota.from_json(LOW.to_json()) == LOW
    assert Pace.from_json(pace.to_json()) == pace
    assert Pace.from_json(pace.within(3).to_json()).longest_seconds == 3


def test_people_see_what_is_left_and_the_pace() -> None:
    shown = {"remaining": 5, "limit": 20, "until": "2026-11-21T12:00:10Z", "starts_per_second": 0.5}
    assert LOW.to_view().to_json() == shown
    assert replace(LOW, remaining=15).to_view().starts_per_second is None


def test_a_pace_says_why() -> None:
    pace = pace_of(LOW, after(4), may_be_passed=False)
    assert (pace.seconds, pace.may_be_passed) == (6, False)
    assert pace.reason == "5 of 20 calls left for 6 s"


def test_turns_are_reserved_up_to_the_end_of_the_window_or_the_longest_wait() -> None:
    pace = Pace(6, "few")
    assert pace.reserves(5.9)
    assert not pace.reserves(6)
    assert not pace.within(2).reserves(2)
    assert pace.within(60).longest_seconds == 6


def test_those_without_a_turn_ask_again_spread_over_as_long_a_time() -> None:
    asked = [Pace(6, "few").ask_again_seconds(f"op-{number}") for number in range(50)]
    assert min(asked) >= 6
    assert max(asked) < 12
    assert max(asked) - min(asked) > 4
    assert 2 <= Pace(6, "few").within(2).ask_again_seconds("op-1") < 4
