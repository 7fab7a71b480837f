import json
from dataclasses import replace

import pytest

from durable_retry.base.json_forms import to_ms
from durable_retry.base.names import Priority
from durable_retry.features.limits.rules.document import SHOWN_KEYS, limits_view
from durable_retry.features.limits.rules.fair import (
    CREDIT,
    KEPT_BYTES,
    KEPT_PLACES,
    NO_SHARES,
    FairShares,
    KeyShare,
    Place,
    counted_wait_ms,
)
from durable_retry.features.limits.rules.limiter import FIRST_SLOT_ASK_SECONDS, acquire, give_back, leave
from durable_retry.features.limits.rules.settings import KeyLimits, LimitKeys, LimitSettings, ReadLimits
from durable_retry.features.limits.rules.share import ALONE, WorkerShare
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.rules.retry.slots import Leaving, Slot, SlotPostponed, SlotRequest
from tests.support.builders import NOON, after
from tests.support.narrowing import existing, of_type, second_of_type

ONE = LimitSettings(max_concurrency=1)
ONE_A_SECOND = LimitSettings(rate_per_second=1.0)


def asking(number: int, key: str | None, settings: LimitSettings = ONE, at: float = 0.0) -> SlotRequest:
    due_at = after(number / 100)
    return SlotRequest(
        f"op-{number}:1", 70.0, settings.of_key(key).to_json(), after(at), due_at, limit_key=key
    )


def waiting(limiter: Limiter, number: int, key: str | None, settings: LimitSettings = ONE) -> Limiter:
    """Let an attempt ask that has to wait."""
    limiter, _answer = second_of_type(SlotPostponed, acquire(limiter, asking(number, key, settings), NOON))
    return limiter


def reason_of(limiter: Limiter, request: SlotRequest) -> str:
    return of_type(SlotPostponed, acquire(limiter, request, NOON)[1]).reason


def test_without_keys_messages_and_state_have_no_member_for_them() -> None:
    request = asking(1, None)
    limiter, _ = acquire(Limiter(), request, NOON)
    limiter = waiting(limiter, 2, None)
    assert request.to_json()["settings"] == {"max_concurrency": 1, "rate_per_second": 0.0}
    assert "limit_key" not in request.to_json()
    plain = replace(Limiter(), clock=NOON, moved_at=NOON, settings=ReadLimits(max_concurrency=1))
    assert limiter.to_json().keys() == plain.to_json().keys()
    assert (len(limiter.places[0].to_json()), list(limiter.leases.texts)) == (3, ["70"])


def test_a_key_that_had_less_goes_before_older_attempts_of_another() -> None:
    limiter, slot = acquire(Limiter(), asking(0, "a"), NOON)
    for number in range(1, 4):
        limiter = waiting(limiter, number, "a")
    limiter = waiting(waiting(limiter, 8, "b"), 9, None)
    assert [place.limit_key for place in limiter.places] == ["b", None, "a", "a", "a"]
    assert isinstance(slot, Slot)
    limiter = give_back(limiter, slot, after(0.01))
    assert isinstance(acquire(limiter, asking(1, "a", at=0.01), after(0.01))[1], SlotPostponed)
    assert isinstance(acquire(limiter, asking(8, "b", at=0.01), after(0.01))[1], Slot)


def order_of(shares: FairShares, places: list[Place]) -> str:
    """Let all places go, one after the other."""
    order = ""
    while places:
        first, *places = shares.in_order(places, NOON)
        order += first.limit_key or "-"
        shares = shares.charged(first, places, NOON, None) or NO_SHARES
    return order


def test_a_key_that_rested_goes_first_until_its_credit_is_used_up() -> None:
    backlog = [Place(to_ms(after(number)), f"op-{number}:1", to_ms(NOON), None, "a") for number in range(50)]
    burst = [Place(to_ms(after(99)), f"op-{number}:1", to_ms(NOON), None, "b") for number in range(50, 90)]
    rested = FairShares(100.0, (KeyShare(101.0, "a"),))
    assert order_of(rested, [*backlog, *burst]) == "b" * 33 + "ab" * 7 + "a" * 43
    again = FairShares(100.0, (KeyShare(101.0, "a"), KeyShare(95.0, "b")))
    assert order_of(again, [*backlog[:9], *burst[:8]]) == "b" * 6 + "ab" * 2 + "a" * 7


