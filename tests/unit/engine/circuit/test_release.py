from collections import Counter
from itertools import pairwise
from math import ceil, sqrt

import pytest

from durable_retry.engine.base.deterministic_hash import deterministic_fraction
from durable_retry.engine.circuit import RELEASE, ReleaseSettings, release_at
from durable_retry.engine.circuit.snapshot import spread_seconds
from tests.support.builders import NOON, after


def places(number: int, waiting: int, settings: ReleaseSettings = RELEASE) -> list[float]:
    names = [f"op-{index:06d}" for index in range(number)]
    return [(release_at(name, NOON, waiting, settings) - NOON).total_seconds() for name in names]


def test_a_place_is_the_same_whenever_it_is_asked_for() -> None:
    assert release_at("op-1", NOON, 100) == release_at("op-1", NOON, 100)


def test_places_differ_from_break_to_break() -> None:
    assert release_at("op-1", NOON, 100) - NOON != release_at("op-1", after(60), 100) - after(60)


def test_ten_thousand_are_spread_evenly_over_two_hundred_seconds() -> None:
    seconds = places(10_000, 10_000)
    assert spread_seconds(10_000) == 200
    assert min(seconds) >= 0
    assert max(seconds) < 200
    # A fifth of them in each fifth of the time; 5 standard deviations of a binomial count are 200.
    fifths = Counter(int(second // 40) for second in seconds)
    assert all(abs(fifths[fifth] - 2_000) < 5 * sqrt(10_000 * 0.2 * 0.8) for fifth in range(5))


def test_no_second_sees_many_more_than_the_rate() -> None:
    per_second = Counter(int(second) for second in places(10_000, 10_000))
    assert max(per_second.values()) <= 2 * RELEASE.per_second
    assert len(per_second) == 200


def test_no_ten_seconds_see_more_than_a_quarter_above_the_rate() -> None:
    seconds = sorted(places(10_000, 10_000))
    most = ceil(10 * RELEASE.per_second * 1.25)
    assert all(later - earlier > 10 for earlier, later in zip(seconds, seconds[most:], strict=False))


def test_the_spread_has_no_gaps_where_a_herd_could_gather() -> None:
    seconds = sorted(places(10_000, 10_000))
    assert max(later - earlier for earlier, later in pairwise(seconds)) < 0.5


@pytest.mark.parametrize("waiting", [0, 1, 50])
def test_a_few_are_spread_over_a_second(waiting: int) -> None:
    assert max(places(50, waiting)) < 1
    assert len(set(places(50, waiting))) == 50


def test_the_rate_can_be_set() -> None:
    assert spread_seconds(100, ReleaseSettings(per_second=10, minimum_spread_seconds=3)) == 10
    assert spread_seconds(1, ReleaseSettings(per_second=10, minimum_spread_seconds=3)) == 3


def test_fractions_are_below_one_and_depend_on_every_name() -> None:
    fractions = [deterministic_fraction("a", str(number)) for number in range(1_000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert len(set(fractions)) == 1_000
    assert deterministic_fraction("ab", "c") != deterministic_fraction("a", "bc")
