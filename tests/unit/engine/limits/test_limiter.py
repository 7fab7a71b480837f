"""The limits of a dependency: what the entity grants, and what a worker starts of its own accord."""

from dataclasses import replace

import pytest

from durable_retry.engine.base.json_forms import union_from_json
from durable_retry.engine.base.names import Priority
from durable_retry.engine.limits.document import limits_view
from durable_retry.engine.limits.fair import Place
from durable_retry.engine.limits.limiter import (
    KEPT_PLACES,
    LONGEST_ASK_SECONDS,
    Limiter,
    Slot,
    SlotAnswer,
    SlotLease,
    SlotPostponed,
    SlotRequest,
    acquire,
    give_back,
    leave,
)
from durable_retry.engine.limits.settings import (
    LimitSettings,
    WorkerShare,
)
from tests.support.builders import NOON, after

ONE_AT_ONCE = LimitSettings(max_concurrency=1)
THREE_AT_ONCE = LimitSettings(max_concurrency=3)
TWO_A_SECOND = LimitSettings(rate_per_second=1.9)
"""Too few to share out among workers."""


def asking(number: int, settings: LimitSettings = ONE_AT_ONCE) -> SlotRequest:
    return SlotRequest(f"op-{number}:1", lease_seconds=70.0, settings=settings)


def test_without_a_limit_nothing_is_on() -> None:
    assert not LimitSettings().is_on
    assert LimitSettings(max_concurrency=1).is_on
    assert LimitSettings(rate_per_second=0.5).is_on


@pytest.mark.parametrize("answer", [Slot(), Slot("op-1:1"), SlotPostponed(1.5, reserved=True, reason="busy")])
def test_an_answer_survives_its_json(answer: Slot | SlotPostponed) -> None:
    assert union_from_json(SlotAnswer, answer.to_json()) == answer


def test_a_request_and_the_state_survive_their_json() -> None:
    request = replace(asking(1, THREE_AT_ONCE), latest_seconds=3.0)
    assert SlotRequest.from_json(request.to_json()) == request
    limiter, _ = acquire(Limiter(), asking(1, LimitSettings(3, 1.0)), NOON)
    assert Limiter.from_json(limiter.to_json()) == limiter


def test_no_more_than_the_limit_are_under_way() -> None:
    # One of the three is shared out among the workers.
    limiter, first = acquire(Limiter(), asking(1, THREE_AT_ONCE), NOON)
    limiter, second = acquire(limiter, asking(2, THREE_AT_ONCE), NOON)
    limiter, third = acquire(limiter, asking(3, THREE_AT_ONCE), NOON)
    assert (first, second) == (Slot("op-1:1"), Slot("op-2:1"))
    # Two of three slots are the entity's, so it is free after two thirds of the mean duration at the latest.
    assert third == SlotPostponed(0.667, reserved=False, reason="3 attempts at once", ahead=0)


def test_a_repeated_request_gets_the_same_slot() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    again, answer = acquire(limiter, asking(1), after(1))
    assert answer == Slot("op-1:1")
    assert len(again.leases) == 1


def test_a_slot_that_was_given_back_is_free() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    limiter = give_back(limiter, Slot("op-1:1"), after(2))
    assert acquire(limiter, asking(2), after(2))[1] == Slot("op-2:1")


def test_giving_back_twice_frees_nothing_else() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    limiter = give_back(limiter, Slot("op-1:1"), after(2))
    limiter, _ = acquire(limiter, asking(2), after(2))
    assert give_back(limiter, Slot("op-1:1"), after(3)).leases == limiter.leases


@pytest.mark.shows("W9")
def test_the_slot_of_an_attempt_that_never_came_back_is_free_after_its_lease() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    limiter, answer = acquire(limiter, asking(2), after(69))
    assert isinstance(answer, SlotPostponed)
    assert acquire(limiter, asking(2), after(71))[1] == Slot("op-2:1")