def test_a_start_in_a_share_counts_for_its_key() -> None:
    limiter, _ = acquire(Limiter(), asking(0, None), NOON)
    limiter = leave(waiting(limiter, 1, "a"), Leaving("op-1:1"), NOON)
    assert existing(limiter.fair).share_of("a").finish == 1.0 - CREDIT


def test_a_heavier_key_goes_more_often() -> None:
    settings = replace(ONE, weights={"a": 2.0})
    limiter, _ = acquire(Limiter(), asking(0, "held", settings), NOON)
    for number in range(1, 5):
        limiter = waiting(limiter, number, "b", settings)
    for number in range(5, 9):
        limiter = waiting(limiter, number, "a", settings)
    assert "".join(place.limit_key or "" for place in limiter.places) == "baabaabb"


def test_the_shares_survive_their_json_and_are_forgotten_when_no_key_is_left() -> None:
    limiter, slot = second_of_type(Slot, acquire(Limiter(), asking(0, "a"), NOON))
    assert limiter.fair == FairShares(0.0, (KeyShare(1.0 - CREDIT, "a"),))
    assert Limiter.from_json(limiter.to_json()) == limiter
    for number in range(1, int(CREDIT) + 3):
        limiter = give_back(limiter, slot, after(number))
        limiter, slot = second_of_type(Slot, acquire(limiter, asking(number, None), after(number)))
    assert limiter.fair is None


@pytest.mark.parametrize(
    ("most", "reason"),
    [
        (1, "1 of 1 attempt of customer-17 is under way"),
        (2, "2 of 2 attempts of customer-17 are under way"),
    ],
)
def test_a_key_at_its_bound_waits_and_keeps_no_slot_from_others(most: int, reason: str) -> None:
    settings = LimitSettings(max_concurrency=4, per_key=KeyLimits(max_concurrency=most))
    limiter = Limiter()
    for number in range(most):
        limiter, _ = acquire(limiter, asking(number, "customer-17", settings), NOON)
    assert reason_of(limiter, asking(5, "customer-17", settings)) == reason
    limiter = waiting(limiter, 5, "customer-17", settings)
    for number, key in ((6, "customer-18"), (7, None)):
        limiter, _answer = second_of_type(Slot, acquire(limiter, asking(number, key, settings), NOON))


def test_an_attempt_behind_others_of_its_key_says_so_while_none_of_them_is_under_way() -> None:
    settings = replace(ONE, per_key=KeyLimits(max_concurrency=2))
    limiter, _ = acquire(Limiter(), asking(0, "b", settings), NOON)
    limiter = waiting(waiting(limiter, 1, "a", settings), 2, "a", settings)
    assert reason_of(limiter, asking(3, "a", settings)) == "2 attempts of a before it"


def test_the_bound_of_a_key_holds_without_any_other_limit() -> None:
    settings = LimitSettings(per_key=KeyLimits(max_concurrency=1))
    assert settings.is_on
    assert not settings.of_key(None).is_on, "an attempt without a key needs no slot"
    limiter, slot = acquire(Limiter(), asking(0, "a", settings), NOON)
    assert slot == Slot("op-0:1", NOON)
    limiter = waiting(limiter, 1, "a", settings)
    assert isinstance(acquire(limiter, asking(2, "b", settings), NOON)[1], Slot)
    assert isinstance(
        acquire(give_back(limiter, slot, NOON), asking(1, "a", settings, at=1), after(1))[1], Slot
    )


