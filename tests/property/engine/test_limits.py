"""Whoever asks when: both limits hold, the oldest goes first, and at rest every slot is free."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.engine.limits.limiter import Limiter, Slot, SlotPostponed, SlotRequest, acquire, give_back
from durable_retry.engine.limits.settings import LimitSettings
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


class Fleet:
    """Attempts of one dependency, in the order of their instants; the state goes through its JSON."""

    def __init__(self, limits: LimitSettings, attempts: list[Attempt], late_seconds: float) -> None:
        self.limits, self.limiter = limits, Limiter()
        self.attempts = attempts
        self.late = timedelta(seconds=late_seconds)
        self.steps: list[tuple[datetime, int, Attempt, Slot | None]] = []
        self.numbers = count()
        self.most_lent = 0
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
        request = SlotRequest(attempt.name, 3_600.0, self.limits, asked_at=now, due_at=attempt.due_at)
        request = SlotRequest.from_json(replace(request, reserved=attempt.reserved).to_json())
        self.limiter, answer = acquire(self.limiter, request, now)
        self.most_lent = max(self.most_lent, len(self.limiter.leases))
        if isinstance(answer, SlotPostponed):
            attempt.reserved = answer.reserved
            attempt.has_place = answer.ahead is not None
            late = self.late if attempt.has_place else timedelta()
            self.plan(now + timedelta(seconds=max(answer.seconds, 0.001)) + late, attempt, None)
            return
        older = [other.name for other in self.attempts if other.has_place and other.due_at < attempt.due_at]
        # A slot is left for each of the older ones.
        pool = self.limits.max_concurrency - self.limits.shared_concurrency
        assert not older or len(self.limiter.leases) + len(older) <= pool, f"{attempt.name} passed {older}"
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
