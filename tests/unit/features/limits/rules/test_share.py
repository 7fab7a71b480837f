from dataclasses import replace
from datetime import datetime

import pytest

from durable_retry.features.limits.rules.limiter import acquire
from durable_retry.features.limits.rules.settings import LEAST_SHARED, KeyLimits, LimitSettings
from durable_retry.features.limits.rules.share import ALONE, CROWDED_FOR, KEPT_KEYS, Part, WorkerShare
from durable_retry.features.limits.rules.state import CROWDED_FOR as ENTITY_CROWDED_FOR
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.retry.slots import Slot, SlotRequest, is_valid
from tests.support.builders import NOON, after

OF_TWO, OF_FOUR = Part(2, 0), Part(4, 0)


def test_nobody_who_has_not_waited_takes_a_slot_while_others_wait() -> None:
    share = WorkerShare(LimitSettings(max_concurrency=16))
    assert [share.take(NOON, OF_FOUR) for _ in range(3)] == [True, True, False]
    share.ended()
    assert not share.take(after(0.5), OF_FOUR)
    assert share.take(after(1.2), OF_FOUR)


@pytest.mark.parametrize(("ahead", "may_take"), [(0, True), (7, True), (8, False)])
def test_as_many_of_those_who_wait_as_there_are_shares_may_take_one(ahead: int, *, may_take: bool) -> None:
    share = WorkerShare(LimitSettings(max_concurrency=16))
    assert share.take(NOON, ALONE, ahead=ahead) is may_take
    assert not share.take(after(0.5), ALONE)


def test_half_a_limit_is_shared_out() -> None:
    share = WorkerShare(LimitSettings(max_concurrency=17))
    assert [share.take(NOON, OF_TWO) for _ in range(5)] == [True, True, True, True, False]
    share.ended()
    assert share.take(after(1), OF_TWO)


@pytest.mark.parametrize(("shared", "workers"), [(2, 3), (7, 3), (0, 2), (10, 1), (5, 5)])
def test_all_parts_together_are_what_is_shared_out(shared: int, workers: int) -> None:
    assert sum(Part(workers, rank).of(shared) for rank in range(workers)) == shared


def test_a_limit_too_small_to_share_leaves_nothing_to_a_worker() -> None:
    assert not WorkerShare(LimitSettings(max_concurrency=LEAST_SHARED - 1)).take(NOON, ALONE)
    assert not WorkerShare(LimitSettings(rate_per_second=1.5)).take(NOON, ALONE)


def test_a_worker_starts_its_share_within_any_second() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=9))
    assert [share.take(NOON, OF_TWO) for _ in range(3)] == [True, True, False]
    assert not share.take(after(0.9), OF_TWO)
    assert share.take(after(1), OF_TWO)


def test_a_worker_starts_none_of_its_own_accord_while_attempts_wait_for_the_rate() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=10))
    assert share.seconds_until(after(0.5), NOON, is_crowded=True) == 0.5
    rest = CROWDED_FOR.total_seconds()
    assert [share.take(after(rest - 0.1), ALONE), share.take(after(rest), ALONE)] == [False, True]
    assert CROWDED_FOR > ENTITY_CROWDED_FOR
    # One of ten workers sees a tenth of those who wait.
    slow = WorkerShare(LimitSettings(rate_per_second=2), waited_at=NOON)
    assert [slow.take(after(rest * 5 + more), Part(10, 0)) for more in (-0.1, 0)] == [False, True]


def test_of_two_limits_nothing_is_shared_out() -> None:
    """The entity could not grant the slots that workers keep while attempts wait for the rate."""
    both = LimitSettings(max_concurrency=20, rate_per_second=20)
    assert (both.shared_concurrency, both.shared_rate) == (0, 0)
    assert not WorkerShare(both).take(NOON, ALONE)
    assert not WorkerShare(both).take(NOON, ALONE, ahead=0)


@pytest.mark.parametrize(("limits", "holds"), [((16, 0.0), True), ((0, 4.0), False)])
def test_a_worker_holds_a_part_of_the_attempts_at_once_while_one_is_under_way(
    limits: tuple[int, float], *, holds: bool
) -> None:
    share = WorkerShare(LimitSettings(*limits))
    assert not share.holds_slots()
    assert share.take(NOON, ALONE)
    assert share.holds_slots() is holds
    share.ended()
    assert not share.holds_slots()


@pytest.mark.parametrize(
    ("turn_at", "is_good"), [(None, False), (after(-2.1), False), (after(-2), True), (after(9), True)]
)
def test_a_turn_that_is_over_for_two_seconds_is_void(turn_at: datetime | None, *, is_good: bool) -> None:
    assert is_valid(turn_at, NOON) is is_good


def test_who_has_a_turn_waits_for_it_and_turns_that_come_together_are_spread() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=4))
    assert share.seconds_until(after(0.3), NOON) == pytest.approx(0.3)
    assert share.seconds_until(after(30), NOON) == 1.0, "it looks again then"
    assert share.seconds_until(None, NOON) == 0.0
    for _ in range(5):
        assert share.seconds_until(after(-1), after(0.5)) == 0.0
        share.note_start(after(0.5))
    assert share.seconds_until(after(-1), after(0.7)) == pytest.approx(0.8)
    assert share.seconds_until(after(-1), after(1.5)) == 0.0
    free = replace(share, settings=LimitSettings(max_concurrency=1))
    free.note_start(after(2))
    assert free.seconds_until(after(3), after(2)) == 0.0


@pytest.mark.parametrize(
    ("rate", "part", "starts"),
    [(5.0, ALONE, (5, 0, 5)), (0.5, ALONE, (1, 0, 0)), (5.0, OF_TWO, (0, 0, 0))],
)
def test_of_those_that_come_after_their_turns_a_worker_alone_starts_so_many_as_the_rate_allows(
    rate: float, part: Part, starts: tuple[int, ...]
) -> None:
    share, seen = WorkerShare(LimitSettings(rate_per_second=rate)), list[int]()
    for seconds in (0.0, 0.9, 1.0):
        number = 0
        while share.may_start_late(after(seconds), part):
            share.note_start(after(seconds))
            number += 1
        seen.append(number)
    assert tuple(seen) == starts
    assert share.may_start_late(after(3), part) is (part == ALONE)
    assert share.take(after(3), part) is (part != ALONE), "whoever comes late has waited"


def test_late_starts_of_a_key_are_spaced_by_its_rate() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=8, per_key=KeyLimits(rate_per_second=2)))
    share.note_start(NOON, "a")
    late = [share.may_start_late(after(at), ALONE, key) for at, key in ((0.4, "a"), (0.4, "b"), (0.5, "a"))]
    assert late == [False, True, True]
    for number in range(KEPT_KEYS):
        share.note_start(NOON, f"key-{number}")
    assert share.may_start_late(after(1.0), ALONE, "a"), "it is forgotten"
    share.note_start(after(1), None)
    assert share.may_start_late(after(1.0), ALONE), "those without a key have no bound of their own"


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 7, 16, 20])
def test_shares_and_grants_together_are_the_limit(workers: int, most: int) -> None:
    settings = LimitSettings(max_concurrency=most)
    shares = [WorkerShare(settings) for _ in range(workers)]
    started = sum(
        share.take(NOON, Part(workers, rank)) for rank, share in enumerate(shares) for _ in range(most)
    )
    limiter = Limiter()
    for number in range(most + 1):
        limiter, answer = acquire(
            limiter, SlotRequest(f"op-{number}:1", 70.0, settings.to_json(), NOON, NOON), NOON
        )
        started += isinstance(answer, Slot)
    assert started == most
