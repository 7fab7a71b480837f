import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from durable_retry.base.json_forms import to_ms, union_from_json
from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.calls import KEPT_LINE, LEAST_TOLD_SECONDS
from durable_retry.features.limits.rules.document import limits_view
from durable_retry.features.limits.rules.fair import KEPT_PLACES, LONGEST_TAIL_SECONDS, Place
from durable_retry.features.limits.rules.leases import Lease, Leases, name_of
from durable_retry.features.limits.rules.limiter import (
    FIRST_ASK_SECONDS,
    FIRST_SLOT_ASK_SECONDS,
    LATEST_LONGEST_SECONDS,
    LEAST_ASK_SECONDS,
    LONGEST_ASK_SECONDS,
    TOLD_TURN_PART,
    acquire,
    answer_to,
    give_back,
    leave,
    reset,
)
from durable_retry.features.limits.rules.settings import KeyLimits, LimitSettings, ReadLimits
from durable_retry.features.limits.rules.state import LATE, RESERVED_SECONDS, UNUSED, Limiter
from durable_retry.rules.retry.slots import (
    DOOR_SECONDS,
    Leaving,
    Slot,
    SlotAnswer,
    SlotPostponed,
    SlotRequest,
)
from tests.support.builders import NOON, after
from tests.support.narrowing import existing, second_of_type

ONE_AT_ONCE = LimitSettings(max_concurrency=1)
THREE_AT_ONCE = LimitSettings(max_concurrency=3)
TWO_A_SECOND = LimitSettings(rate_per_second=1.9)
"""Too few to share out among workers."""


def asking(
    number: int, settings: LimitSettings = ONE_AT_ONCE, at: float = 0.0, due: float | None = None
) -> SlotRequest:
    due_at = after(at if due is None else due)
    return SlotRequest(f"op-{number}:1", 70.0, settings.to_json(), asked_at=after(at), due_at=due_at)


def again(
    number: int, settings: LimitSettings = ONE_AT_ONCE, at: float = 0.0, due: float = 0.0
) -> SlotRequest:
    """Return the request of one that was postponed before."""
    return replace(asking(number, settings, at, due), has_waited=True)


def postponed(limiter: Limiter, request: SlotRequest) -> tuple[Limiter, SlotPostponed]:
    """Let an attempt ask that has to wait."""
    return second_of_type(SlotPostponed, acquire(limiter, request, request.asked_at))


def granted(limiter: Limiter, request: SlotRequest) -> tuple[Limiter, Slot]:
    return second_of_type(Slot, acquire(limiter, request, request.asked_at))


BUSY, HELD = granted(replace(Limiter(), lasted_seconds=4.0), asking(1))
"""The only slot is lent, and attempts take four seconds."""


def test_without_a_limit_nothing_is_on() -> None:
    assert not LimitSettings().is_on
    assert LimitSettings(max_concurrency=1).is_on
    assert LimitSettings(rate_per_second=0.5).is_on


@pytest.mark.parametrize(
    "answer",
    [Slot(), Slot("op-1:1", NOON, 0.5), SlotPostponed(1.5, "busy", 2.5), SlotPostponed(1.5, "busy", ahead=3)],
)
def test_an_answer_survives_its_json(answer: Slot | SlotPostponed) -> None:
    assert union_from_json(SlotAnswer, answer.to_json()) == answer


def test_a_request_and_the_state_survive_their_json() -> None:
    request = replace(asking(1, THREE_AT_ONCE), latest_seconds=3.0)
    assert SlotRequest.from_json(request.to_json()) == request
    limiter, _ = postponed(granted(Limiter(), asking(1))[0], asking(2, LimitSettings(1, 1.0)))
    assert Limiter.from_json(limiter.to_json()) == limiter
    assert Leaving("op-1:1").to_json() == {"lease_id": "op-1:1"}


def test_no_more_than_the_limit_are_under_way() -> None:
    limiter, shared = Limiter(), LimitSettings(max_concurrency=16)  # half of them among the workers
    for number in range(8):
        limiter, _ = granted(limiter, asking(number, shared))
    _, ninth = postponed(limiter, asking(8, shared))
    assert (ninth.reason, ninth.ahead) == ("16 attempts at once", 0)


def test_a_repeated_request_gets_the_same_slot() -> None:
    limiter, _ = granted(Limiter(), asking(1))
    limiter, slot = granted(limiter, asking(1, at=1))
    assert (slot, len(limiter.leases)) == (Slot("op-1:1", after(1)), 1)
    assert granted(limiter, asking(1))[1] == Slot("op-1:1", after(1)), "an earlier one comes late"


