"""Crowds at a limiter: limits hold in any second, nothing stays free, who leaves gives back, keys share."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_retry.base.json_forms import to_ms
from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.fair import KEPT_KEYS, KEPT_PLACES, FairShares, Place
from durable_retry.features.limits.rules.limiter import acquire
from durable_retry.features.limits.rules.settings import KeyLimits, LimitSettings, ReadLimits
from durable_retry.features.limits.rules.share import BURST
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.retry.slots import SlotRequest
from tests.support.builders import NOON
from tests.support.limited_crowd import AZURE, Backend, Crowd
from tests.support.narrowing import existing

ONEBOX = Backend()
SLOW = Backend(hop=(0.3, 2.0), timer=(0.9, 1.7))
"""Azure Storage where hosts are busy, or messages wait until another host looks into its queue."""
BACKENDS = pytest.mark.parametrize("backend", [ONEBOX, AZURE], ids=["onebox", "azure"])


def most_in_a_second(rate: float) -> int:
    """Return the burst that late turns may make, and one start at the very end of a second."""
    return int(-(-rate * BURST // 1)) + 1


@BACKENDS
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rate", [10, 8, 4, 3, 2, 1, 0.5, 0.2, 0.1])
def test_with_a_backlog_the_throughput_is_the_rate(rate: float, workers: int, backend: Backend) -> None:
    seconds = max(40, 20 / rate)
    crowd = Crowd(LimitSettings(rate_per_second=rate), backend=backend, workers=workers)
    crowd.arrive(int(seconds * rate))
    starts = crowd.run().starts
    assert len(starts) == len(crowd.attempts)
    # On Azure Storage the first timers are late, which nothing makes up for.
    most = 1.0 if backend is ONEBOX else 2.0
    assert seconds - 2 / rate - 1.0 <= starts[-1] - starts[0] <= seconds * 1.01 + most - 1 / rate
    if workers == 1:
        assert crowd.fullest <= most_in_a_second(rate)


@pytest.mark.parametrize("rate", [10, 4, 1])
def test_slow_messages_cost_a_backlog_a_few_seconds_but_not_the_rate(rate: float) -> None:
    """An attempt asks as much sooner for its turn, and comes as much sooner to its worker."""
    crowd = Crowd(LimitSettings(rate_per_second=rate), backend=SLOW, workers=2)
    crowd.arrive(int(40 * rate))
    starts = crowd.run().starts
    assert len(starts) == len(crowd.attempts)
    assert starts[-1] - starts[0] <= 43


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        (LimitSettings(max_concurrency=20, rate_per_second=8), 110),
        (LimitSettings(rate_per_second=8, per_key=KeyLimits(rate_per_second=2)), 85),
        (LimitSettings(rate_per_second=8, per_key=KeyLimits(max_concurrency=4)), 100),
        (LimitSettings(20, 8, KeyLimits(max_concurrency=4, rate_per_second=2)), 110),
    ],
    ids=["slots", "rates of keys", "slots of keys", "all"],
)
def test_where_messages_are_very_slow_attempts_that_come_late_start_all_the_same(
    limits: LimitSettings, seconds: int
) -> None:
    """Each asked for another turn, came after that one, too, and nearly none started."""
    crowd = Crowd(limits, backend=Backend(hop=(1.0, 4.0), timer=(0.9, 2.7)))
    for number in range(100):
        crowd.arrive(1, number / 15, holds=0.5, key=f"key-{number % 10}" if limits.per_key else None)
    starts = crowd.run().starts
    assert len(starts) == len(crowd.attempts)
    assert starts[-1] <= seconds


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_when_an_app_was_stopped_those_that_come_late_start_within_the_rate(workers: int) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=2), backend=AZURE, workers=workers)
    crowd.stopped = (5.0, 14.0)
    crowd.arrive(60)
    assert len(crowd.run().starts) == 60
    assert crowd.fullest <= most_in_a_second(2), "late ones and those whose turns come began together"


@BACKENDS
@pytest.mark.parametrize(("rate", "number"), [(8, 500), (2, 600), (20, 1_100)])
def test_one_that_waits_long_for_its_turn_is_told_of_it(rate: float, number: int, backend: Backend) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=rate), backend=backend)
    for each in range(number):
        crowd.arrive(1, each / 100)
    starts = crowd.run().starts
    assert len(starts) == number
    assert starts[-1] - starts[0] <= number / rate + 3
    assert mean(each.asks for each in crowd.attempts) <= 3.5, "each asked every ten seconds"


@BACKENDS
def test_a_rate_that_is_raised_holds_at_once_for_all_that_wait(backend: Backend) -> None:
    crowd = Crowd(ReadLimits(rate_per_second=2, read_at=NOON), backend=backend)
    crowd.arrive(400)
    crowd.run(20.0)
    crowd.change(ReadLimits(rate_per_second=12, read_at=crowd.at))
    left = 400 - len(crowd.starts)
    assert crowd.run().starts[-1] <= 20.0 + left / 12 + 6
    assert len(crowd.starts) == 400


@BACKENDS
def test_attempts_whose_deadline_is_near_take_no_turn_from_others(backend: Backend) -> None:
    """Twice as many come as may start: half of the turns were reserved for attempts that did not use them."""
    crowd = Crowd(LimitSettings(rate_per_second=2), backend=backend, deadline_seconds=20.0)
    for number in range(400):
        crowd.arrive(1, number / 4, holds=0.01)
    assert len(crowd.run().starts) >= 2 * 105


@pytest.mark.parametrize(
    ("most", "seconds", "number"), [(4, 1.0, 20), (4, 1.0, 80), (20, 3.0, 400), (1, 2.0, 20)]
)
def test_with_a_backlog_every_slot_is_in_use(most: int, seconds: float, number: int) -> None:
    crowd = Crowd(LimitSettings(max_concurrency=most))
    crowd.arrive(number, holds=seconds)
    took = crowd.run().starts[-1] + seconds
    assert crowd.most_at_once == most
    assert took <= number / most * seconds * 1.05 + 0.1


@BACKENDS
def test_priorities_count_in_a_short_line_as_well(backend: Backend) -> None:
    """Also where everybody begins within the seconds after which newcomers ask for the second time."""
    waits = dict[Priority, list[float]]()
    for seed in range(8):
        crowd = Crowd(LimitSettings(rate_per_second=2), seed=seed, backend=backend)
        for number in range(60):
            crowd.arrive(1, number / 3, holds=0.5, priority=crowd.draw.choice(list(Priority)))
        crowd.run()
        for attempt in crowd.attempts:
            assert attempt.started is not None
            waits.setdefault(attempt.priority or Priority.NORMAL, []).append(attempt.started - attempt.due)
    high, normal, low = (mean(waits[priority]) for priority in Priority)
    assert high < 0.85 * normal
    assert normal < 0.9 * low


@BACKENDS
@pytest.mark.parametrize(
    "limits", [LimitSettings(max_concurrency=4), LimitSettings(rate_per_second=10)], ids=["slots", "rate"]
)
def test_priorities_count_in_a_line_that_is_longer_than_the_places(
    limits: LimitSettings, backend: Backend
) -> None:
    """Also where the urgent ones came last, and found all places taken."""
    crowd, number = Crowd(limits, backend=backend), KEPT_PLACES
    for at, priority in enumerate((Priority.LOW, Priority.NORMAL, Priority.HIGH)):
        crowd.arrive(number, at * 0.6, holds=0.4, priority=priority)
    crowd.run()
    starts = [[a.started or 0.0 for a in crowd.attempts[n * number :][:number]] for n in range(3)]
    low, normal, high = map(mean, starts)
    assert high < 0.7 * normal
    assert normal < 0.95 * low


@pytest.mark.parametrize("gap", [18.0, 100.0])
@BACKENDS
def test_an_app_that_was_stopped_starts_no_more_in_a_second_than_before(gap: float, backend: Backend) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=4), backend=backend)
    crowd.stopped = (5.0, 5.0 + gap)
    crowd.arrive(80)
    assert len(crowd.run().starts) == 80
    assert crowd.fullest <= most_in_a_second(4)


@BACKENDS
def test_hurrying_all_who_wait_hurries_nobody(backend: Backend) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=5), backend=backend)
    waiting = crowd.arrive(120)
    for at in (3.0, 3.2, 9.0):
        crowd.hurry(waiting, at)
    assert len(crowd.run().starts) == 120
    assert crowd.fullest <= most_in_a_second(5)


@BACKENDS
@pytest.mark.parametrize("says_so", [True, False])
@pytest.mark.parametrize(
    "limits", [LimitSettings(rate_per_second=5), LimitSettings(max_concurrency=4)], ids=["rate", "slots"]
)
def test_who_comes_after_a_crowd_has_left_starts_within_seconds(
    limits: LimitSettings, backend: Backend, *, says_so: bool
) -> None:
    crowd = Crowd(limits, backend=backend)
    crowd.cancel(crowd.arrive(300, holds=1.0), 5.0, says_so=says_so)
    new = crowd.arrive(5, 8.0)
    crowd.run()
    assert all(each.started is not None and each.started <= 18.0 for each in new)
    # A message that says so may overtake the request before it.
    assert crowd.limiter.live_places(crowd.at + timedelta(seconds=60)) == ()


@BACKENDS
def test_what_is_left_of_a_crowd_goes_at_the_rate_as_well(backend: Backend) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=5), backend=backend)
    crowd.cancel(crowd.arrive(300)[92:], 5.0)
    crowd.arrive(5, 8.0)
    starts = crowd.run().starts
    assert starts[-1] <= len(starts) / 5 + 6


@BACKENDS
def test_a_thousand_keys_drain_at_the_pace_of_the_slots(backend: Backend) -> None:
    crowd = Crowd(LimitSettings(max_concurrency=5, per_key=KeyLimits(max_concurrency=1)), backend=backend)
    for number in range(1_000):
        crowd.arrive(1, number / 100, holds=0.02, key=f"key-{number}")
    last = [*crowd.arrive(1, 10.0, holds=0.02), *crowd.arrive(1, 10.0, holds=0.02, key="own")]
    crowd.run()
    assert crowd.most_at_once <= 5
    # Each hop of a message there takes a tenth of a second, and a slot is lent for five of them.
    assert crowd.starts[-1] <= (14 if backend is ONEBOX else 150)
    if backend is ONEBOX:
        assert all(each.started is not None and each.started <= 13 for each in last)


@pytest.mark.parametrize(
    ("backend", "seconds"),
    [(Backend(each=0.0012), 20), (Backend((0.02, 0.06), (0.0, 1.0), each=0.008), 130)],
    ids=["onebox", "azure"],
)
def test_a_crowd_does_not_hold_up_itself_by_asking(backend: Backend, seconds: float) -> None:
    crowd = Crowd(LimitSettings(max_concurrency=5, per_key=KeyLimits(max_concurrency=1)), backend=backend)
    for number in range(1_000):
        crowd.arrive(1, number * seconds / 3_000, holds=0.005, key=f"key-{number}")
    crowd.run()
    assert crowd.starts[-1] <= seconds
    assert mean(each.asks for each in crowd.attempts) <= 2.1, "it asked 30 times when nobody was told"


@BACKENDS
def test_those_of_one_key_are_told_when_it_has_a_slot_again(backend: Backend) -> None:
    crowd = Crowd(LimitSettings(max_concurrency=5, per_key=KeyLimits(max_concurrency=1)), backend=backend)
    crowd.arrive(100, holds=0.5, key="a")
    crowd.run()
    assert mean(each.asks for each in crowd.attempts) <= 2.1


def test_what_is_left_of_a_crowd_of_keys_goes_on_soon() -> None:
    limits = LimitSettings(max_concurrency=5, per_key=KeyLimits(max_concurrency=1))
    crowd = Crowd(limits, backend=Backend(each=0.0012))
    for number in range(1_000):
        crowd.arrive(1, number / 150, holds=0.5, key=f"key-{number}")
    crowd.cancel(crowd.attempts[:900], 12.0)
    assert all(each.started is not None for each in crowd.run().attempts[900:])
    assert crowd.starts[-1] <= 12.0 + 100 / 5 * 0.5 + 10.0, "those that were called are gone"


@BACKENDS
@pytest.mark.parametrize(("number", "gone", "seconds"), [(60, 35, 35), (300, 270, 35)])
def test_a_slot_goes_on_where_those_that_were_told_of_it_are_gone(
    backend: Backend, number: int, gone: int, seconds: int
) -> None:
    crowd = Crowd(LimitSettings(max_concurrency=5, per_key=KeyLimits(max_concurrency=1)), backend=backend)
    for each in range(number):
        crowd.arrive(1, each / 150, holds=0.5, key=f"key-{each}")
    crowd.run(3.0)
    waiting = [each for each in crowd.attempts[:gone] if each.is_waiting]
    crowd.cancel(waiting, 3.0, says_so=False)
    crowd.run()
    assert all(each.is_gone or each.started is not None for each in crowd.attempts)
    assert crowd.starts[-1] <= seconds, "nobody waits until it asks by itself"


@BACKENDS
@pytest.mark.parametrize("gone", [0.5, 0.9])
def test_the_other_slots_go_on_too_where_most_of_those_that_wait_are_gone(
    backend: Backend, gone: float
) -> None:
    """One that flows by itself is no sign that somebody comes for the others."""

    def seconds(*, says_so: bool) -> float:
        crowd = Crowd(LimitSettings(max_concurrency=5), backend=backend)
        for number in range(1_000):
            crowd.arrive(1, number / 500, holds=1.0)
        crowd.run(4.0)
        waiting = [each for each in crowd.attempts if each.is_waiting]
        crowd.cancel(crowd.draw.sample(waiting, int(gone * len(waiting))), 4.0, says_so=says_so)
        crowd.run()
        assert all(each.is_gone or each.started is not None for each in crowd.attempts)
        assert mean(each.asks for each in crowd.attempts if not each.is_gone) <= 3.5
        return crowd.starts[-1] - 4.0

    assert seconds(says_so=False) <= 1.5 * seconds(says_so=True), "it took up to five times as long"


LIMITS = st.builds(LimitSettings, st.integers(0, 6), st.sampled_from([0.0, 0.0, 0.4, 1.0, 1.9, 6.0]))
KEYS = st.sampled_from([None, "a", "b", "c"])
WEIGHTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1)
PER_KEY = st.builds(KeyLimits, st.integers(0, 2), st.sampled_from([0.0, 0.0, 0.7, 2.0]))
KEYED = st.builds(
    LimitSettings,
    st.integers(0, 6),
    st.sampled_from([0.0, 0.4, 1.9]),
    st.none() | PER_KEY,
    st.none() | WEIGHTS,
)
ATTEMPTS = st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 30), KEYS), min_size=1, max_size=30)


@settings(max_examples=60)
@given(LIMITS | KEYED, ATTEMPTS, st.sampled_from([ONEBOX, AZURE]), st.sets(st.integers(0, 29)), st.booleans())
def test_whatever_comes_all_limits_hold_everybody_goes_and_at_rest_nothing_is_left(
    limits: LimitSettings,
    attempts: list[tuple[float, float, str | None]],
    backend: Backend,
    cancelled: set[int],
    says_so: bool,  # noqa: FBT001 - drawn
) -> None:
    crowd = Crowd(limits, backend=backend, workers=2)
    for at, holds, key in attempts:
        crowd.arrive(1, at, holds, key if limits.per_key is not None or limits.weights else None)
    gone = [attempt for number, attempt in enumerate(crowd.attempts) if number in cancelled]
    crowd.cancel(gone, 7.0, says_so=says_so)
    crowd.run()
    assert all(attempt.is_gone or attempt.started is not None for attempt in crowd.attempts)
    if limits.is_on and limits.max_concurrency > 0:
        assert crowd.most_at_once <= limits.max_concurrency
    assert len(crowd.limiter.leases) == 0
    assert [place for place in crowd.limiter.places if says_so] == []
    per_key = limits.per_key
    for key in "abc" if per_key is not None else "":
        held = [
            (each.started, each.ended) for each in crowd.attempts if each.limit_key == key and each.started
        ]
        under_way = [
            sum(s <= at < (e or at) for s, e in held if s is not None) for at, _ in held if at is not None
        ]
        assert max(under_way, default=0) <= (existing(per_key).max_concurrency or len(attempts))


@given(KEYED, ATTEMPTS)
def test_the_starts_of_a_key_are_spaced_by_its_rate(
    limits: LimitSettings, attempts: list[tuple[float, float, str | None]]
) -> None:
    per_key = limits.per_key
    if per_key is None or per_key.rate_per_second <= 0 or limits.rate_per_second > 0:
        return  # A turn that was reserved is used when the attempt comes.
    crowd = Crowd(limits, backend=Backend(hop=(0.0, 0.0), timer=(0.0, 0.0)))
    for at, holds, key in attempts:
        crowd.arrive(1, at, holds, key)
    crowd.run()
    for key in "abc":
        starts = sorted(
            each.started for each in crowd.attempts if each.limit_key == key and each.started is not None
        )
        assert all(
            later - earlier >= 1 / per_key.rate_per_second - 0.01 for earlier, later in pairwise(starts)
        )


def a_place(number: int, key: str | None, weight: float | None = None) -> Place:
    due_ms = to_ms(NOON + timedelta(seconds=number))
    return Place(due_ms, f"op-{number}:1", to_ms(NOON), None, key, weight)


@given(WEIGHTS, st.integers(1, 60))
def test_keys_that_wait_all_the_time_get_shares_within_one_place_of_their_weights(
    weights: dict[str, float], grants: int
) -> None:
    places = [
        a_place(100 * index + number, key, weight)
        for index, (key, weight) in enumerate(weights.items())
        for number in range(grants)
    ]
    shares, granted = FairShares(), Counter[str | None]()
    for _ in range(grants):
        first = shares.in_order(places, NOON)[0]
        places.remove(first)
        granted[first.limit_key] += 1
        shares = FairShares.from_json(existing(shares.charged(first, places, NOON, None)).to_json())
        for key, weight in weights.items():
            for other, its_weight in weights.items():
                apart = abs(granted[key] / weight - granted[other] / its_weight)
                assert apart <= 1 / weight + 1 / its_weight + 0.001


@given(st.lists(st.integers(0, 50), unique=True), st.sampled_from([None, "a"]), st.floats(0, 9))
def test_the_places_of_one_key_alone_keep_their_order(
    numbers: list[int], key: str | None, virtual: float
) -> None:
    places = [a_place(number, key) for number in numbers]
    ordered = FairShares(virtual).in_order(places, NOON)
    assert ordered == sorted(places, key=lambda place: place.order(to_ms(NOON)))


@given(st.integers(0, 200), st.integers(1, 300))
def test_the_state_is_bounded_however_many_keys_and_attempts_there_are(keys: int, attempts: int) -> None:
    limiter, limits = Limiter(), LimitSettings(max_concurrency=1)
    for number in range(attempts):
        now = NOON + timedelta(seconds=number)
        key = f"k-{number % (keys + 1)}"
        limiter, _ = acquire(
            limiter, SlotRequest(f"op-{number}:1", 0.5, limits.to_json(), now, now, limit_key=key), now
        )
        assert len(limiter.places) <= KEPT_PLACES
        assert limiter.fair is None or len(limiter.fair.shares) <= KEPT_KEYS


@pytest.mark.parametrize("limits", [LimitSettings(1), LimitSettings(rate_per_second=1.0)])
@pytest.mark.parametrize("backlog", [5, 60, 1_000])
def test_a_key_that_comes_to_the_backlog_of_another_goes_soon(backlog: int, limits: LimitSettings) -> None:
    crowd = Crowd(limits)
    crowd.arrive(backlog, holds=1.0, key="a")
    (newcomer,) = crowd.arrive(1, 5.0, holds=1.0, key="b")
    crowd.run(30.0)
    assert newcomer.started is not None
    # The one under way, or the turns that are reserved already, are before it.
    assert newcomer.started <= 11


@pytest.mark.parametrize("burst", [1, 5, 20])
def test_a_burst_of_a_key_that_rested_waits_at_most_twice_as_long_as_alone(burst: int) -> None:
    def longest_wait(others: int) -> float:
        crowd = Crowd(LimitSettings(max_concurrency=1))
        crowd.arrive(others, holds=1.0, key="other")
        own = crowd.arrive(burst, 80.0, holds=1.0, key="own")
        crowd.run()
        return max(each.started - each.due for each in own if each.started is not None)

    assert longest_wait(120) <= 2 * longest_wait(0) + 2


@pytest.mark.parametrize("weight", [2.0, 3.0])
def test_with_weights_the_rate_is_kept_and_shared_by_them(weight: float) -> None:
    crowd = Crowd(LimitSettings(rate_per_second=5, weights={"a": weight}))
    heavy, light = crowd.arrive(120, key="a"), crowd.arrive(120, key="b")
    crowd.run(24.0)
    started = [sum(each.started is not None for each in group) for group in (heavy, light)]
    assert sum(started) == pytest.approx(120, abs=6)
    assert started[0] / started[1] == pytest.approx(weight, rel=0.25)


@pytest.mark.parametrize("backend", [ONEBOX, AZURE], ids=["onebox", "azure"])
@pytest.mark.parametrize("most", [2, 15, 20])
def test_where_signals_are_lost_no_slot_that_others_wait_for_stays_lent(most: int, backend: Backend) -> None:
    """A worker that dies in the entity takes the give-backs of its batch with it."""
    crowd = Crowd(
        LimitSettings(max_concurrency=most), backend=replace(backend, lost=0.05), lease_seconds=80.0
    )
    # Where nobody waits yet, nobody is told of the slot: the first ones may still lose theirs.
    crowd.arrive(most, holds=1.0)
    crowd.arrive(15 * most, at=0.5, holds=1.0)
    crowd.run()
    longest = max(after - before for before, after in pairwise(crowd.starts))
    assert (longest < 5, crowd.most_at_once) == (True, most)
    assert crowd.starts[-1] < 60