def test_those_who_wait_ask_again_one_after_the_other_at_the_pace_of_the_slots() -> None:
    limiter, _ = acquire(replace(Limiter(), held_seconds=2.0), asking(1), NOON)
    waits = []
    for number in range(2, 5):
        limiter, answer = acquire(limiter, asking(number), NOON)
        assert isinstance(answer, SlotPostponed)
        waits.append(answer.seconds)
    assert waits == [2.0, 4.0, 6.0]


def test_nobody_passes_those_who_wait() -> None:
    limiter, _ = acquire(replace(Limiter(), held_seconds=4.0), asking(1), NOON)
    limiter, _ = acquire(limiter, asking(2), NOON)
    limiter = give_back(limiter, Slot("op-1:1"), after(1))
    limiter, newcomer = acquire(limiter, asking(3), after(1))
    assert newcomer == SlotPostponed(3.7, reserved=False, reason="1 attempt at once", ahead=1)
    assert acquire(limiter, asking(2), after(4))[1] == Slot("op-2:1")


def due(number: int, seconds: float) -> SlotRequest:
    return replace(asking(number), due_at=after(seconds))


def test_the_oldest_goes_first_whoever_asks_first() -> None:
    limiter, _ = acquire(replace(Limiter(), held_seconds=4.0), due(1, 0), NOON)
    limiter, younger = acquire(limiter, due(3, 2), after(2))
    limiter, older = acquire(limiter, due(2, 1), after(2))
    limiter = give_back(limiter, Slot("op-1:1"), after(3))
    assert (younger, older) == (
        SlotPostponed(2.0, reserved=False, reason="1 attempt at once", ahead=0),
        SlotPostponed(2.0, reserved=False, reason="1 attempt at once", ahead=0),
    )
    limiter, answer = acquire(limiter, due(3, 2), after(4))
    assert isinstance(answer, SlotPostponed)
    assert acquire(limiter, due(2, 1), after(4))[1] == Slot("op-2:1")


@pytest.mark.parametrize(("late_seconds", "is_kept"), [(3.9, True), (4.1, False)])
def test_a_slot_is_kept_for_one_that_is_a_little_late(late_seconds: float, *, is_kept: bool) -> None:
    limiter, _ = acquire(replace(Limiter(), held_seconds=4.0), due(1, 0), NOON)
    limiter, _ = acquire(limiter, due(2, 0), NOON)
    limiter = replace(give_back(limiter, Slot("op-1:1"), after(4)), held_seconds=4.0)
    answer = acquire(limiter, due(3, 1), after(4 + late_seconds))[1]
    assert isinstance(answer, SlotPostponed) is is_kept


def test_where_slots_are_shared_out_one_that_is_late_may_have_started() -> None:
    limiter = Limiter()
    for number in range(1, 4):
        request = replace(due(number, number / 100), settings=THREE_AT_ONCE)
        limiter, _ = acquire(limiter, request, after(0.1))
    limiter = give_back(limiter, Slot("op-1:1"), after(1))
    young = replace(due(4, 1), settings=THREE_AT_ONCE)
    assert isinstance(acquire(limiter, young, after(1.2))[1], SlotPostponed)
    assert acquire(limiter, young, after(1.3))[1] == Slot("op-4:1")


def test_no_slot_is_kept_for_an_attempt_that_says_that_it_started_in_a_share() -> None:
    limiter, _ = acquire(Limiter(), due(1, 0.01), after(0.1))
    limiter, _ = acquire(limiter, due(2, 0.02), after(0.1))
    limiter = give_back(limiter, Slot("op-1:1"), after(0.2))
    assert isinstance(acquire(limiter, due(3, 0.03), after(0.3))[1], SlotPostponed)
    limiter = leave(limiter, "op-2:1", after(0.3))
    assert acquire(limiter, due(3, 0.03), after(0.3))[1] == Slot("op-3:1")
    assert leave(limiter, "op-2:1", after(0.4)) == replace(limiter, clock=after(0.4)), "it says so once more"