def test_a_slot_that_was_given_back_is_free() -> None:
    limiter = give_back(BUSY, HELD, after(2))
    assert granted(limiter, asking(2, at=2))[1].lease_id == "op-2:1"


def test_giving_back_twice_frees_nothing_else() -> None:
    limiter, _ = granted(give_back(BUSY, HELD, after(2)), asking(2, at=2))
    assert give_back(limiter, HELD, after(3)).leases == limiter.leases
    assert give_back(limiter, Slot(), after(2)) == limiter, "a start without a slot frees nothing"


def test_a_return_that_a_later_request_overtook_frees_nothing() -> None:
    limiter, _ = granted(BUSY, asking(1, at=5))
    assert give_back(limiter, HELD, after(6)).leases == limiter.leases


def test_one_that_is_told_of_a_slot_brings_it_back_where_the_message_of_that_was_lost() -> None:
    request = replace(again(2, at=2), freed=HELD.to_json())
    postponed(BUSY, replace(request, freed=None))
    assert granted(BUSY, request)[1].lease_id == "op-2:1"


@pytest.mark.parametrize("brings_it", [True, False])
def test_a_slot_that_two_bring_back_or_that_comes_late_frees_no_other(*, brings_it: bool) -> None:
    limiter, _ = granted(BUSY, replace(again(2, at=2), freed=HELD.to_json()))
    limiter = limiter if brings_it else give_back(limiter, HELD, after(3))
    limiter, _ = postponed(limiter, replace(again(3, at=4), freed=HELD.to_json() if brings_it else None))
    assert limiter.leases.find(name_of("op-2:1"), after(4)) is not None


def test_one_whose_holder_has_asked_again_since_is_not_brought_back() -> None:
    limiter, _ = granted(BUSY, asking(1, at=5))
    postponed(limiter, replace(again(2, at=6), freed=HELD.to_json()))


@pytest.mark.parametrize("freed", ["op-1:1", {"lease_id": 5}, {"kind": "slot"}])
def test_what_is_no_slot_brings_none_back(freed: Any) -> None:
    """Anyone may send an event, in any form."""
    postponed(BUSY, replace(again(2, at=2), freed=freed))


@pytest.mark.shows("W9")
def test_the_slot_of_an_attempt_that_never_came_back_is_free_after_its_lease() -> None:
    postponed(BUSY, asking(2, at=69))
    granted(BUSY, asking(2, at=71))


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_slot_that_was_given_back_is_not_lent_to_a_repetition_of_its_request(*, is_stored: bool) -> None:
    """A turn that was not committed asks again; the state after that may be lost with its worker."""
    limiter, _ = granted(Limiter(), asking(1))
    repeated, slot = granted(limiter, asking(1, at=30))
    limiter = give_back(repeated if is_stored else limiter, slot, after(31))
    limiter, _ = acquire(limiter, asking(1, at=30), after(32))
    assert len(limiter.leases) == 0
    granted(limiter, asking(1, at=33))


def test_time_never_runs_backwards() -> None:
    limiter, _ = granted(Limiter(), asking(1, TWO_A_SECOND))
    limiter, _ = acquire(limiter, asking(2, TWO_A_SECOND), after(-30))
    assert limiter.clock == NOON


def test_those_who_wait_ask_one_after_the_other_and_sooner_than_slots_should_be_free() -> None:
    limiter, waits = replace(BUSY, lasted_seconds=3.0), list[float]()
    for number in range(2, 7):
        limiter, answer = postponed(limiter, again(number, due=number / 100))
        waits.append(answer.seconds)
    assert waits == [3.0, 3.0, 6.0, 9.0, 9.0], "half as often again"


def test_who_comes_when_told_goes_and_a_newcomer_does_not_pass_it() -> None:
    limiter, wait = postponed(BUSY, asking(2, at=1))
    limiter = give_back(limiter, HELD, after(3))
    _, newcomer = postponed(limiter, asking(3, at=3))
    assert newcomer.ahead == 1
    granted(limiter, again(2, at=1 + wait.seconds, due=1))


def test_an_older_one_that_is_told_to_come_much_later_holds_no_newcomer_up() -> None:
    limiter, _ = postponed(BUSY, again(2, at=1, due=1))
    limiter = replace(limiter, places=(replace(limiter.places[0], asks_ms=to_ms(after(30))),))
    granted(give_back(limiter, HELD, after(4)), asking(3, at=4))


def test_a_slot_that_nobody_takes_goes_to_whoever_asks() -> None:
    limiter, _ = postponed(BUSY, asking(2, at=1))
    limiter = give_back(limiter, HELD, after(3))
    late = 3 + UNUSED.total_seconds()
    postponed(limiter, asking(3, at=late - 0.1))
    granted(limiter, asking(3, at=late))


