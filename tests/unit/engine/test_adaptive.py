"""An adaptive limit falls with overload and rises with good answers."""

from dataclasses import replace

import pytest

from durable_retry.engine.adaptive import (
    NOTHING_OBSERVED,
    Adaptive,
    AdaptiveSettings,
    Observed,
    adapted,
)
from tests.support.builders import NOON, after

SETTINGS = AdaptiveSettings(min_concurrency=2, max_concurrency=20)
LOWERED = Adaptive(10.0, NOON)


def good(count: int, *, held_back: bool = True) -> Observed:
    return Observed(good=count, held_back=held_back)


def overloaded(began_at: float) -> Observed:
    return NOTHING_OBSERVED.plus(after(began_at), is_overload=True)


def test_it_begins_at_the_maximum_and_stays_there_without_overload() -> None:
    assert adapted(None, good(50), NOON, SETTINGS) is None


def test_an_overload_lowers_it_by_three_tenths() -> None:
    assert adapted(None, overloaded(-1), NOON, SETTINGS) == Adaptive(14.0, NOON)


def test_attempts_that_were_under_way_together_lower_it_once() -> None:
    assert adapted(LOWERED, overloaded(-1), after(5), SETTINGS) == LOWERED
    assert adapted(LOWERED, overloaded(1), after(5), SETTINGS) == Adaptive(7.0, after(5))


def test_it_falls_no_lower_than_the_minimum() -> None:
    assert adapted(Adaptive(2.5, NOON), overloaded(1), after(2), SETTINGS) == Adaptive(2.0, after(2))


def test_a_round_of_good_answers_raises_it_by_one() -> None:
    raised = adapted(LOWERED, good(10), after(1), SETTINGS)
    assert raised is not None
    assert raised.limit == pytest.approx(11, abs=0.1)
    assert raised.lowered_at == NOON


def test_many_reports_raise_it_as_one_does() -> None:
    by_ones = LOWERED
    for _ in range(40):
        by_ones = adapted(by_ones, good(1), after(1), SETTINGS) or LOWERED
    at_once = adapted(LOWERED, good(40), after(1), SETTINGS)
    assert at_once is not None
    assert by_ones.limit == pytest.approx(at_once.limit, abs=0.05)


def test_a_limit_that_holds_nobody_up_does_not_rise() -> None:
    assert adapted(LOWERED, good(100, held_back=False), after(1), SETTINGS) == LOWERED


def test_at_the_maximum_it_is_not_lowered_any_more() -> None:
    assert adapted(LOWERED, good(1_000), after(1), SETTINGS) is None


def test_new_settings_apply_at_once() -> None:
    assert adapted(LOWERED, NOTHING_OBSERVED, after(1), None) is None
    assert adapted(LOWERED, NOTHING_OBSERVED, after(1), replace(SETTINGS, max_concurrency=8)) is None
    higher = adapted(LOWERED, NOTHING_OBSERVED, after(1), AdaptiveSettings(12, 20))
    assert higher == Adaptive(12.0, NOON)


def test_the_latest_overload_counts() -> None:
    seen = overloaded(3).plus(after(1), is_overload=True).plus(after(9), is_overload=False)
    assert seen == Observed(good=1, overloaded=2, overloaded_began_at=after(3))


def test_all_survive_their_json() -> None:
    for record in (SETTINGS, LOWERED, overloaded(1), NOTHING_OBSERVED):
        assert type(record).from_json(record.to_json()) == record
