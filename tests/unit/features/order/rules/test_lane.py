from dataclasses import replace
from datetime import timedelta

import pytest

from durable_retry.base.json_forms import to_ms
from durable_retry.features.order.rules import lane as lanes
from durable_retry.features.order.rules.lane import (
    KEPT_IN_TAIL,
    KEPT_LEAVES,
    Lane,
    LaneMessage,
    Place,
    Tail,
    Turn,
    ask_again_seconds,
    dropped,
    joined,
    left,
    passed_to,
    released,
    tail_after,
    taken,
)
from tests.support.builders import NOON

EMPTY = Lane(order_key="customer-7")


def a_place(name: str, seconds: float = 0, run: int = 0) -> Place:
    """Return the place of an operation that was accepted so many seconds after noon."""
    return Place(f"op-{name}", to_ms(NOON + timedelta(seconds=seconds)), run)


def running(name: str, seconds: float = 0, replays: int = 0) -> Place:
    """Return the place of an operation whose orchestration has claimed its key."""
    place = a_place(name, seconds)
    return place._replace(run=place.accepted_ms + replays)


def a_lane(*places: Place) -> Lane:
    """Return a lane that these have joined."""
    lane = EMPTY
    for place in places:
        lane = joined(lane, place)
    return lane


def in_order(lane: Lane) -> list[str]:
    return [place.operation_id for place in lane.places()]


def test_whoever_comes_to_a_free_lane_has_its_turn() -> None:
    lane, turn = taken(EMPTY, running("a"))
    assert turn == Turn(has_turn=True)
    assert in_order(lane) == ["op-a"]


def test_whoever_comes_later_waits_behind_those_that_came_before() -> None:
    lane = a_lane(a_place("a"), a_place("b", 1), a_place("c", 2))
    lane, turn = taken(lane, running("c", 2))
    assert turn == Turn(has_turn=False, ahead=2, front="op-a")
    assert turn.reasons == ("op-a is in front", "1 other operation before it")


def test_the_order_is_that_of_acceptance_and_not_of_asking() -> None:
    lane = a_lane(a_place("a"), a_place("b", 1))
    lane, turn = taken(lane, running("b", 1))
    assert not turn.has_turn
    assert taken(lane, running("a"))[1].has_turn


def test_an_end_gives_the_turn_to_the_next() -> None:
    before, _ = taken(a_lane(a_place("a"), a_place("b", 1)), running("b", 1))
    after = left(before, running("a"), None)
    assert passed_to(before, after) == running("b", 1)
    assert taken(after, running("b", 1))[1].has_turn


def test_an_operation_that_has_not_asked_yet_is_told_when_it_asks() -> None:
    before = a_lane(a_place("a"), a_place("b", 1))
    after = left(before, running("a"), None)
    assert passed_to(before, after) is None
    assert taken(after, running("b", 1))[1].has_turn


def test_a_dead_letter_in_front_blocks_the_lane_until_its_replay_has_ended() -> None:
    before, _ = taken(a_lane(a_place("a"), a_place("b", 1)), running("b", 1))
    blocked = left(before, running("a"), "dl-a")
    assert blocked.blocking == "dl-a"
    assert passed_to(before, blocked) is None
    turn = taken(blocked, running("b", 1))[1]
    assert turn.reasons == ("op-a is in front, and ended as the dead letter dl-a",)
    replayed, turn = taken(blocked, running("a", 60, replays=1))
    assert turn.has_turn
    assert replayed.blocking is None
    after = left(replayed, running("a", 60, replays=1), None)
    assert passed_to(replayed, after) == running("b", 1)


def test_a_replay_that_fails_again_blocks_again() -> None:
    lane = left(a_lane(a_place("a"), a_place("b", 1)), running("a"), "dl-1")
    lane, _ = taken(lane, running("a", 60))
    assert left(lane, running("a", 60), "dl-2").blocking == "dl-2"


def test_an_archived_dead_letter_lets_those_behind_it_go_on() -> None:
    before = left(taken(a_lane(a_place("a"), a_place("b", 1)), running("b", 1))[0], running("a"), "dl-1")
    assert released(before, "op-a", "dl-of-an-earlier-run") is before
    assert released(before, "op-b", "dl-1") is before
    after = released(before, "op-a", "dl-1")
    assert passed_to(before, after) == running("b", 1)
    assert left(after, running("a"), "dl-1") == after