def test_one_that_is_too_late_loses_its_place() -> None:
    limiter, wait = postponed(BUSY, asking(2, at=1))
    at = 1 + wait.seconds + LATE.total_seconds()
    assert [len(limiter.live_places(after(seconds))) for seconds in (at, at + 0.01)] == [1, 0]


def test_the_oldest_goes_first_whoever_asked_first() -> None:
    limiter, _ = postponed(BUSY, again(3, at=2, due=2))
    limiter, _ = postponed(limiter, again(2, at=2, due=1))
    assert [place.name for place in limiter.places] == [name_of("op-2:1"), name_of("op-3:1")]
    limiter, _ = postponed(limiter, again(2, at=3, due=3))
    assert limiter.places[0].due_ms == to_ms(after(1)), "the instant of its first request counts"


def test_one_that_has_started_or_is_gone_leaves_its_place() -> None:
    limiter, _ = postponed(BUSY, asking(2))
    for is_gone in (None, True):
        left = leave(limiter, Leaving("op-2:1", is_gone), after(1))
        assert left.places == ()
        assert leave(left, Leaving("op-2:1", is_gone), after(1)) == left, "it says so twice"


def test_the_state_remembers_those_who_go_first_and_the_others_ask_one_after_the_other() -> None:
    limiter = BUSY
    for number in range(2, KEPT_PLACES + 2):
        limiter, _ = postponed(limiter, again(number, due=number / 100))
    waits = list[float]()
    for number in range(900, 1_000):
        limiter, answer = postponed(limiter, again(number, due=number))
        waits.append(answer.seconds)
    assert len(limiter.places) == KEPT_PLACES
    assert [waits[0], waits[-1]] == pytest.approx([10.05, 15], abs=0.1)
    limiter = replace(limiter, tail_at=after(9_000))
    assert postponed(limiter, again(1_000, due=1_000))[1].seconds == LONGEST_TAIL_SECONDS


def test_a_newcomer_asks_again_soon_however_many_seem_to_wait() -> None:
    limiter = replace(BUSY, lasted_seconds=30.0)
    for number in range(2, KEPT_PLACES + 2):
        limiter, answer = postponed(limiter, asking(number))
        assert answer.seconds <= FIRST_SLOT_ASK_SECONDS
    limiter, answer = postponed(limiter, asking(900, due=1))
    assert answer.seconds == FIRST_SLOT_ASK_SECONDS + 0.01
    assert postponed(limiter, again(901, due=2))[1].seconds == LATEST_LONGEST_SECONDS + 0.3


def test_who_waits_for_the_rate_asks_again_when_its_turn_should_come() -> None:
    limiter, waits = replace(Limiter(), last_start_at=after(4)), list[float]()
    for number in range(KEPT_PLACES + 80):
        limiter, answer = postponed(limiter, again(number, TWO_A_SECOND, due=number / 100))
        waits.append(answer.seconds)
    assert waits[10] == pytest.approx(4 + 11 / 1.9 - RESERVED_SECONDS, abs=1)
    assert waits[-1] > waits[KEPT_PLACES - 1] == LONGEST_ASK_SECONDS


def told(number: int, settings: LimitSettings = ONE_AT_ONCE, at: float = 0.0) -> SlotRequest:
    """Return the request of one that an event can tell that a slot is free."""
    return replace(again(number, settings, at, due=number / 100), waiter=f"op-{number}")


def test_one_whose_turn_is_far_away_is_told_of_it_and_asks_by_itself_after_half_as_long_again() -> None:
    limiter, waits = replace(Limiter(), last_start_at=after(4)), list[float]()
    for number in range(KEPT_PLACES + 2):
        limiter, answer = postponed(limiter, told(number, TWO_A_SECOND))
        waits.append(answer.seconds)
    assert waits[10] == pytest.approx(4 + 11 / 1.9 - RESERVED_SECONDS, abs=1)
    expected = 4 + 61 / 1.9 - RESERVED_SECONDS
    assert waits[60] == pytest.approx(TOLD_TURN_PART * expected, abs=1)
    assert limiter.line == (f"op-{KEPT_PLACES}", f"op-{KEPT_PLACES + 1}")
    again_in_line, _ = postponed(limiter, told(KEPT_PLACES, TWO_A_SECOND, at=1))
    assert again_in_line.line == limiter.line, "who asks again stays where it was"
    late = replace(told(60, TWO_A_SECOND, at=1), latest_seconds=8.0)
    lead = RESERVED_SECONDS + UNUSED.total_seconds()
    assert postponed(limiter, late)[1].seconds == 8.0 - lead, "in time for a turn before its deadline"
    assert postponed(limiter, replace(late, latest_seconds=3.0))[1].seconds == 3.0