def test_the_starts_of_a_key_are_spaced_by_its_rate_and_others_go_meanwhile() -> None:
    settings = LimitSettings(max_concurrency=9, per_key=KeyLimits(rate_per_second=5.0))
    limiter, _ = acquire(Limiter(), asking(0, "customer-17", settings), NOON)
    limiter, answer = acquire(limiter, asking(1, "customer-17", settings), NOON)
    reason = "5 attempts per second of customer-17"
    assert answer == SlotPostponed(0.2, reason, ahead=0)
    limiter, answer = acquire(limiter, asking(2, "customer-17", settings), NOON)
    assert answer == SlotPostponed(0.4, reason, ahead=0)
    assert isinstance(acquire(limiter, asking(3, "customer-18", settings), NOON)[1], Slot)
    assert isinstance(acquire(limiter, asking(1, "customer-17", settings, at=0.2), after(0.2))[1], Slot)


def test_a_turn_is_reserved_for_a_key_that_may_start_by_then() -> None:
    limits = LimitSettings(rate_per_second=8.0, per_key=KeyLimits(rate_per_second=2.0))
    for last, turn_seconds in ((0.5, 0.625), (0.3, None)):
        limiter = Limiter(last_start_at=after(last))
        limiter = replace(limiter, fair=FairShares(0.0, (KeyShare(0.0, "a", after(0.5)),)))
        _, answer = acquire(limiter, asking(1, "a", limits), NOON)
        assert answer.turn_seconds == turn_seconds


def test_one_that_waits_for_the_rate_of_its_key_asks_by_itself_and_not_when_a_slot_is_free() -> None:
    """Where a slot is given back before the next start of its key, nobody of that can be told of it."""
    settings = LimitSettings(max_concurrency=4, per_key=KeyLimits(max_concurrency=1, rate_per_second=0.5))
    limiter, slot = acquire(Limiter(lasted_seconds=0.5), asking(0, "a", settings), NOON)
    waiting = [replace(asking(number, "a", settings), waiter=f"op-{number}") for number in (1, 2)]
    seconds = []
    for request in (replace(request, has_waited=True) for request in waiting):
        limiter, answer = second_of_type(SlotPostponed, acquire(limiter, request, NOON))
        seconds.append(answer.seconds)
    assert seconds == [2.0, 4.0]
    assert isinstance(slot, Slot)
    limiter = give_back(limiter, slot, after(0.5))
    assert isinstance(acquire(limiter, replace(waiting[0], asked_at=after(2)), after(2))[1], Slot)


def test_after_a_full_queue_one_that_waits_for_its_key_asks_within_seconds() -> None:
    """Nobody tells it of a free slot, so it must not be told to come by how long others were queued."""
    settings = LimitSettings(max_concurrency=4, per_key=KeyLimits(max_concurrency=1, rate_per_second=0.5))
    limiter, slot = second_of_type(Slot, acquire(Limiter(), asking(0, "a", settings), NOON))
    limiter = give_back(limiter, replace(slot, lasted_seconds=0.5), after(60))
    limiter, _ = acquire(limiter, asking(1, "a", settings, at=60), after(60))
    for number in (2, 3):
        request = replace(asking(number, "a", settings, at=60), has_waited=True)
        limiter, answer = second_of_type(SlotPostponed, acquire(limiter, request, after(60)))
    assert answer.seconds == 4.0


def test_an_attempt_takes_the_weight_of_its_key_with_it_and_no_other() -> None:
    limits = LimitSettings(4, 0.0, None, {"a": 2.0, "b": 3.0})
    assert limits.of_key("a") == LimitSettings(4, 0.0, None, {"a": 2.0})
    assert limits.of_key("c") == limits.of_key(None) == LimitSettings(4)
    plain = LimitSettings(4)
    assert plain.of_key("a") is plain


def test_a_table_of_limits_has_the_bounds_of_each_key() -> None:
    def read(table: dict[str, object]) -> LimitSettings:
        return LimitKeys.model_validate({"limits": table}).settings

    assert read({}) == read({"per_key": {}, "weights": {}}) == LimitSettings()
    assert read({"per_key": {"max_concurrency": 2}}) == LimitSettings(per_key=KeyLimits(2))
    assert read({"weights": {"customer-17": 3}}) == LimitSettings(weights={"customer-17": 3})