def test_a_dead_letter_behind_the_front_keeps_its_place_and_blocks_when_it_gets_there() -> None:
    lane = a_lane(a_place("a"), a_place("b", 1), a_place("c", 2))
    lane = left(lane, running("b", 1), "dl-b")
    assert lane.blocking is None
    before, _ = taken(lane, running("c", 2))
    after = left(before, running("a"), None)
    assert (after.blocking, passed_to(before, after)) == ("dl-b", None)


def test_what_comes_again_after_an_end_changes_nothing() -> None:
    lane = left(taken(a_lane(a_place("a"), a_place("b", 1)), running("a"))[0], running("a"), None)
    assert joined(lane, a_place("a")) is lane
    assert taken(lane, running("a")) == (lane, Turn(has_turn=False))
    assert left(lane, running("a"), None) == lane


def test_the_end_of_an_earlier_run_does_not_end_its_replay() -> None:
    lane, _ = taken(a_lane(a_place("b")), running("a", 5))
    assert left(lane, running("a", 4), None) is lane
    assert left(lane, running("a", 4), "dl-4") is lane
    assert taken(lane, running("a", 4))[0] is lane


def test_a_start_that_never_held_its_key_leaves_what_it_has_joined_and_nothing_else() -> None:
    lane = a_lane(a_place("a"), a_place("b", 1))
    assert in_order(left(lane, a_place("b", 1), None)) == ["op-a"]
    lane, _ = taken(lane, running("b", 1))
    assert left(lane, a_place("b", 1), None) is lane


def test_only_exactly_the_run_that_is_gone_is_dropped() -> None:
    lane, _ = taken(a_lane(a_place("a")), running("a"))
    assert dropped(lane, a_place("a")) is lane
    assert dropped(lane, running("a")).queue == ""
    assert dropped(lane, running("b")) is lane


def test_the_latest_ends_are_remembered() -> None:
    lane = EMPTY
    for number in range(KEPT_LEAVES + 1):
        lane = left(lane, running(f"{number}", number), None)
    assert len(lane.leaves) == KEPT_LEAVES
    assert in_order(joined(lane, a_place("0"))) == ["op-0"]


def test_a_full_lane_keeps_no_place_and_says_how_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_PLACES", 2)
    full = a_lane(a_place("a"), a_place("b", 1))
    lane, turn = taken(full, running("c", 2))
    assert lane is full
    assert (turn.has_turn, turn.ahead, turn.front) == (False, 2, "op-a")
    assert in_order(taken(left(full, running("a"), None), running("c", 2))[0]) == ["op-b", "op-c"]


def test_a_lane_says_since_when_its_front_is_there() -> None:
    lane = a_lane(a_place("a"), a_place("b", 1)).since(EMPTY, NOON)
    assert lane.front_since == NOON
    later = NOON + timedelta(seconds=9)
    assert joined(lane, a_place("c", 2)).since(lane, later).front_since == NOON
    assert left(lane, running("a"), None).since(lane, later).front_since == later
    assert replace(lane, queue="").since(lane, later).front_since is None


def test_the_state_of_a_lane_is_read_as_it_was_written() -> None:
    lane = left(a_lane(a_place("a"), running("b", 1), a_place("c")), running("a"), "dl-1").since(EMPTY, NOON)
    assert Lane.from_json(lane.to_json()) == lane
    assert len(lane) == 3
    assert lane.place_of("op-c") == a_place("c")
    message = LaneMessage(order_key="k", operation_id="op-a", accepted_at=NOON)
    assert Place.of(message) == a_place("a")
    assert a_place("a").accepted_at == NOON


def test_ten_thousand_wait_in_a_state_of_less_than_a_megabyte() -> None:
    queue = "".join(str(running(f"{number:032d}", number)) for number in range(10_000))
    lane = replace(EMPTY, queue=queue)
    assert len(str(lane.to_json())) < 700_000
    assert taken(lane, running(f"{9_999:032d}", 9_999))[1].ahead == 9_999


@pytest.mark.parametrize(
    ("ahead", "front_seconds", "seconds"),
    [
        (1, 0, 5),
        (1, 60, 60),
        (1, 900, 300),
        (50, 0, 150),
        (50, 900, 300),
        (1_000, 0, 3_000),
        (10_000, 0, 3_600),
    ],
)
@pytest.mark.shows("W8")
def test_who_waits_asks_again_the_more_seldom_the_longer_the_front_stays_and_the_further_behind(
    ahead: int, front_seconds: float, seconds: int
) -> None:
    assert ask_again_seconds(ahead, front_seconds) == seconds