def test_one_that_takes_the_place_of_another_makes_the_line_no_longer_than_it_may_be() -> None:
    places = tuple(
        Place(to_ms(after(9)), f"{n}", to_ms(after(99)), waiter=f"op-{n}") for n in range(KEPT_PLACES)
    )
    line = tuple(f"behind-{number}" for number in range(KEPT_LINE))
    full = Limiter(last_start_at=after(4), places=places, line=line)
    limiter, _ = postponed(full, told(200, TWO_A_SECOND))
    assert (limiter.places[0].waiter, limiter.line) == ("op-200", ("op-99", *line[:-1]))


def test_where_turns_are_free_and_nobody_comes_a_newcomer_has_a_place_before_the_line() -> None:
    idle = Limiter(last_start_at=after(-9), places=BUSY.places, line=("op-8",), crowded_until=after(9))
    before = replace(
        idle, places=(Place(0, "before", to_ms(after(1)), waiter="op-7"),), last_start_at=after(-1)
    )
    limiter, answer = postponed(before, told(9, TWO_A_SECOND))
    assert (len(limiter.places), answer.seconds < FIRST_ASK_SECONDS) == (2, True)
    taken = replace(before, last_start_at=after(4))
    assert postponed(taken, told(9, TWO_A_SECOND))[0].line == ("op-8", "op-9")


def test_a_slot_comes_with_those_that_are_told_when_it_is_given_back() -> None:
    limiter, first = granted(Limiter(lasted_seconds=4.0), told(1))
    assert first.calls is None, "nobody waits"
    waits = list[float]()
    for number in (3, 2, 4):
        limiter, answer = postponed(limiter, told(number))
        waits.append(answer.seconds)
    assert waits == [LEAST_TOLD_SECONDS] * 3, "they are told in time"
    limiter = give_back(limiter, first, after(4))
    limiter, second = granted(limiter, told(2, at=4))
    assert second.calls == ("op-3",)
    limiter, _ = postponed(limiter, told(4, at=4.1))
    limiter = give_back(limiter, second, after(5))
    assert postponed(limiter, asking(5, at=5.1))[1].ahead == 2, "one that is told comes before a newcomer"
    assert granted(limiter, told(3, at=5.2))[1].calls == ("op-4",)


def test_where_nobody_came_for_a_free_slot_who_asks_comes_again_by_itself() -> None:
    called = Place(0, "called", to_ms(after(20)), waiter="op-8", told_by="")
    free = Limiter(lasted_seconds=4.0, moved_at=NOON, places=(called,))
    assert postponed(free, told(2, at=0.9))[1].seconds == LEAST_TOLD_SECONDS
    assert postponed(free, told(2, at=1.1))[1].seconds == FIRST_SLOT_ASK_SECONDS


@pytest.mark.parametrize(("behind", "seconds"), [(0, 120.0), (10, 168.0), (400, 1_800.0)])
def test_one_that_will_be_told_asks_by_itself_after_twice_its_time(behind: int, seconds: float) -> None:
    before = tuple(Place(to_ms(NOON), f"{each}", to_ms(after(9)), waiter=f"op-{each}") for each in range(15))
    busy = replace(BUSY, places=before, line=tuple(f"op-{20 + each}" for each in range(behind)))
    assert postponed(busy, told(500))[1].seconds == seconds


def test_who_cannot_be_told_asks_by_itself() -> None:
    assert postponed(BUSY, again(2))[1].seconds == 4.0


def test_one_from_behind_that_is_called_has_the_place_of_who_waits_there() -> None:
    called = Place(to_ms(NOON), "", to_ms(after(120)), waiter="op-2", told_by="")
    free = Limiter(lasted_seconds=4.0, moved_at=after(3.5), places=(called,))
    limiter, _ = granted(free, told(2, at=4))
    assert limiter.places == ()
    assert leave(free, Leaving("op-2:1", is_gone=True, waiter="op-2"), after(4)).places == ()


def test_while_requests_are_late_a_free_slot_is_kept_for_longer() -> None:
    late = replace(told(2, at=0), waiter=None)
    limiter, _ = acquire(BUSY, late, after(2))
    assert (limiter.lag_seconds, limiter.patience) == (2.0, UNUSED + timedelta(seconds=6))
    limiter, _ = acquire(limiter, again(3, at=2), after(2))
    assert limiter.lag_seconds == 1.8, "it is forgotten little by little"
    for number in range(4, 64):
        limiter, _ = acquire(limiter, again(number, at=2), after(2))
    assert (limiter.lag_seconds or 0.0) < 0.01, "and whole"


