from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from durable_retry.rules.circuit.calls import CallEnd, CallHealth, Counts, ProbeResult, Report
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.snapshot import Permitted, TakenHere
from durable_retry.rules.circuit.states import CircuitState
from tests.support.builders import after
from tests.support.circuit import SETTINGS, Desk, tripped, with_settings

PROBE = Permitted(3, lease_id="op-1:1", lease_expires_at=after(10))


def buffer(slow_call_seconds: float = 0) -> ReportBuffer:
    saved = ReportBuffer("w1", with_settings(slow_call_seconds=slow_call_seconds))
    saved.see(Desk().read(0))
    return saved


def succeed(saved: ReportBuffer, at: float, times: int = 1, epoch: int = 1) -> None:
    for _ in range(times):
        saved.ended(Permitted(epoch), CallEnd(CallHealth.SUCCESS, 0.1), after(at))


def fail(saved: ReportBuffer, at: float, epoch: int = 1) -> None:
    saved.ended(Permitted(epoch), CallEnd(CallHealth.FAILURE, 0.1), after(at))


def heard_at_noon() -> tuple[ReportBuffer, Desk]:
    saved, desk = buffer(), Desk()
    desk.hear(replace(desk.report(0, successes=1), reporter="w1"))
    saved.see(desk.read(0.1, "w1"))
    return saved, desk


def near_a_trip() -> ReportBuffer:
    desk = Desk().fail(0, failures=5, successes=9)
    saved = buffer()
    saved.see(desk.read(0.2))
    return saved


def test_nothing_to_report_is_never_due() -> None:
    assert buffer().due_at() is None


def test_a_few_successes_are_not_worth_a_message() -> None:
    saved = buffer()
    succeed(saved, 0, times=19)
    assert saved.due_at() is None


def test_twenty_successes_go_once_in_a_tenth_of_the_window() -> None:
    saved = buffer()
    succeed(saved, 0, times=20)
    saved.take(after(0))
    succeed(saved, 0.5, times=20)
    assert saved.due_at() == after(3)


def test_a_lone_failure_goes_within_a_second_with_the_successes_so_far() -> None:
    saved = buffer()
    succeed(saved, 1, times=7)
    fail(saved, 4)
    fail(saved, 4.5)
    assert saved.due_at() == after(5)
    assert saved.take(after(5)).window.everything() == Counts(calls=9, failures=2)
    assert saved.due_at() is None


def test_a_failure_near_a_trip_goes_at_once_with_the_successes_so_far() -> None:
    saved = near_a_trip()
    succeed(saved, 1, times=7)
    fail(saved, 4)
    assert saved.due_at() == after(1)
    report = saved.take(after(4))
    assert report.window.everything() == Counts(calls=8, failures=1)
    assert report.trailing_failures == 1
    assert report.epoch == 1


def test_failures_near_a_trip_by_what_other_workers_hold_back_go_at_once() -> None:
    desk = Desk()
    for number in range(3):
        desk.hear(desk.report(0, successes=1, reporter=f"other-{number}"))
    saved = buffer()
    saved.see(desk.read(0.2))
    fail(saved, 0.3)
    assert saved.due_at() == after(0.3)


@pytest.mark.parametrize(("in_a_row", "due"), [(2, 0.3), (3, 1.3)])
def test_a_failure_goes_at_once_where_as_many_again_in_a_row_open_the_circuit(
    in_a_row: int, due: float
) -> None:
    saved = ReportBuffer("w1", with_settings(consecutive_failures=in_a_row))
    fail(saved, 0.3)
    assert saved.due_at() == after(due)


def test_a_refused_credential_goes_at_once() -> None:
    saved = buffer()
    saved.ended(Permitted(1), CallEnd(CallHealth.UNAUTHORIZED, 0.1, failure="401"), after(0.3))
    assert saved.due_at() == after(0.3)


@pytest.mark.parametrize(("minimum_calls", "due"), [(2, 0.3), (10, 1.3)])
def test_a_slow_call_goes_as_soon_as_a_failure(minimum_calls: int, due: float) -> None:
    saved = ReportBuffer("w1", with_settings(slow_call_seconds=2, minimum_calls=minimum_calls))
    saved.ended(Permitted(1), CallEnd(CallHealth.SUCCESS, 2.0), after(0.3))
    assert saved.due_at() == after(due)


