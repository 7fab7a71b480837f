from dataclasses import replace
from datetime import timedelta

import pytest

from durable_retry.base.json_forms import to_ms
from durable_retry.features.limits.rules.calls import (
    MOST_MISSED,
    calls_of,
    look,
    next_look,
    successors,
)
from durable_retry.features.limits.rules.fair import KEPT_PLACES, Place
from durable_retry.features.limits.rules.leases import Lease, Leases, mark_of
from durable_retry.features.limits.rules.settings import KeyLimits, ReadLimits
from durable_retry.features.limits.rules.state import UNUSED, Limiter
from tests.support.builders import NOON, after

LATER_MS = to_ms(after(120))


def place(number: int, key: str | None = None, *, is_called: bool | None = None) -> Place:
    return Place(to_ms(NOON), f"{number}", LATER_MS, None, key, None, f"op-{number}", is_called)


def limiter_of(*places: Place, most: int = 2, lent: int = 0, key: str | None = None) -> Limiter:
    """Return a limiter where these wait, with so many slots lent."""
    leases = Leases()
    for number in range(lent):
        leases = leases.with_lease(Lease(f"lent-{number:02d}", NOON, 70.0, mark_of(key) if key else ""))
    per_key = None if key is None else KeyLimits(max_concurrency=1)
    settings = ReadLimits(most, per_key=per_key)
    return Limiter(clock=NOON, leases=leases, moved_at=NOON, places=places, settings=settings)


def called_in(limiter: Limiter) -> list[str | None]:
    return [each.waiter for each in limiter.places if each.is_called]


def test_as_many_are_called_as_slots_are_free_for_which_nobody_comes() -> None:
    three = [place(number) for number in (1, 2, 3)]
    limiter, calls = successors(limiter_of(*three))
    assert (calls, called_in(limiter)) == (("op-1", "op-2"), ["op-1", "op-2"])
    assert successors(limiter) == (limiter, ()), "they come"
    assert successors(limiter_of(*three, lent=1))[1] == ("op-1",)
    assert successors(limiter_of(*three, lent=2))[1] == (), "whoever gives one back tells them"
    soon = replace(three[0], asks_ms=to_ms(after(1)))
    assert successors(limiter_of(soon, *three[1:]))[1] == ("op-1",)


def test_nobody_is_called_that_cannot_be_told_or_whose_key_has_all_its_slots() -> None:
    untold = replace(place(1), waiter=None)
    assert successors(limiter_of(untold, place(2)))[1] == ("op-2",)
    of_key = limiter_of(place(1, "a"), place(2, "b"), place(3, "b"), most=9, lent=1, key="a")
    assert successors(of_key)[1] == ("op-2",)
    keys_alone = limiter_of(place(1, "a"), place(2, "b"), place(3), most=0, key="a")
    assert successors(keys_alone)[1] == ("op-1", "op-2", "op-3")


def test_those_behind_are_called_when_no_place_is_left_and_get_one() -> None:
    limiter, calls = successors(replace(limiter_of(place(1)), line=("op-8", "op-9")))
    assert (calls, limiter.line, called_in(limiter)) == (("op-1", "op-8"), ("op-9",), ["op-1", "op-8"])
    full = tuple(replace(place(number), waiter=None) for number in range(KEPT_PLACES))
    assert successors(replace(limiter_of(*full), line=("op-8",)))[1] == ()


def test_a_slot_comes_with_as_many_as_there_are_slots_less_those_that_are_called() -> None:
    limiter = limiter_of(place(1, is_called=True), place(2), place(3), lent=2)
    called, calls = calls_of(limiter, place(4))
    assert (calls, called_in(called)) == (("op-2",), ["op-1", "op-2"])
    assert calls_of(limiter, replace(place(4), waiter=None)) == (limiter, None)
    assert calls_of(limiter_of(), place(4))[1] is None


def test_where_nobody_came_four_times_as_many_are_called_each_time() -> None:
    limiter = limiter_of(*(place(number, is_called=number == 0 or None) for number in range(60)), most=1)
    assert look(limiter, after(1.9))[1] == (), "they may come yet"
    limiter, first = look(limiter, after(2))
    assert (len(first), limiter.missed, limiter.line) == (4, 1, ("op-0",)), "it may be late"
    limiter, second = look(limiter, after(4))
    assert (len(second), limiter.missed, limiter.line) == (16, 2, ("op-0",)), "these are gone"
    limiter, third = look(limiter, after(6))
    assert third[-1] == "op-0", "it is told once more, after all others"
    limiter = replace(look(limiter, after(8))[0], places=(place(99),))
    assert limiter.missed == MOST_MISSED
    assert look(replace(limiter, moved_at=after(9)), after(10))[0].missed == MOST_MISSED - 1


def test_after_missed_calls_a_slot_comes_with_more() -> None:
    limiter = replace(limiter_of(*(place(number) for number in range(20)), lent=2), missed=1)
    assert len(calls_of(limiter, place(30))[1] or ()) == 8


def test_the_entity_looks_while_somebody_waits_to_be_told() -> None:
    assert next_look(replace(limiter_of(), missed=2)) == (limiter_of(), None)
    untold = limiter_of(replace(place(1), waiter=None))
    assert next_look(untold) == (untold, None)
    limiter, at = next_look(limiter_of(place(1)))
    assert (at, limiter.looks_at) == (NOON + UNUSED, NOON + UNUSED)
    assert next_look(limiter) == (limiter, None), "it looks by then"
    late = replace(limiter_of(place(1)), lag_seconds=1.0)
    assert next_look(late)[1] == NOON + UNUSED + timedelta(seconds=3)


@pytest.mark.shows("W13")
def test_after_a_look_that_was_lost_the_next_message_has_it_look() -> None:
    limiter, at = next_look(limiter_of(place(1)))
    assert at == NOON + UNUSED
    assert next_look(replace(limiter, clock=after(3)))[1] == after(3) + UNUSED


@pytest.mark.parametrize(
    "limiter",
    [limiter_of(place(1), lent=2), limiter_of(place(1, "a"), most=9, lent=1, key="a")],
    ids=["all slots", "those of its key"],
)
def test_while_what_is_waited_for_is_lent_it_looks_when_the_first_lease_is_over(limiter: Limiter) -> None:
    waiting, at = next_look(limiter)
    assert at == after(70)
    assert next_look(replace(waiting, leases=Leases()))[1] == NOON + UNUSED, "a slot is free before"


def test_it_looks_after_what_called_ones_left_and_those_behind_too() -> None:
    assert next_look(replace(limiter_of(), line=("op-9",)))[1] == NOON + UNUSED
    assert next_look(limiter_of(place(1, is_called=True)))[1] == NOON + UNUSED