def test_who_asks_by_itself_takes_no_slot_from_one_that_is_called() -> None:
    called = Place(0, "called", to_ms(after(20)), waiter="op-8", told_by="")
    own = Place(to_ms(after(0.02)), name_of("op-2:1"), to_ms(after(4)))
    limiter = Limiter(lasted_seconds=4.0, moved_at=after(3.5), places=(called, own))
    assert postponed(limiter, told(2, at=4))[1].ahead == 1
    granted(replace(limiter, places=(own,)), told(2, at=4))


def test_as_many_are_told_as_there_are_slots() -> None:
    two = LimitSettings(max_concurrency=2, per_key=KeyLimits(max_concurrency=9))
    limiter, first = granted(Limiter(lasted_seconds=4.0), told(1, two))
    limiter, _ = granted(limiter, told(2, two))
    for number in (3, 4, 5, 6):
        limiter, _ = postponed(limiter, told(number, two))
    limiter = give_back(limiter, first, after(4))
    limiter, third = granted(limiter, told(3, two, at=4))
    assert third.calls == ("op-4", "op-5")
    limiter = give_back(limiter, third, after(5))
    assert granted(limiter, told(4, two, at=5))[1].calls == ("op-6",), "op-5 is told by now"


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        (LimitSettings(max_concurrency=16), ("op-30",)),
        (LimitSettings(1, 5.0), ("op-30",)),
        (LimitSettings(1, per_key=KeyLimits(rate_per_second=5.0)), None),
    ],
    ids=["beside shares", "beside a rate", "beside rates of keys"],
)
def test_those_who_wait_for_a_slot_are_told_unless_their_keys_have_rates(
    settings: LimitSettings, calls: tuple[str, ...] | None
) -> None:
    def of_key(number: int, at: float = 0.0) -> SlotRequest:
        return replace(told(number, settings, at=at), limit_key="a")

    limiter, first = granted(Limiter(lasted_seconds=4.0), of_key(1))
    for number in range(2, settings.max_concurrency - settings.shared_concurrency + 1):
        limiter, _ = granted(limiter, of_key(number))
    limiter, _ = postponed(limiter, of_key(20))
    limiter, _ = postponed(limiter, of_key(30))
    assert granted(give_back(limiter, first, after(4)), of_key(20, at=60))[1].calls == calls


def test_those_without_a_place_are_called_after_all_that_have_one() -> None:
    limiter, first = granted(Limiter(lasted_seconds=4.0), told(1))
    for number in range(2, KEPT_PLACES + 4):
        limiter, _ = postponed(limiter, told(number))
    behind = (f"op-{KEPT_PLACES + 2}", f"op-{KEPT_PLACES + 3}")
    assert limiter.line == behind
    limiter, second = granted(give_back(limiter, first, after(4)), told(2, at=4))
    assert (second.calls, limiter.line) == (("op-3",), behind)
    limiter, _ = postponed(limiter, told(990, at=4))
    assert limiter.line == (*behind, "op-990"), "the last one to come goes behind them"
    limiter, slot = granted(give_back(replace(limiter, places=()), second, after(5)), told(3, at=5))
    assert (slot.calls, limiter.line) == (behind[:1], (behind[1], "op-990"))


def test_one_that_passes_others_by_its_priority_asks_again_in_time() -> None:
    limiter = BUSY
    for number in range(2, 12):
        limiter, answer = postponed(limiter, again(number, at=1, due=-100))
    assert answer.seconds == 7.0, "of those that are due at once the names are in order"
    high = replace(again(20, at=1, due=-2), priority=Priority.HIGH)
    assert postponed(limiter, high)[1].seconds == 10.0, "it passes nobody within half a minute"
    limiter = BUSY
    for number in range(2, 12):
        limiter, _ = postponed(limiter, again(number, at=1, due=-30))
    assert postponed(limiter, high)[1].seconds == 7.0, "its ten seconds count as forty then"


def test_one_that_hangs_is_looked_at_less_and_less_often() -> None:
    limiter = replace(BUSY, lasted_seconds=1.0)
    waits = [postponed(limiter, again(2, at=seconds))[1].seconds for seconds in (0.99, 4, 40)]
    assert waits == [0.02, 0.75, 9.75]
    assert postponed(replace(BUSY, lasted_seconds=0.1), again(2, at=0.1))[1].seconds == LEAST_ASK_SECONDS