def test_once_a_slow_call_is_reported_the_copy_of_the_circuit_is_read_anew() -> None:
    saved = buffer(slow_call_seconds=2)
    snapshot = Desk().read(0)
    saved.ended(Permitted(1), CallEnd(CallHealth.SUCCESS, 2.0), after(0.3))
    assert saved.is_fresh(snapshot, after(0.3))
    saved.take(after(0.3))
    assert not saved.is_fresh(snapshot, after(0.3))


def test_failures_of_the_next_tenth_of_a_second_go_together() -> None:
    saved = near_a_trip()
    fail(saved, 0)
    saved.take(after(0))
    for _ in range(50):
        fail(saved, 0.02)
    assert saved.due_at() == after(0.1)
    assert saved.take(after(0.1)).window.everything().failures == 50


def test_near_a_trip_successes_go_within_a_second() -> None:
    saved = near_a_trip()
    saved.take(after(0))
    succeed(saved, 0.3)
    assert saved.due_at() == after(1.3)


def test_near_a_trip_first_attempts_go_within_a_second() -> None:
    saved = near_a_trip()
    saved.started(1, after(0.3))
    assert saved.due_at() == after(1.3)


def test_a_worker_with_attempts_in_its_share_is_heard_within_half_of_the_window() -> None:
    """The others share out what is a worker's once it was silent for all of it."""
    saved, window = buffer(), SETTINGS.window_seconds
    saved.holds_share = lambda: True
    assert saved.due_at() is None, "nobody knows of it yet, so it has no share"
    saved.take(after(0))
    assert saved.due_at() == after(window / 2)
    succeed(saved, 1, times=20)
    assert saved.due_at() == after(window / 10)
    saved.take(after(3))
    saved.holds_share = lambda: False
    assert saved.due_at() is None


def test_calls_keep_the_times_at_which_they_ended() -> None:
    saved = buffer()
    succeed(saved, 0, times=3)
    succeed(saved, 10, times=4)
    window = saved.take(after(29)).window
    assert window.totals(after(8.9)).calls == 3
    assert window.totals(after(29)).calls == 7


def test_calls_that_left_the_window_are_not_reported() -> None:
    saved = buffer()
    succeed(saved, 0, times=3)
    assert saved.take(after(60)).window.everything().calls == 0


def test_a_success_ends_the_row_of_failures() -> None:
    saved = buffer()
    fail(saved, 0)
    succeed(saved, 0)
    fail(saved, 0)
    assert saved.take(after(0)).trailing_failures == 1


def test_calls_of_an_epoch_that_is_over_are_worth_no_message() -> None:
    saved = buffer()
    fail(saved, 0.5)
    saved.see(tripped().read(1))
    fail(saved, 1.5, epoch=1)
    assert saved.take(after(2)).window.everything().calls == 0
    fail(saved, 2.5, epoch=2)
    assert saved.take(after(3)).epoch == 2


def test_a_permit_of_a_newer_epoch_than_the_snapshot_begins_that_epoch() -> None:
    saved = buffer()
    succeed(saved, 0)
    succeed(saved, 1, epoch=4)
    report = saved.take(after(1))
    assert (report.epoch, report.window.everything().calls) == (4, 1)


def test_a_circuit_that_began_anew_is_followed_back() -> None:
    saved = buffer()
    succeed(saved, 0, epoch=9)
    saved.see(Desk().read(1))
    succeed(saved, 1, epoch=1)
    assert saved.take(after(1)).window.everything().calls == 1


def test_an_older_snapshot_is_ignored() -> None:
    saved = buffer()
    saved.see(tripped().read(2))
    saved.see(Desk().read(1))
    assert saved.epoch == 2


@pytest.mark.parametrize(("duration_seconds", "slow"), [(1.9, 0), (2.0, 1)])
def test_slow_calls_are_counted_by_their_duration(duration_seconds: float, slow: int) -> None:
    saved = buffer(slow_call_seconds=2)
    saved.ended(Permitted(1), CallEnd(CallHealth.SUCCESS, duration_seconds), after(0))
    assert saved.take(after(0)).window.everything().slow == slow


