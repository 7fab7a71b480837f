from dataclasses import replace
from datetime import timedelta

import pytest

from durable_retry.base.json_forms import to_ms
from durable_retry.features.limits.rules.calls import (
    calls_of,
    look,
    next_look,
    successors,
)
from durable_retry.features.limits.rules.fair import KEPT_PLACES, Place
from durable_retry.features.limits.rules.leases import Lease, Leases, mark_of
from durable_retry.features.limits.rules.settings import KeyLimits, ReadLimits
from durable_retry.features.limits.rules.state import LEAST_PART, UNUSED, Limiter
from tests.support.builders import NOON, after


def place(number: int, key: str | None = None, *, told_by: str | None = None, asks: float = 120) -> Place:
    return Place(to_ms(NOON), f"{number}", to_ms(after(asks)), None, key, None, f"op-{number}", told_by)


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
    assert successors(limiter_of(soon, *three[1:]))[1] == ("op-2",), "op-1 comes by itself"


def turns_of(*places: Place, rate: float = 2.0, last: float = 2.6, line: tuple[str, ...] = ()) -> Limiter:
    """Return a limiter of a rate alone where these wait, with turns reserved for so many seconds."""
    settings, waited = ReadLimits(rate_per_second=rate), (after(-9), after(99))
    return Limiter(
        clock=NOON,
        last_start_at=after(last),
        places=places,
        line=line,
        settings=settings,
        crowded_since=waited[0],
        crowded_until=waited[1],
    )


def test_for_turns_for_which_nobody_asks_soon_those_of_a_second_or_more_are_told() -> None:
    coming = [place(number, asks=1) for number in range(3)]
    waiting = [place(number) for number in (7, 8, 9)]
    assert successors(turns_of(*coming[1:], *waiting))[1] == (), (
        "two of three turns have one: too few to tell"
    )
    assert successors(turns_of(*coming[2:], *waiting))[1] == ("op-7", "op-8")
    assert successors(turns_of(*coming[1:], place(7)))[1] == ("op-7",), "nobody else waits"
    assert successors(turns_of(*coming, *waiting, line=("op-10",)))[1] == ()
    limiter, calls = successors(turns_of(*coming[2:], line=("op-10", "op-11", "op-12")))
    assert (calls, limiter.line) == (("op-10", "op-11"), ("op-12",))
    assert successors(limiter) == (limiter, ()), "they come"


def test_while_turns_pass_unused_nobody_counts_as_coming_by_itself() -> None:
    coming = [place(number, asks=1) for number in range(9)]
    assert successors(turns_of(*coming, last=-1.9))[1] == ()
    assert len(successors(turns_of(*coming, last=-2))[1]) == 9


def test_it_looks_for_who_comes_when_the_turns_that_are_reserved_have_passed_unused() -> None:
    assert next_look(turns_of(place(1)))[1] == after(2.6) + UNUSED
    assert next_look(turns_of(place(1), last=-5))[1] == NOON + UNUSED
    slow = turns_of(place(1), rate=0.1, last=9)
    assert next_look(slow)[1] == after(9) + UNUSED, "no turn is free before"
    assert next_look(turns_of(place(1, asks=1)))[1] is None, "it asks by itself"


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
    limiter = limiter_of(place(1, told_by="lent-00"), place(2), place(3), lent=2)
    called, calls = calls_of(limiter, place(4))
    assert (calls, called_in(called)) == (("op-2",), ["op-1", "op-2"])
    assert calls_of(called, place(4))[1] == ("op-3",), "one at least"
    assert calls_of(limiter, replace(place(4), waiter=None)) == (limiter, None)
    assert calls_of(limiter_of(), place(4))[1] is None


def test_who_is_called_by_a_slot_comes_for_that_one_when_it_is_given_back() -> None:
    lease = Lease("lent-00", NOON, 70.0)
    limiter = limiter_of(place(1, told_by="lent-00"), place(2), most=2, lent=1)
    assert successors(limiter)[1] == ("op-2",), "others come first for another slot"
    told = limiter.without(lease, after(1))
    assert told.places[0] == place(1, told_by="", asks=3)
    assert successors(replace(told, places=told.places[:1]))[1] == ()
    assert look(limiter, after(71))[1] == ("op-1", "op-2"), "its lease is over, and tells nobody"


