from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import ceil, sqrt
from typing import Any

import pytest

from durable_retry.base.text import deterministic_fraction
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.snapshot import (
    RELEASE,
    AskForProbe,
    Permit,
    Permitted,
    Refused,
    ReleaseSettings,
    Snapshot,
    TakenHere,
    permit,
    release_at,
    release_seconds,
)
from durable_retry.rules.circuit.states import CircuitState
from tests.support.builders import NOON, after
from tests.support.circuit import SETTINGS, Desk, tripped
from tests.support.narrowing import of_type

C = CircuitState


def ask(
    snapshot: Snapshot | None, at: float, *, waiting: bool = False, here: TakenHere | None = None
) -> Permit:
    return permit(
        snapshot,
        after(at),
        settings=SETTINGS,
        operation_id="op-1",
        waiting=waiting,
        here=here or TakenHere(),
    )


def test_a_closed_circuit_permits_with_its_epoch() -> None:
    assert ask(Desk().read(0), 0) == Permitted(epoch=1)


def test_a_disabled_circuit_permits() -> None:
    desk = tripped().control(1, ManualControl.DISABLE)
    assert ask(desk.read(1), 1) == Permitted(epoch=3)


def test_a_circuit_that_was_never_read_permits_every_call() -> None:
    assert ask(None, 0) == Permitted(epoch=0, fail_open=True)


def test_a_snapshot_is_believed_for_one_second() -> None:
    snapshot = tripped().read(30)
    assert isinstance(ask(snapshot, 31), AskForProbe)
    assert ask(snapshot, 31.001) == Permitted(epoch=3, fail_open=True)


@pytest.mark.parametrize(
    ("control", "until"), [((ManualControl.OPEN, 60.0), 60), ((ManualControl.OPEN, None), 10_000), (None, 30)]
)
def test_a_hold_that_was_read_stays_in_force_until_its_end_though_nothing_can_be_read(
    control: tuple[ManualControl, float | None] | None, until: float
) -> None:
    desk = Desk() if control else tripped()
    if control:
        desk.control(0, *control)
    snapshot = desk.read(0)
    assert isinstance(ask(snapshot, until - 0.001), Refused)
    if until < 10_000:
        assert ask(snapshot, until) == Permitted(epoch=2, fail_open=True)


def test_a_pause_that_was_read_stays_in_force_until_its_end_though_nothing_can_be_read() -> None:
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=60))
    snapshot = desk.read(0)
    assert isinstance(ask(snapshot, 59.999), Refused)
    assert ask(snapshot, 60) == Permitted(epoch=1, fail_open=True)


@pytest.mark.parametrize("snapshot", [None, Desk().read(0), Desk().read(10), tripped().read(31)])
def test_a_pause_that_this_worker_was_asked_for_holds_before_the_circuit_shows_it(
    snapshot: Snapshot | None,
) -> None:
    here = TakenHere(throttled_until=after(40), throttled_by="429")
    answer = of_type(Refused, ask(snapshot, 10, here=here))
    assert (answer.base, answer.reason) == (after(40), "the dependency asked for a pause")
    assert (answer.throttled, answer.failure) == (True, "429")
    assert not isinstance(ask(snapshot, 40, here=here), Refused)


def test_an_open_circuit_refuses_until_a_place_after_its_break() -> None:
    answer = of_type(Refused, ask(tripped().read(10), 10))
    assert (answer.base, answer.waiting) == (after(30), 0)
    assert answer.until == release_at("op-1", after(30), 0)
    assert (answer.reason, answer.throttled) == ("the circuit is open: 10 of 10 calls in 30 s failed", None)


def failing(desk: Desk, at: float, error: str, **more: Any) -> None:
    desk.hear(replace(desk.report(at, **more), last_error=error))


def test_an_open_circuit_says_how_the_dependency_failed_last_and_since_when() -> None:
    desk = Desk()
    failing(desk, 0, "500", failures=1, successes=9)
    assert desk.read(0).failure is None
    failing(desk, 0, "503: no upstream", failures=20)
    answer = of_type(Refused, ask(desk.read(10), 10))
    assert answer.failure == "answers 503: no upstream, since 2026-11-21T12:00:00Z"
    asked = of_type(Refused, desk.ask(10))
    assert asked.failure == answer.failure
    desk.ask(30)
    probing = [ask(desk.read(31), 31), desk.ask(31, "op-2")]
    assert [answer.failure for answer in probing if isinstance(answer, Refused)] == [asked.failure] * 2
    failing(desk, 32, "ReadTimeout")  # A late one counts nowhere and is the latest all the same.
    assert desk.read(32).failure == "fails: ReadTimeout, since 2026-11-21T12:00:32Z"
    desk.conclude(33, CallHealth.SUCCESS)
    assert desk.read(33).failure is None