@pytest.mark.parametrize(
    ("verdict", "duration_seconds", "expected"),
    [
        (CallHealth.SUCCESS, 0.1, CallHealth.SUCCESS),
        (CallHealth.SUCCESS, 2.0, CallHealth.FAILURE),
        (CallHealth.FAILURE, 0.1, CallHealth.FAILURE),
        (CallHealth.SILENT, 2.0, CallHealth.SILENT),
    ],
)
def test_the_end_of_a_probe_is_reported_at_once(
    verdict: CallHealth, duration_seconds: float, expected: CallHealth
) -> None:
    saved = buffer(slow_call_seconds=2)
    saved.take(after(0))
    saved.ended(PROBE, CallEnd(verdict, duration_seconds), after(0.01))
    assert saved.due_at() == after(0.01)
    report = saved.take(after(0.01))
    assert report.probes == (ProbeResult("op-1:1", 3, expected, after(10)),)
    assert report.window.everything().calls == 0


def test_throttling_is_reported_at_once_and_the_longest_counts() -> None:
    saved = buffer()
    saved.take(after(0))
    for until in (60, 90, 30):
        saved.ended(Permitted(1), CallEnd(throttled_until=after(until)), after(0.01))
    assert saved.due_at() == after(0.01)
    report = saved.take(after(0.01))
    assert report.throttled_until == after(90)
    assert report.window.everything().calls == 0


@pytest.mark.parametrize("what", ["refused", "postponed", "retried"])
def test_waiting_and_retrying_are_reported_within_a_second(what: str) -> None:
    saved = buffer()  # a newcomer, whose retries the others must hear of at once
    saved.take(after(0))
    at = after(0.2)
    match what:
        case "refused":
            saved.refused(at)
        case "postponed":
            saved.postponed(at)
        case _:
            saved.started(2, at)
    assert saved.due_at() == after(1)


def test_retries_of_a_worker_that_the_others_know_of_are_gathered_for_a_second() -> None:
    saved, _ = heard_at_noon()
    saved.started(2, after(1.5))
    saved.postponed(after(1.7))
    assert saved.due_at() == after(2.5)


def test_a_worker_is_new_for_a_second_after_it_was_heard_and_again_after_a_silence() -> None:
    saved, desk = heard_at_noon()
    assert saved.taken_as_newcomer(after(0.9)) == 0
    for second in (1, 2, 3):
        saved.started(2, after(second))
    assert saved.taken_as_newcomer(after(3)) is None
    saved.see(desk.read(9, "w1"))
    assert saved.taken_as_newcomer(after(9)) == 0
    saved.started(2, after(9))
    assert saved.taken_as_newcomer(after(9)) == 1


def test_a_new_worker_whose_retries_ask_again_reports_no_sooner_than_that_can_be_of_use() -> None:
    saved = buffer()
    saved.asks_again(after(0))
    assert saved.due_at() is not None, "the others must hear of it"
    saved.take(after(0))
    saved.asks_again(after(1.9))
    assert saved.due_at() is None, "it would be counted since then alone"
    saved.asks_again(after(2))
    assert saved.due_at() == after(2), "the report may be lost"


def test_what_a_worker_took_while_it_was_new_counts_until_it_is_heard_and_silent_again() -> None:
    saved, desk = buffer(), Desk()
    saved.started(2, after(0))
    saved.see(desk.read(1, "w1"))
    assert saved.taken_as_newcomer(after(1)) == 1
    desk.hear(replace(desk.report(2), reporter="w1"))
    for second in (2.5, 8):
        saved.see(desk.read(second, "w1"))
    assert saved.taken_as_newcomer(after(8)) == 0


def test_retries_that_ask_again_are_counted_until_the_next_copy() -> None:
    saved, desk = heard_at_noon()
    saved.asks_again(after(2))
    assert saved.here.asking_again == 1
    assert saved.due_at() is None
    saved.see(desk.read(3, "w1"))
    assert saved.here.asking_again == 0


def test_attempts_are_counted_for_the_budget() -> None:
    saved = buffer()
    at = after(0)
    saved.started(1, at)
    saved.started(2, at)
    saved.postponed(at)
    saved.started(3, at, promised=True)
    report = saved.take(at)
    assert (report.first_attempts, report.retries) == (1, 2)


