import pytest

from durable_retry.rules.circuit.breaker import ManualControl, moved
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.states import (
    CIRCUIT_MOVES,
    CircuitMove,
    CircuitSettings,
    CircuitState,
    IllegalMoveError,
    target_of,
)
from tests.support.builders import NOON, after
from tests.support.circuit import Desk, tripped, with_settings

C = CircuitState

MANUAL_MOVES = [
    (CircuitMove.FORCE_OPEN, C.FORCED_OPEN),
    (CircuitMove.CLOSE, C.CLOSED),
    (CircuitMove.DISABLE, C.DISABLED),
    (CircuitMove.RESET, C.CLOSED),
]


@pytest.mark.parametrize("state", list(C))
@pytest.mark.parametrize(("move", "target"), MANUAL_MOVES)
def test_a_manual_control_works_in_every_state(state: C, move: CircuitMove, target: C) -> None:
    assert target_of(state, move) is target


def test_only_six_moves_are_made_without_a_manual_control() -> None:
    manual = {move for move, _ in MANUAL_MOVES}
    assert {key: target for key, target in CIRCUIT_MOVES.items() if key[1] not in manual} == {
        (C.CLOSED, CircuitMove.TRIP): C.OPEN,
        (C.OPEN, CircuitMove.BREAK_OVER): C.HALF_OPEN,
        (C.HALF_OPEN, CircuitMove.PROBES_SUCCEEDED): C.CLOSED,
        (C.HALF_OPEN, CircuitMove.PROBE_FAILED): C.OPEN,
        (C.FORCED_OPEN, CircuitMove.EXPIRE): C.HALF_OPEN,
        (C.DISABLED, CircuitMove.EXPIRE): C.CLOSED,
    }


def test_a_move_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(IllegalMoveError, match="trip is no move of a circuit that is open"):
        moved(tripped().breaker, CircuitMove.TRIP, NOON, reason="")


def test_each_move_begins_a_new_epoch() -> None:
    desk = tripped()
    assert desk.breaker.epoch == 2
    assert desk.read(31).epoch == 3


@pytest.mark.parametrize(
    ("failures", "successes", "state"),
    [
        (9, 0, C.CLOSED),  # below minimum_calls
        (10, 0, C.OPEN),
        (5, 5, C.OPEN),  # the ratio is reached
        (4, 6, C.CLOSED),
        (0, 50, C.CLOSED),
    ],
)
def test_the_failure_ratio_opens_it_from_the_least_number_of_calls(
    failures: int, successes: int, state: C
) -> None:
    assert Desk().fail(0, failures, successes).breaker.state is state


def test_it_says_why_it_opened_and_until_when() -> None:
    desk = Desk().fail(5, failures=6, successes=4)
    assert desk.breaker.reason == "6 of 10 calls in 30 s failed"
    assert desk.breaker.changed_by == "circuit"
    assert (desk.breaker.opened_at, desk.breaker.retry_at) == (after(5), after(35))


def test_failures_that_left_the_window_do_not_count() -> None:
    desk = Desk().fail(0, failures=9).fail(30, failures=1, successes=9)
    assert desk.breaker.state is C.CLOSED
    assert desk.read(30).counts.failures == 1
    assert desk.read(61).counts.failures == 0


def test_failures_in_a_row_open_it_below_the_least_number_of_calls() -> None:
    desk = Desk(settings=with_settings(consecutive_failures=3)).fail(0, failures=2)
    desk.fail(1, failures=2, successes=1)
    assert desk.breaker.failures_in_a_row == 2
    desk.fail(2, failures=1)
    assert desk.breaker.reason == "3 failures in a row"


def test_a_success_ends_a_row_of_failures() -> None:
    desk = Desk(settings=with_settings(consecutive_failures=3)).fail(0, failures=2)
    desk.fail(1, failures=0, successes=1)
    assert desk.breaker.failures_in_a_row == 0


def test_a_report_without_calls_leaves_a_row_of_failures_as_it_is() -> None:
    desk = Desk(settings=with_settings(consecutive_failures=3)).fail(0, failures=2)
    desk.hear(desk.report(1, refused=1))
    assert desk.breaker.failures_in_a_row == 2


@pytest.mark.parametrize(("slow", "reason"), [(7, "new"), (8, "8 of 10 calls in 30 s took 2 s or longer")])
def test_slow_calls_open_it(slow: int, reason: str) -> None:
    desk = Desk(settings=with_settings(slow_call_seconds=2, slow_call_ratio=0.8))
    desk.hear(desk.report(0, successes=10, slow=slow))
    assert desk.breaker.reason == reason


def test_slow_calls_do_not_count_when_no_limit_is_set() -> None:
    desk = Desk()
    desk.hear(desk.report(0, successes=10, slow=10))
    assert desk.breaker.state is C.CLOSED


def test_a_circuit_that_is_not_enabled_never_trips() -> None:
    desk = Desk(settings=CircuitSettings(enabled=False)).fail(0, failures=100)
    assert desk.breaker.state is C.CLOSED


def test_a_disabled_circuit_counts_and_never_trips() -> None:
    desk = Desk().control(0, ManualControl.DISABLE).fail(1, failures=100)
    assert desk.breaker.state is C.DISABLED
    assert desk.breaker.window.totals(after(1)).failures == 100


def test_new_settings_keep_the_counts_of_the_old_window() -> None:
    desk = Desk().fail(0, failures=6)
    desk.settings = with_settings(window_seconds=60)
    desk.fail(20, failures=4)
    assert desk.breaker.state is C.OPEN


def test_breaks_double_with_each_failed_probe_up_to_the_longest() -> None:
    desk = tripped(with_settings(max_break_seconds=100))
    lengths, at = [], 0.0
    for _ in range(4):
        assert desk.breaker.retry_at is not None
        lengths.append((desk.breaker.retry_at - after(at)).total_seconds())
        at += lengths[-1]
        desk.ask(at)
        desk.conclude(at, CallHealth.FAILURE)
    assert lengths == [30, 60, 100, 100]


def test_the_first_break_after_a_recovery_is_short_again() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.FAILURE)
    desk.ask(91)
    desk.conclude(92, CallHealth.SUCCESS)
    desk.fail(93)
    assert desk.breaker.retry_at == after(123)


@pytest.mark.parametrize(("reopenings", "seconds"), [(0, 30), (1, 60), (4, 480), (5, 600), (1_025, 600)])
def test_the_break_is_computed_without_overflow(reopenings: int, seconds: float) -> None:
    assert CircuitSettings().break_seconds_after(reopenings) == seconds


def test_a_longest_break_below_the_first_one_does_not_shorten_it() -> None:
    assert with_settings(break_seconds=30, max_break_seconds=10).break_seconds_after(3) == 30


def test_a_break_ends_for_readers_though_nobody_wrote_it_down() -> None:
    desk = tripped()
    assert desk.read(29.9).state is C.OPEN
    assert desk.read(30).state is C.HALF_OPEN
    assert desk.breaker.state is C.OPEN


def test_time_does_not_run_backwards() -> None:
    desk = tripped()
    assert desk.read(30).state is C.HALF_OPEN
    desk.hear(desk.report(40, refused=1))
    desk.hear(desk.report(20, refused=1))
    assert desk.breaker.clock == after(40)
    assert desk.breaker.state is C.HALF_OPEN


def test_a_late_report_does_not_turn_the_clock_back() -> None:
    desk = Desk().fail(3_600)
    desk.hear(desk.report(40, failures=1))
    assert desk.breaker.clock == after(3_600)