def test_it_asks_once_more_before_its_deadline() -> None:
    request = replace(again(2), latest_seconds=1.5)
    assert postponed(BUSY, request)[1].seconds == 1.5
    assert postponed(BUSY, replace(request, latest_seconds=0.0))[1].seconds == 4.0, "it gives up"


def test_the_mean_follows_for_how_long_attempts_had_their_slots() -> None:
    limiter, slot = granted(Limiter(), asking(1))
    limiter = give_back(limiter, replace(slot, lasted_seconds=10.0), after(11))
    assert limiter.lasted_seconds == 11.0, "messages take time as well"
    limiter, slot = granted(limiter, asking(2, at=50))
    for lasted_seconds, ended, mean in (
        (None, 60, 11.0),  # it made no attempt
        (9.0, 60, 10.9),
        (0.1, 51, 6.0),
        (10.0, 50, 10.9),  # the clock of the one that asked is ahead
        (8.0, 110, 10.9),  # it was in a full queue for most of a minute
    ):
        returned = replace(slot, lasted_seconds=lasted_seconds)
        assert give_back(limiter, returned, after(ended)).lasted_seconds == mean


def test_while_no_attempt_has_ended_the_mean_is_the_age_of_the_oldest() -> None:
    limiter, _ = granted(Limiter(), asking(1))
    waits = [postponed(limiter, again(2, at=at))[1].seconds for at in (0.0, 1.5)]
    assert waits == [1.0, 0.03], "two hundredths of it"


def test_starts_are_evenly_spaced_and_the_next_ones_are_reserved() -> None:
    limiter, first = granted(Limiter(), asking(1, TWO_A_SECOND))
    assert first == Slot(turn_seconds=0.0)
    limiter, second = granted(limiter, asking(2, TWO_A_SECOND))
    assert second == Slot(turn_seconds=0.526), "it waits so long at its worker"
    limiter, third = postponed(limiter, asking(3, TWO_A_SECOND))
    assert third == SlotPostponed(0.053, "1.9 attempts per second", 1.053)
    limiter, _ = postponed(limiter, asking(4, TWO_A_SECOND))
    limiter, _ = postponed(limiter, asking(5, TWO_A_SECOND))
    _, sixth = postponed(limiter, asking(6, TWO_A_SECOND))
    assert sixth.turn_seconds is None, "beyond two and a half seconds it has a place"
    assert sixth.seconds == pytest.approx(5 / 1.9 - 2.0, abs=0.001)


def test_no_turn_is_reserved_for_one_whose_deadline_is_before_it() -> None:
    limiter, _ = granted(Limiter(), asking(1, TWO_A_SECOND))
    late = replace(asking(2, TWO_A_SECOND), latest_seconds=0.2)
    after_it, answer = postponed(limiter, late)
    assert (answer.turn_seconds, answer.seconds) == (None, 0.2), "it asks once more"
    assert after_it.last_start_at == limiter.last_start_at, "the turn is for others"
    _, owed = granted(limiter, replace(late, latest_seconds=-1.0))
    assert owed.turn_seconds is not None, "the deadline is over, and it still asks"


def test_of_a_fast_rate_few_wait_at_their_workers() -> None:
    limits = LimitSettings(rate_per_second=1_000.0)
    limiter = Limiter(crowded_since=after(-9), crowded_until=after(9), last_start_at=after(0.019))
    assert postponed(limiter, asking(1, limits))[1].seconds == 0.012


def test_a_reserved_turn_is_not_counted_again() -> None:
    limiter, _ = granted(Limiter(), asking(1, TWO_A_SECOND))
    later, answer = granted(limiter, replace(asking(2, TWO_A_SECOND), reserved=True))
    assert (answer, later.last_start_at) == (Slot(), limiter.last_start_at)


def test_a_quiet_time_allows_no_burst() -> None:
    limiter, _ = granted(Limiter(), asking(1, TWO_A_SECOND))
    limiter, first = granted(limiter, asking(2, TWO_A_SECOND, at=3_600))
    _, second = granted(limiter, asking(3, TWO_A_SECOND, at=3_600))
    assert (first.turn_seconds, second.turn_seconds) == (0.0, 0.526)


def test_nobody_passes_one_that_is_about_to_ask_for_a_turn_until_the_turn_is_not_used() -> None:
    slow = LimitSettings(rate_per_second=0.5)
    limiter = Limiter(last_start_at=NOON, crowded_since=NOON, crowded_until=after(60))
    limiter = replace(limiter, places=(Place(to_ms(NOON), "waiting", to_ms(after(1))),))
    postponed(limiter, asking(2, slow))
    granted(limiter, asking(2, slow, at=2 + UNUSED.total_seconds()))