def test_an_attempt_of_an_older_version_keeps_the_place_of_its_first_ask() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    for seconds in (1, 2):
        limiter, _ = acquire(limiter, replace(asking(2), asked_at=after(seconds)), after(seconds))
    (place,) = limiter.places
    assert place.due_at == after(1)


def test_the_state_remembers_the_oldest_places() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    for number in range(2, KEPT_PLACES + 4):
        limiter, answer = acquire(limiter, due(number, number), NOON)
    assert isinstance(answer, SlotPostponed)
    assert answer.ahead == KEPT_PLACES
    assert [place.due_at for place in limiter.places] == [after(n) for n in range(2, KEPT_PLACES + 2)]
    assert Limiter.from_json(limiter.to_json()) == limiter


def test_one_that_hangs_is_looked_at_less_and_less_often() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    waits = [acquire(limiter, asking(2), after(seconds))[1] for seconds in (0.9, 4, 40)]
    assert [wait.seconds for wait in waits if isinstance(wait, SlotPostponed)] == [0.5, 1.0, 10.0]


def test_nobody_waits_longer_than_a_minute_to_ask_again() -> None:
    limiter, _ = acquire(replace(Limiter(), held_seconds=1_000.0), asking(1), NOON)
    for number in range(2, 4):
        limiter, answer = acquire(limiter, asking(number), NOON)
        assert isinstance(answer, SlotPostponed)
        assert answer.seconds == LONGEST_ASK_SECONDS


def test_the_mean_duration_follows_what_slots_were_held() -> None:
    limiter, _ = acquire(Limiter(), asking(1), NOON)
    assert give_back(limiter, Slot("op-1:1"), after(11)).held_seconds == 2.0


def test_starts_are_evenly_spaced_and_each_turn_is_reserved() -> None:
    limiter, slot = acquire(Limiter(), asking(1, TWO_A_SECOND), NOON)
    assert slot == Slot()
    for turn in range(1, 4):
        limiter, answer = acquire(limiter, asking(turn + 1, TWO_A_SECOND), NOON)
        assert isinstance(answer, SlotPostponed)
        assert answer.reserved
        assert answer.seconds == pytest.approx(turn / 1.9, abs=0.001)
        assert answer.reason == "1.9 attempts per second"


def test_a_reserved_turn_is_not_counted_again() -> None:
    limiter, _ = acquire(Limiter(), asking(1, TWO_A_SECOND), NOON)
    limiter, _ = acquire(limiter, asking(2, TWO_A_SECOND), NOON)
    later, answer = acquire(limiter, replace(asking(2, TWO_A_SECOND), reserved=True), after(0.6))
    assert answer == Slot()
    assert later.next_start_at == limiter.next_start_at


def test_a_turn_after_the_deadline_is_not_reserved() -> None:
    limiter, _ = acquire(Limiter(), asking(1, TWO_A_SECOND), NOON)
    same, answer = acquire(limiter, replace(asking(2, TWO_A_SECOND), latest_seconds=0.1), NOON)
    assert isinstance(answer, SlotPostponed)
    assert not answer.reserved
    assert same.next_start_at == limiter.next_start_at


def test_a_quiet_time_allows_no_burst() -> None:
    limiter, _ = acquire(Limiter(), asking(1, TWO_A_SECOND), NOON)
    limiter, first = acquire(limiter, asking(2, TWO_A_SECOND), after(3_600))
    _, second = acquire(limiter, asking(3, TWO_A_SECOND), after(3_600))
    assert first == Slot()
    assert isinstance(second, SlotPostponed)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_slot_that_was_given_back_is_not_lent_to_a_repetition_of_its_request(*, is_stored: bool) -> None:
    """A turn that was not committed asks again; the state after that may be lost with its worker."""
    first, again = (replace(asking(1), asked_at=after(seconds)) for seconds in (0, 30))
    limiter, _ = acquire(Limiter(), first, NOON)
    repeated, slot = acquire(limiter, again, after(30))
    assert isinstance(slot, Slot)
    limiter = give_back(repeated if is_stored else limiter, slot, after(31))
    limiter, answer = acquire(limiter, again, after(32))
    assert (isinstance(answer, SlotPostponed), limiter.leases) == (True, ())
    _, answer = acquire(limiter, replace(again, asked_at=after(33)), after(33))
    assert isinstance(answer, Slot)