def test_a_slot_that_nobody_else_takes_goes_to_one_that_another_slot_calls_whose_holder_may_be_gone() -> None:
    alone = limiter_of(place(1, told_by="lent-00"), most=3, lent=1)
    told, calls = successors(alone)
    assert (calls, told.places) == (("op-1",), (place(1, told_by="", asks=UNUSED.total_seconds()),))
    assert successors(told)[1] == ()
    assert next_look(alone)[1] == NOON + UNUSED
    own_key_is_full = limiter_of(place(1, "a", told_by="lent-00"), most=3, lent=1, key="a")
    assert successors(own_key_is_full)[1] == ()


def test_who_was_told_and_did_not_ask_is_gone_though_others_come_for_other_slots() -> None:
    waiting = limiter_of(
        place(1, told_by="", asks=5), place(2, told_by="", asks=2), place(3), place(4), most=3, lent=1
    )
    limiter = replace(waiting, moved_at=after(9))
    assert look(limiter, after(1.9))[1] == (), "they may come yet"
    limiter, calls = look(limiter, after(2))
    assert (calls, called_in(limiter), limiter.line) == (("op-3",), ["op-1", "op-3"], ("op-2",))
    limiter, calls = look(limiter, after(4))
    assert (calls, limiter.line) == (("op-4",), ("op-2", "op-3")), "it may be late, and is told again"
    limiter, calls = look(limiter, after(6))
    assert calls == ("op-2", "op-3", "op-1", "op-4")
    limiter, calls = look(limiter, after(8))
    assert (calls, limiter.line) == ((), ()), "nobody is told for ever"


def test_where_hardly_anybody_comes_all_are_told_and_forgotten_until_they_ask() -> None:
    gone = [place(number, told_by="", asks=2) for number in range(28)]
    untold = replace(place(40), waiter=None)
    others = [place(41, told_by="lent-00"), place(42), untold]
    limiter = replace(limiter_of(*gone, *others, most=60, lent=1), came=0.9, line=("op-90",))
    assert len(look(limiter, after(2))[1]) == 30, "one may come"
    limiter, calls = look(replace(limiter, came=0.8), after(2))
    assert calls == ("op-42", "op-90", *(each.waiter for each in gone))
    assert (limiter.places, limiter.line, limiter.came) == ((others[0], untold), (), None)


def test_where_nobody_comes_at_all_few_looks_are_enough_for_all() -> None:
    limiter = limiter_of(place(0, told_by="", asks=2), *(place(number) for number in range(1, 90)), most=1)
    numbers = []
    for seconds in (2, 4, 6):
        limiter, calls = look(limiter, after(seconds))
        numbers.append(len(calls))
    assert numbers == [6, 29, 90]


def test_the_fewer_come_the_more_are_called() -> None:
    limiter = limiter_of(*(place(number) for number in range(100)))
    assert len(successors(limiter)[1]) == 2
    limiter = limiter.seen(gone=7)
    assert (limiter.came, len(successors(limiter)[1])) == (0.478, 6)
    assert len(calls_of(limiter, place(101))[1] or ()) == 6
    assert limiter.seen(gone=1_000).came == LEAST_PART
    assert limiter.seen(came=20).came == 0.937
    assert limiter.seen(came=40).came is None


def test_the_entity_looks_while_somebody_waits_to_be_told() -> None:
    assert next_look(replace(limiter_of(), came=0.5)) == (limiter_of(), None)
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
    late = replace(limiter, clock=after(4.9))
    assert next_look(late) == (late, None), "it may be under way"
    assert next_look(replace(limiter, clock=after(5)))[1] == after(5) + UNUSED


def test_of_looks_that_come_beside_each_other_one_plans_the_next() -> None:
    told = limiter_of(place(1, told_by="", asks=2), place(2), place(3, told_by="", asks=1), lent=1)
    limiter, at = next_look(told)
    assert at == after(1)
    limiter, at = next_look(look(limiter, after(1))[0])
    assert at == after(2)
    again, at = next_look(look(limiter, after(1.5))[0])
    assert (again.looks_at, at) == (after(2), None), "the look that came twice plans no second one"
    assert next_look(look(again, after(2))[0])[1] is not None


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
    told = limiter_of(place(1, told_by="", asks=1.5), place(2, told_by="", asks=1), lent=2)
    assert next_look(told)[1] == after(1)
    assert next_look(replace(told, clock=after(1.5)))[1] == after(1.5) + UNUSED, "the look was lost"
