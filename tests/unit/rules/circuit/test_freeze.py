from dataclasses import replace

import pytest

from durable_retry.base.text import time_text
from durable_retry.rules.circuit.breaker import IDLE_AFTER, Breaker, ManualControl
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.messages import view_of
from durable_retry.rules.circuit.snapshot import (
    RECHECK,
    AskForProbe,
    Permit,
    Permitted,
    Refused,
    Snapshot,
    held_by_freeze,
    held_by_hand,
    paused,
    permit,
)
from durable_retry.rules.circuit.states import CircuitState
from tests.support.builders import NOON, after
from tests.support.circuit import SETTINGS, Desk, tripped
from tests.support.narrowing import existing, of_type

FREEZE = Freeze(NOON, NOON, "ada", "wrong amounts", stops_deadline=True)
HALF = FREEZE.then(after(5), share=0.5)
IDS = [f"op-{number}" for number in range(200)]
WHY = f"held by ada since {time_text(NOON)}: wrong amounts"


def frozen_desk(freeze: Freeze = FREEZE, desk: Desk | None = None) -> Desk:
    desk = desk or Desk()
    desk.breaker = desk.breaker.with_freeze(freeze, freeze.at)
    return desk


def ask(snapshot: Snapshot, at: float, operation_id: str = "op-1", *, waiting: bool = False) -> Permit:
    return permit(snapshot, after(at), settings=SETTINGS, operation_id=operation_id, waiting=waiting)


def refusal(snapshot: Snapshot, at: float, operation_id: str = "op-1") -> Refused:
    return of_type(Refused, ask(snapshot, at, operation_id))


def let_through(freeze: Freeze, at: float = 0) -> set[str]:
    return {each for each in IDS if freeze.lets_through(each, after(at))}


def test_a_freeze_lets_nobody_through_and_its_waves_ever_more() -> None:
    assert let_through(FREEZE) == set()
    tenth, half = let_through(FREEZE.then(NOON, share=0.1)), let_through(HALF)
    assert tenth < half
    assert len(tenth) == pytest.approx(20, abs=12)
    assert len(half) == pytest.approx(100, abs=30)
    assert len(let_through(FREEZE.then(NOON, share=1.0))) == len(IDS)


def test_the_least_share_of_an_operation_lets_it_go() -> None:
    place = FREEZE.place_of("op-1")
    assert FREEZE.then(NOON, share=place).lets_through("op-1", NOON)
    assert not FREEZE.then(NOON, share=place - 0.001).lets_through("op-1", NOON)


def test_another_freeze_lets_others_go_first() -> None:
    other = replace(HALF, since=after(1))
    assert let_through(HALF) != let_through(other)


def test_a_freeze_ends_at_its_instant() -> None:
    freeze = replace(FREEZE, until=after(60))
    assert freeze.ended_at(after(59)) is None
    assert freeze.ended_at(after(60)) == after(60)
    assert len(let_through(freeze, 60)) == len(IDS)


def test_what_is_said_later_is_later_whatever_the_clock_says() -> None:
    later = FREEZE.then(after(-10), share=0.1)
    assert FREEZE.is_before(later)
    assert later.since == FREEZE.since
    assert not later.is_before(FREEZE)
    assert later.is_before(replace(FREEZE, since=after(1), at=after(1)))


@pytest.mark.parametrize(
    ("first", "second", "kept"), [(FREEZE, HALF, HALF), (HALF, FREEZE, HALF), (HALF, HALF, HALF)]
)
def test_a_circuit_keeps_what_was_said_last(first: Freeze, second: Freeze, kept: Freeze) -> None:
    desk = frozen_desk(second, frozen_desk(first))
    assert desk.breaker.freeze == kept
    assert Breaker.from_json(desk.breaker.to_json()).freeze == kept


def test_a_circuit_without_a_freeze_stores_nothing_of_it() -> None:
    assert "freeze" not in Desk().breaker.to_json()


@pytest.mark.parametrize("state", [ManualControl.CLOSE, ManualControl.DISABLE, ManualControl.OPEN])
def test_everything_waits_whatever_the_circuit_says(state: ManualControl) -> None:
    desk = Desk().control(-1, state)
    held = refusal(frozen_desk(desk=desk).read(0), 0)
    assert (held.reason, held.frozen, held.stops_deadline) == (WHY, True, True)
    assert held.base == after(SETTINGS.max_break_seconds)


def test_a_freeze_with_an_end_is_waited_for_until_then() -> None:
    desk = frozen_desk(replace(FREEZE, until=after(60), stops_deadline=None))
    held = refusal(desk.read(0), 0)
    assert (held.base, held.stops_deadline) == (after(60), None)
    # This worker read of it before its end, and answers as without it after that.
    assert ask(desk.read(59.5), 60) == Permitted(epoch=1)


def test_a_freeze_that_cannot_be_read_any_more_holds_on() -> None:
    snapshot = frozen_desk().read(0)
    assert refusal(snapshot, 30).frozen
    assert ask(replace(snapshot, frozen=None, state=CircuitState.CLOSED), 30) == Permitted(1, fail_open=True)


def test_a_wave_goes_by_the_circuit_as_it_is() -> None:
    goes = next(each for each in IDS if HALF.lets_through(each, NOON))
    stays = next(each for each in IDS if not HALF.lets_through(each, NOON))
    closed, opened = frozen_desk(HALF), frozen_desk(HALF, tripped())
    assert ask(closed.read(5), 5, goes) == Permitted(epoch=1)
    assert refusal(closed.read(5), 5, stays).frozen
    assert refusal(opened.read(5), 5, goes).frozen is None
    assert refusal(opened.read(5), 5, stays).reason == WHY
    assert isinstance(ask(opened.read(40), 40, goes), AskForProbe)
    # What cannot be read any more holds as far as it was read.
    assert ask(closed.read(5), 30, goes) == Permitted(1, fail_open=True)


