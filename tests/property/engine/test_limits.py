"""Whoever asks when: limits hold, the oldest goes first, keys share fairly, at rest every slot is free."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_retry.engine.limits.fair import KEPT_KEYS, FairShares, Place
from durable_retry.engine.limits.limiter import (
    KEPT_PLACES,
    Limiter,
    Slot,
    SlotPostponed,
    SlotRequest,
    acquire,
    give_back,
)
from durable_retry.engine.limits.settings import KeyLimits, LimitSettings
from tests.support.builders import NOON

LIMITS = st.builds(LimitSettings, st.integers(0, 6), st.sampled_from([0.0, 0.0, 0.4, 1.0, 1.9]))
ATTEMPTS = st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 30)), min_size=1, max_size=30)
LATE = st.floats(0, 0.9)


@dataclass
class Attempt:
    """One attempt that asks until it has a slot, holds it, and gives it back."""

    name: str
    due_at: datetime
    holds: timedelta
    started_at: datetime | None = None
    reserved: bool = False
    has_place: bool = False
    limit_key: str | None = None


class Fleet:
    """Attempts of one dependency, in the order of their instants; the state goes through its JSON."""

    def __init__(self, limits: LimitSettings, attempts: list[Attempt], late_seconds: float) -> None:
        self.limits, self.limiter = limits, Limiter()
        self.attempts = attempts
        self.late = timedelta(seconds=late_seconds)
        self.steps: list[tuple[datetime, int, Attempt, Slot | None]] = []
        self.numbers = count()
        self.most_lent = 0
        self.most_of_key = 0
        for attempt in attempts:
            self.plan(attempt.due_at, attempt, None)

    def plan(self, at: datetime, attempt: Attempt, slot: Slot | None) -> None:
        heappush(self.steps, (at, next(self.numbers), attempt, slot))

    def run(self) -> datetime:
        """Go on until nothing is left to do; return when the last slot was given back."""
        now = NOON
        while self.steps:
            now, _, attempt, slot = heappop(self.steps)
            if slot is None:
                self.ask(now, attempt)
            else:
                self.limiter = give_back(self.limiter, slot, now)
            self.limiter = Limiter.from_json(self.limiter.to_json())
        return now

    def ask(self, now: datetime, attempt: Attempt) -> None:
        key = attempt.limit_key
        request = SlotRequest(
            attempt.name,
            3_600.0,
            self.limits.of_key(key),
            reserved=attempt.reserved,
            asked_at=now,
            due_at=attempt.due_at,
            limit_key=key,
        )
        request = SlotRequest.from_json(request.to_json())
        self.limiter, answer = acquire(self.limiter, request, now)
        self.most_lent = max(self.most_lent, len(self.limiter.leases))
        if key is not None:
            self.most_of_key = max(self.most_of_key, len(self.limiter.leases_of(key)))
        if isinstance(answer, SlotPostponed):
            attempt.reserved = answer.reserved
            attempt.has_place = answer.ahead is not None
            late = self.late if attempt.has_place else timedelta()
            self.plan(now + timedelta(seconds=max(answer.seconds, 0.001)) + late, attempt, None)
            return
        older = [
            other.name
            for other in self.attempts
            if other.has_place and other.due_at < attempt.due_at and other.limit_key == key
        ]
        # A slot is left for each of the older ones.
        pool = self.limits.max_concurrency - self.limits.shared_concurrency
        assert pool <= 0 or not older or len(self.limiter.leases) + len(older) <= pool, (
            f"{attempt.name} passed {older}"
        )
        attempt.started_at, attempt.has_place = now, False
        self.plan(now + attempt.holds, attempt, answer)


def a_fleet(limits: LimitSettings, given_attempts: list[tuple[float, float]], late: float) -> Fleet:
    ordered = sorted(given_attempts)
    attempts = [
        Attempt(
            f"op-{number:02}:1",
            NOON + timedelta(milliseconds=int(at * 1000) + number),
            timedelta(seconds=holds),
        )
        for number, (at, holds) in enumerate(ordered)
    ]
    return Fleet(limits, attempts, late / 2 if limits.shared_concurrency > 0 else late)


@given(LIMITS, ATTEMPTS, LATE)
def test_both_limits_hold_the_oldest_goes_first_and_at_rest_every_slot_is_free(
    limits: LimitSettings, given_attempts: list[tuple[float, float]], late: float
) -> None:
    fleet = a_fleet(limits, given_attempts, late)
    fleet.run()
    starts = [attempt.started_at for attempt in fleet.attempts if attempt.started_at is not None]
    assert len(starts) == len(fleet.attempts)
    if limits.max_concurrency > 0:
        assert fleet.most_lent <= limits.max_concurrency - limits.shared_concurrency
    assert fleet.limiter.leases == ()
    assert fleet.limiter.places == ()
    if limits.rate_per_second > 0 and limits.max_concurrency == 0:
        step = 1 / limits.rate_per_second
        assert all(
            later - earlier >= timedelta(seconds=step - 0.01) for earlier, later in pairwise(sorted(starts))
        )


@given(st.integers(1, 6), ATTEMPTS)
def test_slots_are_not_left_free_for_long_while_attempts_wait(
    most: int, given_attempts: list[tuple[float, float]]
) -> None:
    limits = LimitSettings(most)
    fleet = a_fleet(limits, given_attempts, 0.0)
    ended_at = fleet.run()
    pool = limits.max_concurrency - limits.shared_concurrency
    holds = [attempt.holds.total_seconds() for attempt in fleet.attempts]
    # Each may find its slot free for a while, by how wrong the mean was: at most the longest attempt.
    bound = 20 + 2 * (sum(holds) / pool + max(holds)) + len(holds)
    assert (ended_at - NOON).total_seconds() <= bound


KEYS = st.sampled_from([None, "a", "b", "c"])
WEIGHTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1)
PER_KEY = st.builds(KeyLimits, st.integers(0, 2), st.sampled_from([0.0, 0.0, 0.7, 2.0]))


KEYED = st.builds(
    LimitSettings, st.integers(0, 6), st.sampled_from([0.0, 0.4, 1.9]), st.none() | PER_KEY, WEIGHTS
)


@given(KEYED, st.lists(KEYS, min_size=30, max_size=30), ATTEMPTS, LATE)
def test_every_bound_of_a_key_holds_and_everybody_goes(
    limits: LimitSettings, keys: list[str | None], given_attempts: list[tuple[float, float]], late: float
) -> None:
    fleet, per_key = a_fleet(limits, given_attempts, late), limits.per_key
    for attempt, key in zip(fleet.attempts, keys, strict=False):
        attempt.limit_key = key
    fleet.run()
    assert all(attempt.started_at is not None for attempt in fleet.attempts)
    assert (fleet.limiter.leases, fleet.limiter.places) == ((), ())
    if limits.max_concurrency > 0:
        assert fleet.most_lent <= limits.max_concurrency
    if per_key is None:
        return
    assert fleet.most_of_key <= (per_key.max_concurrency or len(keys))
    for key in "abc" if per_key.rate_per_second else "":
        starts = sorted(
            each.started_at for each in fleet.attempts if each.limit_key == key and each.started_at
        )
        least = timedelta(seconds=1 / per_key.rate_per_second - 0.01)
        # A turn that was reserved is used when the attempt comes, which may be late for want of a slot.
        assert limits.rate_per_second or all(later - earlier >= least for earlier, later in pairwise(starts))


def a_place(number: int, key: str | None, weight: float | None = None) -> Place:
    return Place(NOON + timedelta(seconds=number), f"op-{number}:1", NOON, None, key, weight)


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
        left = shares.charged(first, places, NOON, None)
        assert left is not None
        shares = FairShares.from_json(left.to_json())
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
    assert ordered == sorted(places, key=lambda place: place.order(NOON))


@given(st.integers(0, 200), st.integers(1, 300))
def test_the_state_is_bounded_however_many_keys_and_attempts_there_are(keys: int, attempts: int) -> None:
    limiter, limits = Limiter(), LimitSettings(max_concurrency=1)
    for number in range(attempts):
        now = NOON + timedelta(seconds=number)
        key = f"k-{number % (keys + 1)}"
        request = SlotRequest(f"op-{number}:1", 0.5, limits, asked_at=now, limit_key=key)
        limiter, _ = acquire(limiter, request, now)
        assert len(limiter.places) <= KEPT_PLACES
        assert limiter.fair is None or len(limiter.fair.shares) <= KEPT_KEYS


@given(st.integers(5, 60), st.sampled_from([LimitSettings(1), LimitSettings(rate_per_second=1.0)]))
def test_a_key_that_comes_to_the_backlog_of_another_goes_soon(backlog: int, limits: LimitSettings) -> None:
    fleet = a_fleet(limits, [(0.0, 1.0)] * backlog + [(5.0, 1.0)], 0.0)
    for attempt in fleet.attempts[:-1]:
        attempt.limit_key = "a"
    newcomer = fleet.attempts[-1]
    newcomer.limit_key = "b"
    fleet.run()
    assert newcomer.started_at is not None
    # The one under way, or the turns that are reserved already, are before it.
    assert newcomer.started_at - newcomer.due_at <= timedelta(seconds=6)


@settings(max_examples=25)  # each plays a minute of a whole line, twice
@given(st.integers(60, 90), st.integers(1, 20), st.floats(0, 0.3))
def test_a_burst_of_a_key_that_rested_waits_at_most_twice_as_long_as_alone(
    backlog: int, burst: int, late: float
) -> None:
    def longest_wait(others: int) -> float:
        given_attempts = [(0.0, 1.0)] * others + [(80.0, 1.0)] * burst
        fleet = a_fleet(LimitSettings(max_concurrency=1), given_attempts, late)
        own = fleet.attempts[others:]
        for attempt in fleet.attempts:
            attempt.limit_key = "own" if attempt in own else "other"
        fleet.run()
        return max((each.started_at - each.due_at).total_seconds() for each in own if each.started_at)

    # The one under way, which nobody can take the slot from, is before it.
    assert longest_wait(backlog) <= 2 * longest_wait(0) + 1 + late