def test_time_never_runs_backwards() -> None:
    limiter, _ = acquire(Limiter(), asking(1, TWO_A_SECOND), NOON)
    limiter, answer = acquire(limiter, asking(2, TWO_A_SECOND), after(-30))
    assert isinstance(answer, SlotPostponed)
    assert answer.seconds < 1
    assert limiter.clock == NOON


def test_nobody_who_has_not_waited_takes_a_share_while_others_wait() -> None:
    share = WorkerShare(LimitSettings(max_concurrency=4))
    assert [share.take(NOON, 1, reserved=False) for _ in range(3)] == [True, True, False]
    share.ended()
    assert not share.take(after(0.5), 1, reserved=False)
    assert share.take(after(1.2), 1, reserved=False)


@pytest.mark.parametrize(("ahead", "may_take"), [(0, True), (1, True), (2, False)])
def test_as_many_of_those_who_wait_as_there_are_shares_may_take_one(ahead: int, *, may_take: bool) -> None:
    share = WorkerShare(LimitSettings(max_concurrency=4))
    assert share.take(NOON, 1, reserved=False, ahead=ahead) is may_take
    assert not share.take(after(0.5), 1, reserved=False)


def test_half_a_limit_is_shared_out_evenly() -> None:
    share = WorkerShare(LimitSettings(max_concurrency=9))
    assert [share.take(NOON, 2, reserved=False) for _ in range(3)] == [True, True, False]
    share.ended()
    assert share.take(after(1), 2, reserved=False)


def test_a_limit_too_small_to_share_leaves_nothing_to_a_worker() -> None:
    assert not WorkerShare(LimitSettings(max_concurrency=3)).take(NOON, 2, reserved=False)
    assert not WorkerShare(LimitSettings(rate_per_second=1.5)).take(NOON, 1, reserved=False)


def test_a_worker_starts_its_share_within_any_second() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=9))
    assert [share.take(NOON, 2, reserved=False) for _ in range(3)] == [True, True, False]
    assert not share.take(after(0.9), 2, reserved=False)
    assert share.take(after(1), 2, reserved=False)


def test_a_start_that_the_entity_counted_is_not_counted_by_the_worker() -> None:
    share = WorkerShare(LimitSettings(rate_per_second=1))
    assert share.take(NOON, 1, reserved=True)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 20])
def test_shares_and_grants_together_keep_the_limit(workers: int, most: int) -> None:
    settings = LimitSettings(max_concurrency=most)
    shares = [WorkerShare(settings) for _ in range(workers)]
    started = sum(share.take(NOON, workers, reserved=False) for share in shares for _ in range(most))
    limiter = Limiter()
    for number in range(most + 1):
        limiter, answer = acquire(limiter, asking(number, settings), NOON)
        started += isinstance(answer, Slot)
    assert most - started <= workers
    assert started <= most


def test_people_see_the_limits_of_the_moment() -> None:
    limits = LimitSettings(max_concurrency=8, rate_per_second=3)
    limiter = Limiter(
        leases=(SlotLease("op-1:1", NOON, after(70)),),
        next_start_at=after(2),
        places=(
            Place(NOON, "op-2:1", after(1)),
            Place(NOON, "op-3:1", after(-1)),
            Place(NOON, "op-4:1", after(1), Priority.HIGH),
        ),
    )
    assert limits_view(limits, limiter, NOON).to_json() == {
        "max_concurrency": 8,
        "rate_per_second": 3,
        "shared_concurrency": 4,
        "lent": 1,
        "waiting": 6,
        "waiting_by_priority": {"high": 1, "normal": 1},
    }


def test_without_limits_nothing_is_in_use_and_nothing_waits() -> None:
    shown = limits_view(LimitSettings(), Limiter(), NOON)
    assert (shown.lent, shown.waiting) == (0, 0)