def test_a_wave_is_spread_as_those_that_it_lets_go() -> None:
    desk = Desk().control(-10, ManualControl.OPEN).control(-1, ManualControl.CLOSE)
    desk.breaker = replace(desk.breaker, waiting=0)
    frozen_desk(FREEZE, desk)
    desk.hear(desk.report(1, refused=1_000))
    below = existing(frozen_desk(HALF, desk).read(5).frozen)
    assert (below.below.waiting, below.below.reopened_at) == (500, after(5))
    goes = [each for each in IDS if HALF.lets_through(each, NOON)]
    places = [ask(desk.read(5), 5, each, waiting=True) for each in goes]
    seconds = [(each.until - after(5)).total_seconds() for each in places if isinstance(each, Refused)]
    assert 8 < max(seconds) < 10


def test_those_that_wait_are_released_from_the_end_on() -> None:
    desk = frozen_desk(replace(FREEZE, until=after(60)))
    desk.hear(desk.report(1, refused=1_000))
    assert desk.breaker.remaining_waiting(after(59)) == 1_000
    snapshot = desk.read(60)
    assert (snapshot.frozen, snapshot.reopened_at, snapshot.waiting) == (None, after(60), 1_000)
    desk.hear(desk.report(70))
    assert desk.breaker.remaining_waiting(after(70)) == 500


def test_nobody_waits_any_more_after_the_last_wave() -> None:
    desk = frozen_desk()
    desk.hear(desk.report(1, refused=1_000))
    last = HALF.then(after(6), share=1.0)
    frozen_desk(last.then(after(7), until=after(7)), frozen_desk(last, desk))
    assert desk.breaker.remaining_waiting(after(7)) == 0


def test_what_was_released_before_a_freeze_does_not_wait_for_it() -> None:
    desk = Desk().control(-60, ManualControl.OPEN)
    desk.hear(desk.report(-50, refused=100))
    desk.control(-40, ManualControl.CLOSE)
    assert frozen_desk(desk=desk).breaker.waiting == 0


def test_an_end_is_forgotten_once_no_late_message_can_bring_the_freeze_back() -> None:
    desk = frozen_desk(replace(FREEZE, until=after(60)))
    seconds = IDLE_AFTER.total_seconds()
    desk.hear(desk.report(60 + seconds))
    assert desk.breaker.freeze is not None
    desk.hear(desk.report(61 + seconds))
    assert desk.breaker.freeze is None


def test_a_circuit_that_is_open_when_a_freeze_ends_stays_so() -> None:
    snapshot = frozen_desk(replace(FREEZE, until=after(5)), tripped()).read(6)
    assert (snapshot.state, snapshot.reopened_at) == (CircuitState.OPEN, None)


def test_a_pause_is_kept_beside_a_freeze() -> None:
    desk = Desk()
    desk.hear(desk.report(0, failures=1, throttled_until=30))
    snapshot = frozen_desk(desk=desk).read(1)
    until = existing(paused(snapshot, after(1), operation_id="op-1"))
    assert (until.base, until.throttled) == (after(30), True)


def test_a_half_open_circuit_grants_no_probe_while_everything_is_held() -> None:
    desk = frozen_desk(FREEZE.then(after(40)), tripped())
    answer = of_type(Refused, desk.ask(40))
    assert (answer.frozen, answer.stops_deadline, answer.reason) == (True, True, WHY)
    assert answer.base == after(40) + RECHECK
    assert isinstance(frozen_desk(HALF.then(after(41), share=1.0), desk).ask(41), Permitted)


def by_hand(snapshot: Snapshot | None, operation_id: str = "op-1") -> Refused | None:
    return held_by_hand(snapshot, after(5), settings=SETTINGS, operation_id=operation_id, waiting=False)


def test_the_operations_of_limit_keys_are_held_too() -> None:
    assert existing(by_hand(frozen_desk().read(5))).frozen
    goes = next(each for each in IDS if HALF.lets_through(each, NOON))
    assert by_hand(frozen_desk(HALF).read(5), goes) is None
    # That circuit is open, and not that of the key.
    assert by_hand(frozen_desk(HALF, tripped()).read(5), goes) is None
    desk = Desk().control(0, ManualControl.OPEN)
    forced = existing(by_hand(frozen_desk(HALF, desk).read(5), goes))
    assert forced.reason == "the circuit is held open: drill"


def by_freeze(snapshot: Snapshot | None, operation_id: str = "op-1") -> Refused | None:
    return held_by_freeze(snapshot, after(5), settings=SETTINGS, operation_id=operation_id)


def test_a_freeze_alone_is_looked_at_where_the_circuit_is_switched_off() -> None:
    assert existing(by_freeze(frozen_desk().read(5))).frozen
    assert by_freeze(None) is None
    assert by_freeze(Desk().read(5)) is None
    goes = next(each for each in IDS if HALF.lets_through(each, NOON))
    assert by_freeze(frozen_desk(HALF, tripped()).read(5), goes) is None


def test_the_document_of_a_circuit_shows_a_freeze_beside_its_state() -> None:
    shown = view_of("payments", frozen_desk(HALF, tripped()).breaker, after(6), SETTINGS)
    assert (shown.state, shown.why) == (CircuitState.OPEN, WHY)
    assert shown.hold is not None
    assert (shown.hold.by, shown.hold.since, shown.hold.share) == ("ada", NOON, 0.5)
    assert (shown.hold.reason, shown.hold.until) == ("wrong amounts", None)
    free = view_of("payments", Desk().breaker, NOON, SETTINGS)
    assert "hold" not in free.to_json()