def test_what_happened_here_counts_until_the_next_snapshot() -> None:
    saved = buffer()
    saved.refused(after(0))
    saved.asked()
    saved.started(2, after(0))
    saved.take(after(0.1))
    assert saved.here == TakenHere(retries=1, asked=1, refused=1)
    saved.see(Desk().read(1))
    assert saved.here == TakenHere()


def test_reports_are_numbered() -> None:
    saved = buffer()
    assert [saved.take(after(second)).sequence for second in range(3)] == [1, 2, 3]


def test_a_report_travels_as_json() -> None:
    saved = buffer()
    fail(saved, 0)
    saved.refused(after(0))
    saved.ended(PROBE, CallEnd(throttled_until=after(60)), after(0))
    report = saved.take(after(0))
    assert Report.from_json(report.to_json()) == report


def messages(calls_per_second: float, seconds: int, every_nth_fails: int = 0) -> tuple[int, int]:
    """Calls and messages of one worker."""
    saved, sent, total = buffer(), 0, int(calls_per_second * seconds)
    step = timedelta(seconds=1 / calls_per_second)
    now: datetime = after(0)
    for number in range(1, total + 1):
        now += step
        failed = every_nth_fails and number % every_nth_fails == 0
        verdict = CallHealth.FAILURE if failed else CallHealth.SUCCESS
        saved.ended(Permitted(1), CallEnd(verdict, 0.1), now)
        due = saved.due_at()
        if due is not None and due <= now:
            saved.take(now)
            sent += 1
    return total, sent


@pytest.mark.parametrize("calls_per_second", [0.1, 1, 5, 100, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_healthy_dependency_costs_at_most_one_message_per_twenty_calls(calls_per_second: float) -> None:
    total, sent = messages(calls_per_second, 60)
    assert sent <= total / 20
    assert sent <= 60 / (SETTINGS.window_seconds / 10) + 1


def test_a_dead_dependency_costs_at_most_ten_messages_a_second_per_worker() -> None:
    total, sent = messages(1_000, 10, every_nth_fails=1)
    assert total == 10_000
    assert 90 <= sent <= 101


@pytest.mark.shows("W11")
def test_a_circuit_opens_although_reports_were_lost() -> None:
    """A worker that dies in an entity batch takes its signals with it; the calls after it fail, too."""
    desk = Desk()
    for second in range(20):
        report = desk.report(second, failures=1)
        if second % 2:  # The others are dropped with their batch.
            desk.hear(report)
    assert desk.breaker.state is CircuitState.OPEN


def test_a_report_says_what_failed_last_and_the_next_one_starts_anew() -> None:
    buffer = ReportBuffer("w1", SETTINGS)
    for health, failure in (
        (CallHealth.FAILURE, "transient: status 503"),
        (CallHealth.SUCCESS, "malformed: status 400"),
        (CallHealth.SUCCESS, None),
        (CallHealth.FAILURE, None),
    ):
        buffer.ended(Permitted(0), CallEnd(health, 0.1, failure=failure), after(0))
    assert buffer.take(after(1)).last_error == "transient: status 503"
    assert buffer.take(after(2)).to_json().get("last_error", "absent") == "absent"


def refuse(saved: ReportBuffer, at: float, failure: str = "401: revoked") -> None:
    saved.ended(Permitted(1), CallEnd(CallHealth.UNAUTHORIZED, 0.1, failure=failure), after(at))


def test_a_refusal_of_the_credential_goes_at_once_as_a_failure_with_what_refused_it() -> None:
    saved = buffer()
    refuse(saved, 0)
    succeed(saved, 1)
    refuse(saved, 2, "InvalidPassword: no")
    fail(saved, 3)
    refuse(saved, 4, "407")
    assert saved.due_at() is not None
    report = saved.take(after(4))
    assert report.window.everything() == Counts(calls=5, failures=4)
    assert (report.trailing_failures, report.unauthorized, report.unauthorized_by) == (3, 2, "407")
    assert report.last_error == "407"
    nothing = saved.take(after(5))
    assert (nothing.unauthorized, nothing.unauthorized_by, nothing.last_error) == (None, None, None)


def test_what_is_refused_by_an_exception_has_its_name() -> None:
    saved = buffer()
    refuse(saved, 0, "InvalidPassword: no")
    assert saved.take(after(0)).unauthorized_by == "InvalidPassword"