def test_operations_refused_here_count_as_waiting_before_they_are_reported() -> None:
    assert of_type(Refused, ask(tripped().read(10), 10, here=TakenHere(refused=500))).waiting == 500


def test_without_a_known_budget_this_worker_counts_as_the_only_one() -> None:
    snapshot = replace(tripped().read(10), budget=None)
    assert of_type(Refused, ask(snapshot, 10, here=TakenHere(refused=7))).waiting == 7


def test_a_break_that_ends_between_reading_and_asking_calls_for_a_probe() -> None:
    assert ask(tripped().read(29.5), 30) == AskForProbe(epoch=2)


def test_a_half_open_circuit_calls_for_a_probe() -> None:
    assert ask(tripped().read(30), 30) == AskForProbe(epoch=3)


def test_one_worker_asks_for_as_many_probes_as_are_free() -> None:
    assert of_type(Refused, ask(tripped().read(30), 30, here=TakenHere(asked=1))).base == after(32)


def test_while_probes_are_in_flight_the_others_come_back_soon() -> None:
    desk = tripped()
    desk.ask(30)
    answer = of_type(Refused, ask(desk.read(30), 30))
    assert answer.base == after(32)
    assert answer.reason == "the circuit is half-open and its probes are under way"


@pytest.mark.parametrize(("for_seconds", "base"), [(60, 60), (None, 600), (9_999, 600)])
def test_a_circuit_held_open_is_asked_again_now_and_then(for_seconds: float | None, base: float) -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds)
    answer = of_type(Refused, ask(desk.read(0), 0))
    assert (answer.base, answer.reason) == (after(base), "the circuit is held open: drill")
    assert answer.stops_deadline is None


def test_an_operation_is_told_that_its_deadline_stops_while_the_circuit_is_held_open() -> None:
    desk = Desk().control(0, ManualControl.OPEN, 60, stops_deadline=True)
    assert of_type(Refused, ask(desk.read(0), 0)).stops_deadline is True


def test_a_hold_that_ends_between_reading_and_asking_calls_for_a_probe() -> None:
    desk = Desk().control(0, ManualControl.OPEN, 60)
    assert ask(desk.read(59.5), 60) == AskForProbe(epoch=2)


@pytest.mark.parametrize("desk", [Desk(), tripped()])
def test_a_throttling_pause_holds_everyone_without_a_trip(desk: Desk) -> None:
    desk.hear(replace(desk.report(30, throttled_until=90), throttled_by="429"))
    snapshot = desk.read(30)
    assert snapshot.state in {C.CLOSED, C.HALF_OPEN}
    answer = of_type(Refused, ask(snapshot, 30))
    assert (answer.base, answer.reason) == (after(90), "the dependency asked for a pause")
    assert (answer.throttled, answer.failure) == (True, "429")


def test_the_longer_of_two_throttling_pauses_holds() -> None:
    desk = Desk()
    desk.hear(replace(desk.report(0, throttled_until=90), throttled_by="429"))
    desk.hear(replace(desk.report(1, throttled_until=60), throttled_by="503"))
    snapshot = desk.read(1)
    assert (snapshot.throttled_until, snapshot.throttled_by) == (after(90), "429")


@pytest.mark.parametrize(("asked", "held"), [(5, None), (10, None), (10_000_000, 10 + 86_400)])
def test_a_pause_in_the_past_is_none_and_an_absurd_one_is_cut_to_a_day(
    asked: float, held: float | None
) -> None:
    desk = Desk()
    desk.hear(desk.report(10, throttled_until=asked))
    assert desk.read(10).throttled_until == (None if held is None else after(held))


def crowd(waiting: int) -> Desk:
    """A circuit that closed 31 s after noon with so many waiting since the break."""
    desk = tripped()
    desk.hear(desk.report(2, refused=waiting))
    desk.ask(30)
    desk.conclude(31, CallHealth.SUCCESS)
    return desk