def test_workers_start_nothing_of_their_own_accord_where_keys_are_bound() -> None:
    share = WorkerShare(LimitSettings(8, 8.0, KeyLimits(max_concurrency=1)))
    assert not share.take(NOON, ALONE)


def test_people_see_the_keys_with_most_that_wait() -> None:
    places = [
        Place(to_ms(NOON), f"op-{key}-{n}", to_ms(after(1)), None, f"k-{key}")
        for key in range(12)
        for n in range(key)
    ]
    shown = limits_view(ONE, Limiter(places=(*places, Place(to_ms(NOON), "op-1", to_ms(after(1))))), NOON)
    assert shown.waiting == len(places) + 1
    assert list(shown.waiting_by_key.items()) == [(f"k-{n}", n) for n in range(11, 11 - SHOWN_KEYS, -1)]


def test_those_without_a_place_whose_key_is_at_its_bound_ask_one_after_the_other_behind_it() -> None:
    settings = replace(ONE, per_key=KeyLimits(max_concurrency=1))
    limiter, _ = acquire(Limiter(), asking(0, "a", settings), NOON)
    for number in range(1, KEPT_PLACES + 1):
        limiter = waiting(limiter, number, "a", settings)
    waits = []
    for number in range(KEPT_PLACES + 1, KEPT_PLACES + 400):
        limiter, answer = second_of_type(SlotPostponed, acquire(limiter, asking(number, "a", settings), NOON))
        waits.append(answer.seconds)
    assert waits[0] == FIRST_SLOT_ASK_SECONDS + 0.01
    assert waits[-1] == pytest.approx(FIRST_SLOT_ASK_SECONDS + 0.01 * len(waits), abs=0.01)
    assert existing(limiter.fair).share_of("a").tail_at == after(waits[-1])
    assert limiter.tail_at is None, "those of other keys do not wait for them"
    short = replace(asking(900, "a", settings), latest_seconds=4.0)
    _, answer = second_of_type(SlotPostponed, acquire(limiter, short, NOON))
    assert answer.seconds == 4.0, "it asks once more before its deadline"


def test_long_keys_leave_room_for_fewer_places_and_shares() -> None:
    limiter, _ = acquire(Limiter(), asking(0, None), NOON)
    for number in range(1, 200):
        limiter, _ = acquire(limiter, asking(number, f"{number:0200d}"), NOON)
    limiter = replace(limiter, fair=FairShares(50.0, tuple(KeyShare(60.0, f"{n:0200d}") for n in range(128))))
    assert len(json.dumps(limiter.to_json()["places"])) < KEPT_BYTES * 1.2
    shares = existing(existing(limiter.fair).charged(limiter.places[0], limiter.places, NOON, None))
    assert len(json.dumps(shares.to_json())) < KEPT_BYTES * 1.2


def test_a_busy_crowd_of_many_keys_holds_no_other_key_up() -> None:
    """What is due goes whenever a slot is free, whoever of the others is late."""
    settings = LimitSettings(max_concurrency=2, per_key=KeyLimits(max_concurrency=1))
    limiter = Limiter()
    for number in range(2):
        limiter, _ = acquire(limiter, asking(number, f"k-{number}", settings), NOON)
    for number in range(2, 40):
        limiter = waiting(limiter, number, f"k-{number}", settings)
    slot = Slot("op-0:1", NOON)
    limiter = give_back(limiter, slot, after(1))
    limiter = replace(
        limiter, places=tuple(replace(each, asks_ms=to_ms(after(1))) for each in limiter.places)
    )
    last = asking(39, "k-39", settings, at=1.2)
    assert isinstance(acquire(limiter, last, after(1.2))[1], Slot)


@pytest.mark.parametrize(
    ("priority", "seconds"), [(None, 60), (Priority.NORMAL, 60), (Priority.HIGH, 240), (Priority.LOW, 15)]
)
def test_a_minute_counts_by_the_priority(priority: Priority | None, seconds: float) -> None:
    assert counted_wait_ms(0, priority, 60_000) == seconds * 1_000
    assert counted_wait_ms(60_000, priority, 0) == 0