@pytest.mark.parametrize("lag_seconds", [None, 2.0])
def test_the_whole_rate_is_granted_while_attempts_wait_and_half_is_the_workers_otherwise(
    lag_seconds: float | None,
) -> None:
    limits, turns = LimitSettings(rate_per_second=10), list[float]()
    limiter = Limiter(lag_seconds=lag_seconds)
    for number in range(18):
        limiter, answer = acquire(limiter, asking(number, limits), NOON)
        turns.append(answer.turn_seconds or 0.0)
    steps = [round(later - earlier, 3) for earlier, later in pairwise(turns)]
    assert steps == [0.2] * 5 + [0.1] * 12
    limiter, _ = acquire(limiter, asking(90, limits, at=9), after(9))
    _, answer = granted(limiter, asking(91, limits, at=9))
    assert answer.turn_seconds == 0.2


@pytest.mark.parametrize(("at", "is_crowded", "turn_seconds"), [(3.0, True, 0.1), (3.1, None, 0.2)])
def test_slots_say_that_the_whole_rate_is_granted_until_nobody_starts_as_all_have_left(
    at: float, *, is_crowded: bool | None, turn_seconds: float
) -> None:
    """Workers see none of those that left, and start their shares again."""
    limits = LimitSettings(rate_per_second=10)
    waited = Limiter(last_start_at=NOON, crowded_since=after(-9), crowded_until=after(60))
    limiter, first = granted(waited, asking(1, limits, at=at))
    _, second = granted(limiter, asking(2, limits, at=at))
    assert [slot.is_crowded for slot in (first, second)] == [is_crowded] * 2
    assert second.turn_seconds == turn_seconds


def test_what_was_told_and_reserved_is_forgotten_by_a_reset_and_the_leases_stay() -> None:
    limiter, _ = postponed(BUSY, asking(2))
    limiter, _ = postponed(limiter, told(3))
    forgotten = Limiter(limiter.clock, limiter.leases, answered=limiter.answered)
    assert reset(replace(limiter, line=("op-9",))) == (forgotten, ("op-3", "op-9")), "who waits asks again"


@pytest.mark.parametrize("key", [None, "customer-17"])
def test_a_state_with_thousands_of_slots_is_small(key: str | None) -> None:
    leases = Leases()
    for number in range(2_000):
        mark = "" if key is None else f"{number:05d}"
        leases = leases.with_lease(Lease(f"{number:07d}", after(number / 100), 70.0, mark))
    limiter = Limiter(NOON, leases)
    for number in range(300):
        limiter, _ = postponed(limiter, replace(again(number, LimitSettings(1), due=number), limit_key=key))
    assert len(json.dumps(limiter.to_json())) < 45_000


def test_people_see_the_limits_of_the_moment() -> None:
    limits = LimitSettings(max_concurrency=8, rate_per_second=3)
    places = [
        Place(to_ms(NOON), f"op-{number}", to_ms(after(seconds)), priority)
        for number, seconds, priority in ((2, 1, None), (3, -4, None), (4, -2, Priority.HIGH))
    ]
    limiter = Limiter(leases=Leases().with_lease(Lease("op-1--1", NOON, 70.0)), places=tuple(places))
    assert limits_view(limits, limiter, NOON).to_json() == {
        "max_concurrency": 8,
        "rate_per_second": 3,
        "shared_concurrency": 0,
        "lent": 1,
        "waiting": 2,
        "waiting_by_priority": {"high": 1, "normal": 1},
    }


def test_without_limits_nothing_is_in_use_and_nothing_waits() -> None:
    shown = limits_view(LimitSettings(), Limiter(), NOON)
    assert (shown.lent, shown.waiting) == (0, 0)


def test_a_turn_is_told_so_early_that_its_attempt_is_there_in_time() -> None:
    assert DOOR_SECONDS < RESERVED_SECONDS
    assert timedelta(seconds=RESERVED_SECONDS) > UNUSED


ONE_AND_RATE = LimitSettings(max_concurrency=1, rate_per_second=1)


@pytest.mark.parametrize(
    "settings",
    [ONE_AT_ONCE, ONE_AND_RATE, LimitSettings(rate_per_second=1), LimitSettings(0, 0.0, KeyLimits(0, 1))],
)
def test_the_answer_to_a_signalled_request_is_read_from_the_state(settings: LimitSettings) -> None:
    """Whoever asks by a signal comes to the same as one who is answered, whether it waits or not."""
    limiter = Limiter()
    for number in range(4):
        request = replace(asking(number, settings, number / 10), limit_key="k", is_signal=True)
        assert answer_to(limiter, request, after(number / 10)) is None, "it has not arrived"
        limiter, told = acquire(limiter, request, after(number / 10))
        read = existing(answer_to(limiter, request, after(number / 10)))
        assert type(read) is type(told)
        assert read.turn_seconds == pytest.approx(told.turn_seconds, abs=0.001)
        if isinstance(told, SlotPostponed) and told.turn_seconds is None:
            assert isinstance(read, SlotPostponed)
            assert read.seconds == pytest.approx(told.seconds)