def numbered(name: str, number: int, run: int = 0) -> Place:
    return a_place(name, run=run)._replace(number=number)


def test_the_order_is_that_of_the_numbers_however_the_joins_come() -> None:
    lane = joined(joined(joined(EMPTY, numbered("c", 3), "op-b"), numbered("a", 1)), numbered("b", 2), "op-a")
    assert in_order(lane) == ["op-a", "op-b", "op-c"]
    assert lane.missing is None


def test_who_has_no_number_comes_last_and_is_not_overtaken_by_what_came_later() -> None:
    lane = a_lane(numbered("a", 1), a_place("later"), numbered("c", 3), numbered("b", 2))
    assert in_order(lane) == ["op-a", "op-later", "op-b", "op-c"]


def test_a_number_that_was_given_twice_comes_behind_the_first() -> None:
    assert in_order(a_lane(numbered("a", 1), numbered("b", 1))) == ["op-a", "op-b"]


def test_nobody_has_a_turn_before_the_one_before_it_was_seen() -> None:
    lane, turn = taken(EMPTY, numbered("b", 2, run=7), "op-a")
    assert (turn.has_turn, turn.missing, turn.ahead, turn.front) == (False, "op-a", 0, "op-b")
    assert turn.reasons == ("op-a, which was accepted before it, has not come to its order lane",)
    assert Turn.from_json(turn.to_json()) == turn
    assert Lane.from_json(lane.to_json()) == lane
    assert taken(lane, numbered("b", 2, run=7), "op-a") == (lane, turn)
    assert passed_to(EMPTY, lane) is None


def test_a_join_that_comes_late_goes_before_a_front_that_waits_for_it() -> None:
    waiting, _ = taken(EMPTY, numbered("b", 2, run=7), "op-a")
    lane = joined(waiting, numbered("a", 1))
    assert in_order(lane) == ["op-a", "op-b"]
    assert taken(lane, numbered("a", 1, run=6))[1].has_turn
    assert taken(lane, numbered("b", 2, run=7), "op-a")[1].front == "op-a"


def test_nobody_goes_before_a_front_that_may_have_its_turn() -> None:
    lane, _ = taken(EMPTY, numbered("b", 2, run=7))
    assert in_order(joined(lane, numbered("a", 1))) == ["op-b", "op-a"]


def test_the_end_of_the_one_before_it_gives_the_turn_to_who_waits_for_it() -> None:
    waiting, _ = taken(EMPTY, numbered("b", 2, run=7), "op-a")
    lane = left(waiting, numbered("a", 1, run=6), None)
    assert passed_to(waiting, lane) == numbered("b", 2, run=7)


def test_who_was_told_that_the_one_before_it_is_over_has_its_turn() -> None:
    waiting, _ = taken(EMPTY, numbered("b", 2, run=7), "op-a")
    lane, turn = taken(waiting, numbered("b", 2, run=7))
    assert turn.has_turn
    assert lane.missing is None
    assert taken(lane, numbered("b", 2, run=7), "op-a")[1].has_turn


def test_a_place_that_goes_waits_for_nobody_any_more() -> None:
    waiting, _ = taken(EMPTY, numbered("b", 2, run=7), "op-a")
    assert left(waiting, numbered("b", 2, run=7), None).missing is None


def test_a_tail_gives_each_operation_a_higher_number_and_the_one_before_it() -> None:
    first = tail_after(None, "op-a", NOON)
    second = tail_after(first, "op-b", NOON - timedelta(seconds=5))
    assert (first.number, first.before("op-a")) == (to_ms(NOON), None)
    assert (second.number, second.before("op-b")) == (first.number + 1, "op-a")
    assert tail_after(second, "op-b", NOON) is second
    assert Tail.from_json(second.to_json()) == second


def test_a_tail_gives_a_number_anew_behind_those_that_came_since() -> None:
    tail = tail_after(tail_after(None, "op-a", NOON), "op-b", NOON)
    anew = tail_after(tail, "op-a", NOON, is_anew=True)
    assert (anew.number, anew.before("op-a"), anew.before("op-c")) == (tail.number + 1, "op-b", "op-a")
    assert anew.recent == ("op-b", "op-a")


def test_a_tail_remembers_the_latest_operations() -> None:
    tail = None
    for number in range(KEPT_IN_TAIL + 1):
        tail = tail_after(tail, f"op-{number}", NOON)
    assert tail is not None
    assert (len(tail.recent), tail.recent[-1]) == (KEPT_IN_TAIL, f"op-{KEPT_IN_TAIL}")