def test_after_closing_a_waiting_operation_goes_in_its_turn() -> None:
    place = release_at("op-1", after(30), 10_000)
    snapshot = crowd(10_000).read(31)
    assert ask(snapshot, 31) == Permitted(epoch=4)
    answer = of_type(Refused, ask(snapshot, 31, waiting=True))
    assert (answer.until, answer.waiting, answer.throttled) == (place, 0, None)
    at = (place - after(0)).total_seconds()
    assert ask(crowd(10_000).read(at), at, waiting=True) == Permitted(epoch=4)


def test_after_a_throttling_pause_the_waiting_go_in_turn() -> None:
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=60, refused=10_000))
    answer = of_type(Refused, ask(desk.read(60), 60, waiting=True))
    assert (answer.until, answer.throttled) == (release_at("op-1", after(60), 10_000), True)


def test_closing_by_hand_releases_in_turn_from_that_moment() -> None:
    desk = tripped()
    desk.hear(desk.report(2, refused=10_000))
    desk.control(10, ManualControl.CLOSE)
    answer = of_type(Refused, ask(desk.read(10), 10, waiting=True))
    assert answer.until == release_at("op-1", after(10), 10_000)


def test_who_waited_for_a_circuit_that_never_closed_anyone_out_goes_at_once() -> None:
    assert ask(Desk().read(0), 0, waiting=True) == Permitted(epoch=1)


def test_the_waiting_drain_at_the_rate_of_release() -> None:
    desk = crowd(10_000)
    assert [desk.breaker.remaining_waiting(after(31 + seconds)) for seconds in (0, 100, 200, 300)] == [
        10_000,
        5_000,
        0,
        0,
    ]


def test_those_who_still_wait_are_counted_when_it_opens_again() -> None:
    desk = crowd(10_000)
    desk.fail(131)
    assert desk.read(131).waiting == 5_000


def test_a_new_throttling_pause_forgets_those_who_went() -> None:
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=10, refused=1_000))
    desk.hear(desk.report(60, throttled_until=90, refused=3))
    assert desk.read(60).waiting == 3


def places(number: int, waiting: int, settings: ReleaseSettings = RELEASE) -> list[float]:
    names = [f"op-{index:06d}" for index in range(number)]
    return [(release_at(name, NOON, waiting, settings) - NOON).total_seconds() for name in names]


def test_a_place_is_the_same_whenever_it_is_asked_for() -> None:
    assert release_at("op-1", NOON, 100) == release_at("op-1", NOON, 100)


def test_places_differ_from_break_to_break() -> None:
    assert release_at("op-1", NOON, 100) - NOON != release_at("op-1", after(60), 100) - after(60)


def test_ten_thousand_are_spread_evenly_over_two_hundred_seconds() -> None:
    seconds = places(10_000, 10_000)
    assert release_seconds(10_000) == 200
    assert min(seconds) >= 0
    assert max(seconds) < 200
    # A fifth of them in each fifth of the time; 5 standard deviations of a binomial count are 200.
    fifths = Counter(int(second // 40) for second in seconds)
    assert all(abs(fifths[fifth] - 2_000) < 5 * sqrt(10_000 * 0.2 * 0.8) for fifth in range(5))


def test_no_second_sees_many_more_than_the_rate() -> None:
    per_second = Counter(int(second) for second in places(10_000, 10_000))
    assert max(per_second.values()) <= 2 * RELEASE.per_second
    assert len(per_second) == 200


def test_no_ten_seconds_see_more_than_a_quarter_above_the_rate() -> None:
    seconds = sorted(places(10_000, 10_000))
    most = ceil(10 * RELEASE.per_second * 1.25)
    assert all(later - earlier > 10 for earlier, later in zip(seconds, seconds[most:], strict=False))


def test_the_spread_has_no_gaps_where_a_herd_could_gather() -> None:
    seconds = sorted(places(10_000, 10_000))
    assert max(later - earlier for earlier, later in pairwise(seconds)) < 0.5


@pytest.mark.parametrize("waiting", [0, 1, 50])
def test_a_few_are_spread_over_a_second(waiting: int) -> None:
    assert max(places(50, waiting)) < 1
    assert len(set(places(50, waiting))) == 50


def test_the_rate_can_be_set() -> None:
    assert release_seconds(100, ReleaseSettings(per_second=10, minimum_spread_seconds=3)) == 10
    assert release_seconds(1, ReleaseSettings(per_second=10, minimum_spread_seconds=3)) == 3


def test_fractions_are_below_one_and_depend_on_every_name() -> None:
    fractions = [deterministic_fraction("a", str(number)) for number in range(1_000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert len(set(fractions)) == 1_000
    assert deterministic_fraction("ab", "c") != deterministic_fraction("a", "bc")
