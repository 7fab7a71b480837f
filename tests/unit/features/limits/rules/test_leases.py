from datetime import datetime, timedelta

import pytest

from durable_retry.base.asks import KEPT_ASKS
from durable_retry.features.limits.rules.leases import (
    Lease,
    Leases,
    mark_of,
    name_of,
    was_answered,
    with_answered,
)
from tests.support.builders import NOON, after
from tests.support.narrowing import existing

A, B = mark_of("a"), mark_of("b")


def a_lease(number: int, at: float = 0.0, seconds: float = 70.0, mark: str = "") -> Lease:
    return Lease(name_of(f"op-{number}:1"), after(at), seconds, mark)


def lent(*leases: Lease) -> Leases:
    held = Leases()
    for lease in leases:
        held = held.with_lease(lease)
    return Leases.from_json(held.to_json())


MIXED = (
    a_lease(1),
    a_lease(2, 1, 9.5),
    a_lease(3, 2, mark=A),
    a_lease(4, 3, 10, mark=B),
    a_lease(5, 4, mark=A),
)


def test_every_lease_is_there_until_it_is_taken_out() -> None:
    held = lent(*MIXED)
    assert len(held) == len(MIXED)
    for number, lease in enumerate(MIXED):
        found = existing(held.find(lease.name, after(9)))
        assert (found.name, found.asked_at, found.mark) == (lease.name, lease.asked_at, lease.mark)
        held = held.without(lease.name)
        assert (len(held), held.find(lease.name, after(9))) == (len(MIXED) - number - 1, None)
    assert held == Leases()


def test_one_that_is_asked_for_again_keeps_its_place() -> None:
    held = lent(*MIXED)
    held = held.with_asked_at(MIXED[2], after(30))
    found = existing(held.find(MIXED[2].name, after(31)))
    assert (found.asked_at, found.mark, len(held)) == (after(30), A, len(MIXED))


def test_those_that_are_over_are_found_by_how_long_each_lasts() -> None:
    held = lent(*MIXED)
    assert [lease.name for lease in held.expired(after(10.9))] == []
    assert [lease.name for lease in held.expired(after(11))] == [MIXED[1].name]
    assert {lease.name for lease in held.expired(after(73))} == {lease.name for lease in MIXED[:4]}


def test_they_are_counted_by_limit_key_and_the_oldest_come_first() -> None:
    held = lent(*MIXED)
    assert held.by_mark() == {A: 2, B: 1}
    assert held.begins(3, after(9)) == [after(0), after(1), after(2)]
    assert held.begins(9, after(9), A) == [after(2), after(4)]


@pytest.mark.parametrize("days", [0, 3, 11, 12, 13, 400])
def test_instants_are_read_in_whatever_turn_of_their_circle(days: int) -> None:
    at = NOON + timedelta(days=days, milliseconds=17)
    held = Leases().with_lease(Lease("1234567", at, 70.0))
    for now in (at - timedelta(days=5), at, at + timedelta(days=5)):
        assert existing(held.find("1234567", now)).asked_at == at


def test_a_name_across_two_records_is_none() -> None:
    held = Leases({"70": "aaaaaaaAAAAAbbbbbbbBBBBB"})
    assert held.find("AAbbbbb", NOON) is None
    assert held.find("bbbbbbb", NOON) is not None


def test_the_latest_answered_requests_are_remembered() -> None:
    answered = ""
    for number in range(KEPT_ASKS + 5):
        answered = with_answered(answered, a_lease(number).name, after(number), after(number))
    now = after(200)

    def known(number: int, at: datetime) -> bool:
        return was_answered(answered, a_lease(number).name, at, now)

    assert [known(number, after(number)) for number in (4, 5, KEPT_ASKS)] == [False, True, True]
    assert (known(9, after(8)), known(9, after(10))) == (True, False)
    later = with_answered(answered, a_lease(9).name, after(10), now)
    assert (len(later), was_answered(later, a_lease(9).name, after(10), now)) == (len(answered), True)
    assert with_answered(answered, a_lease(9).name, after(8), now) == answered