@pytest.mark.parametrize("settings", [ONE_AND_RATE, LimitSettings(rate_per_second=1)])
def test_the_turn_of_a_signalled_request_is_its_own_whatever_comes_after_it(settings: LimitSettings) -> None:
    rest = replace(settings, max_concurrency=3 * settings.max_concurrency)
    asked = [replace(asking(number, rest), is_signal=True) for number in range(2)]
    limiter, told = Limiter(), list[SlotAnswer]()
    for request in asked:
        limiter, answer = acquire(limiter, request, NOON)
        told.append(answer)
    limiter, _ = acquire(limiter, asking(9, rest, 0.1), after(0.1))
    limiter = give_back(limiter, Slot("another:1", NOON), after(0.2))
    read = [answer_to(limiter, request, after(0.25)) for request in asked]
    assert [each and each.turn_seconds for each in read] == [-0.25, 0.75]
    assert [each.turn_seconds for each in told] == [0.0, 1.0]


def test_a_step_that_has_its_slot_and_asks_again_has_the_turn_that_it_had() -> None:
    request = replace(asking(1, ONE_AND_RATE), is_signal=True)
    limiter, _ = acquire(Limiter(last_start_at=NOON), request, NOON)
    repeated = replace(request, asked_at=after(0.25))
    again, _ = acquire(limiter, repeated, after(0.25))
    assert answer_to(again, repeated, after(0.25)) == Slot(request.lease_id, after(0.25), 0.75)
    forgotten, _ = acquire(replace(limiter, told=None), repeated, after(0.25))
    assert answer_to(forgotten, repeated, after(0.25)) == Slot(request.lease_id, after(0.25))


def test_an_answer_is_kept_until_the_one_who_asked_leaves_or_can_have_read_it() -> None:
    first, second = (replace(asking(number), is_signal=True) for number in (1, 2))
    limiter, _ = acquire(Limiter(), first, NOON)
    limiter, _ = acquire(limiter, second, NOON)
    assert answer_to(leave(limiter, Leaving(first.lease_id, is_gone=True), NOON), first, NOON) is None
    repeated = replace(second, asked_at=after(5))
    assert answer_to(limiter, repeated, after(5)) is None, "that was an earlier request"
    limiter, _ = acquire(limiter, repeated, after(5))
    assert answer_to(limiter, second, after(5)) == answer_to(limiter, repeated, after(5)), "it is repeated"
    limiter, _ = acquire(limiter, replace(asking(3, at=61), is_signal=True), after(61))
    assert [told.name for told in limiter.told or ()] == [name_of("op-2:1"), name_of("op-3:1")]
    for number in (2, 3):
        limiter = leave(limiter, Leaving(f"op-{number}:1", is_gone=True), after(62))
    assert limiter.told is None


def test_who_asks_by_a_call_leaves_no_answer_in_the_state() -> None:
    assert acquire(Limiter(), asking(1), NOON)[0].told is None


def test_bounds_that_were_read_later_hold_also_for_who_asks_by_earlier_ones() -> None:
    two, one = ReadLimits(2, read_at=NOON), ReadLimits(1, read_at=after(60))
    limiter, _ = granted(Limiter(), asking(1, two))
    limiter, _ = postponed(limiter, asking(2, one, at=61))
    limiter, answer = postponed(limiter, asking(3, two, at=62))
    assert answer.reason == "1 attempt at once"
    assert limiter.settings == one
    again_two = ReadLimits(2, read_at=after(90))
    granted(limiter, asking(4, again_two, at=91, due=0))


@pytest.mark.parametrize("key", [None, "a"])
def test_later_bounds_of_limit_keys_concern_attempts_that_have_one(key: str | None) -> None:
    earlier = ReadLimits(2, per_key=KeyLimits(1), weights={"a": 2.0}, read_at=NOON).of_key(key)
    later = ReadLimits(3, per_key=KeyLimits(2), read_at=after(1))
    assert isinstance(earlier, ReadLimits)
    merged = replace(later, weights=earlier.weights)
    assert earlier.with_later(later) == merged
    assert replace(earlier, per_key=None).with_later(later) == replace(merged, per_key=None)
    assert later.with_later(earlier) is later
    assert replace(later, read_at=None).with_later(earlier).read_at is None
