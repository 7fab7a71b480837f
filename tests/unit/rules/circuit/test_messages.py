import json

import pytest

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth, call_health
from durable_retry.rules.circuit.messages import PermitMessage, ReportMessage, view_of
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ManualAction, ProbeRequest
from tests.support.builders import after
from tests.support.circuit import BUDGET, SETTINGS, Desk, tripped, with_settings
from tests.support.narrowing import existing

C = CircuitState


def test_a_hold_by_hand_ends_with_probes() -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds=600)
    assert desk.read(599).state is C.FORCED_OPEN
    assert desk.read(600).state is C.HALF_OPEN
    desk.ask(600)
    desk.conclude(601, CallHealth.SUCCESS)
    assert desk.breaker.state is C.CLOSED


def test_a_change_that_a_later_one_overtook_is_recorded_and_undoes_nothing() -> None:
    desk = Desk().control(15, ManualControl.CLOSE, received_at=15)
    desk.control(0, ManualControl.OPEN, received_at=16)
    assert desk.read(20).state is C.CLOSED
    assert [entry.control for entry in desk.breaker.audit.entries] == [
        ManualControl.CLOSE,
        ManualControl.OPEN,
    ]


def test_between_clocks_that_differ_by_more_than_messages_are_late_the_arrival_decides() -> None:
    desk = Desk().control(0, ManualControl.CLOSE, received_at=0)
    desk.control(-3_600, ManualControl.OPEN, received_at=1)
    assert desk.read(2).state is C.FORCED_OPEN


def test_a_change_from_a_clock_that_is_ahead_holds_up_no_later_one() -> None:
    desk = Desk().control(100, ManualControl.CLOSE, received_at=0)
    desk.control(1, ManualControl.OPEN, received_at=1)
    assert desk.read(2).state is C.FORCED_OPEN


def test_a_change_of_an_epoch_that_is_over_changes_nothing() -> None:
    desk = Desk()
    seen = desk.breaker.epoch
    desk.control(0, ManualControl.OPEN, epoch=seen)
    desk.control(1, ManualControl.CLOSE, epoch=seen)
    assert desk.read(1).state is C.FORCED_OPEN
    desk.control(2, ManualControl.CLOSE, epoch=desk.breaker.epoch)
    assert desk.read(2).state is C.CLOSED


def test_a_hold_lasts_as_long_as_asked_although_the_clock_of_who_asks_is_behind() -> None:
    desk = Desk().control(-2, ManualControl.OPEN, for_seconds=20, received_at=0)
    assert desk.read(19.9).state is C.FORCED_OPEN
    assert desk.read(20).state is C.HALF_OPEN


def test_the_same_hold_that_arrives_twice_is_not_made_longer() -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds=20, received_at=0)
    desk.control(0, ManualControl.OPEN, for_seconds=20, received_at=10)
    assert desk.read(20).state is C.HALF_OPEN


def test_a_change_leaves_out_what_was_not_said() -> None:
    action = ManualAction(ManualControl.OPEN, after(0), "ana", "drill", 60)
    assert set(action.to_json()) == {"control", "at", "by", "reason", "for_seconds"}
    assert ManualAction.from_json(action.to_json()) == action


def test_a_hold_without_an_end_stays() -> None:
    assert Desk().control(0, ManualControl.OPEN).read(1e8).state is C.FORCED_OPEN


def test_disabling_ends_closed_with_an_empty_window() -> None:
    desk = Desk().control(0, ManualControl.DISABLE, for_seconds=60).fail(59, failures=50)
    assert desk.read(60).state is C.CLOSED
    assert desk.read(60).counts.calls == 0


def test_closing_by_hand_ends_a_break_and_forgets_the_failures() -> None:
    desk = tripped().control(1, ManualControl.CLOSE, for_seconds=600)
    assert desk.breaker.state is C.CLOSED
    assert desk.breaker.expires_at is None
    desk.fail(2, failures=9)
    assert desk.breaker.state is C.CLOSED


def test_closing_by_hand_leaves_a_throttling_pause() -> None:
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=60))
    desk.control(1, ManualControl.CLOSE)
    assert desk.read(1).throttled_until == after(60)


def test_resetting_ends_a_throttling_pause_and_releases_in_turn() -> None:
    desk = Desk()
    desk.hear(desk.report(0, throttled_until=60, refused=9))
    desk.control(1, ManualControl.RESET)
    snapshot = desk.read(1)
    assert (snapshot.throttled_until, snapshot.reopened_at) == (None, after(1))


def test_resetting_a_circuit_that_held_nobody_back_releases_nobody() -> None:
    assert Desk().control(1, ManualControl.RESET).read(1).reopened_at is None


def test_a_hold_that_was_over_before_its_message_came_ends_at_once() -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds=20, received_at=100)
    assert desk.breaker.state is C.HALF_OPEN
    assert len(desk.breaker.audit.entries) == 1


def test_the_same_message_is_done_once() -> None:
    desk = Desk().control(0, ManualControl.OPEN).control(1, ManualControl.CLOSE)
    desk.control(0, ManualControl.OPEN)
    assert desk.breaker.state is C.CLOSED
    assert len(desk.breaker.audit.entries) == 2


def test_the_trail_keeps_the_last_fifty() -> None:
    desk = Desk()
    for second in range(60):
        desk.control(second, ManualControl.CLOSE)
    assert [entry.at for entry in desk.breaker.audit.entries] == [after(s) for s in range(10, 60)]


def test_long_reasons_are_cut_and_push_old_entries_out() -> None:
    desk = Desk()
    for second in range(60):
        desk.control(second, ManualControl.CLOSE, reason="\N{SNOWMAN}" * 1_000)
    entries = desk.breaker.audit.entries
    assert len(entries[0].reason) == 200
    assert len(json.dumps([entry.to_json() for entry in entries])) <= 3_000
    assert entries[-1].at == after(59)


def test_a_report_message_travels_with_its_settings() -> None:
    message = ReportMessage(Desk().report(0, failures=1), SETTINGS, BUDGET)
    assert ReportMessage.from_json(json.loads(json.dumps(message.to_json()))) == message


def test_the_view_of_a_new_circuit() -> None:
    assert view_of("payments", Breaker(), after(0), SETTINGS).to_json() == {
        "dependency": "payments",
        "state": "closed",
        "calls": 0,
        "failures": 0,
        "failure_ratio": None,
        "slow_calls": 0,
        "window": {
            "bucket_seconds": 3.0,
            "buckets": [
                {"from": to_rfc3339(after(second)), "calls": 0, "failures": 0, "slow_calls": 0}
                for second in range(-27, 3, 3)
            ],
        },
        "tripped_by": None,
        "opened_at": None,
        "first_opened_at": None,
        "failed_probes": 0,
        "last_error": None,
        "retry_at": None,
        "throttled_until": None,
        "throttled_by": None,
        "reason": "new",
        "changed_by": "circuit",
        "epoch": 1,
        "waiting": 0,
        "expires_at": None,
        "audit": [],
    }


def test_the_view_of_a_working_circuit() -> None:
    desk = Desk(settings=with_settings(slow_call_seconds=2))
    desk.hear(desk.report(0, failures=1, successes=3, slow=2, throttled_until=60))
    view = view_of("payments", desk.breaker, after(1), desk.settings).to_json()
    counted = {name: view[name] for name in ("calls", "failures", "failure_ratio", "slow_calls")}
    assert counted == {"calls": 4, "failures": 1, "failure_ratio": 0.25, "slow_calls": 2}
    assert view["throttled_until"] == "2026-11-21T12:01:00Z"
    newest = {"from": to_rfc3339(after(0)), "calls": 4, "failures": 1, "slow_calls": 2}
    assert view["window"]["buckets"][-1] == newest
    assert sum(each["calls"] for each in view["window"]["buckets"]) == view["calls"]


def test_the_view_of_an_open_circuit_keeps_the_window_that_opened_it() -> None:
    breaker = tripped().breaker
    view = view_of("payments", Breaker.from_json(breaker.to_json()), after(1), SETTINGS).to_json()
    assert view["calls"] == 0  # nothing of the old epoch counts
    before = view["tripped_by"]["buckets"]
    assert sum(each["failures"] for each in before) >= SETTINGS.minimum_calls * SETTINGS.failure_ratio


def test_a_circuit_that_was_stored_without_the_window_that_opened_it_is_read() -> None:
    stored = tripped().breaker.to_json()
    del stored["tripped_by"]
    read = Breaker.from_json(stored)
    assert read.state is C.OPEN
    assert view_of("payments", read, after(1), SETTINGS).to_json()["tripped_by"] is None


def test_a_failed_probe_leaves_the_window_that_opened_the_circuit() -> None:
    desk = tripped()
    before = desk.breaker.tripped_by
    desk.ask(31)
    desk.conclude(32, CallHealth.FAILURE)
    assert desk.breaker.state is C.OPEN
    assert desk.breaker.tripped_by == before


def test_the_view_of_an_open_circuit() -> None:
    view = view_of("payments", tripped().breaker, after(1), SETTINGS).to_json()
    assert (view["state"], view["opened_at"], view["retry_at"]) == (
        "open",
        "2026-11-21T12:00:00Z",
        "2026-11-21T12:00:30Z",
    )
    later = view_of("payments", tripped().breaker, after(31), SETTINGS).to_json()
    assert (later["state"], later["retry_at"]) == ("half_open", None)


def test_the_view_of_a_circuit_held_by_hand() -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds=60, reason="maintenance")
    view = view_of("payments", desk.breaker, after(1), SETTINGS).to_json()
    assert (view["state"], view["retry_at"], view["expires_at"]) == (
        "forced_open",
        "2026-11-21T12:01:00Z",
        "2026-11-21T12:01:00Z",
    )
    assert (view["reason"], view["changed_by"]) == ("maintenance", "ana")
    assert view["audit"] == [
        {
            "at": "2026-11-21T12:00:00Z",
            "action": "open",
            "by": "ana",
            "reason": "maintenance",
            "until": "2026-11-21T12:01:00Z",
        }
    ]


def test_the_view_of_a_circuit_that_is_switched_off() -> None:
    view = view_of("payments", Breaker(), after(0), CircuitSettings(enabled=False)).to_json()
    assert (view["state"], view["changed_by"]) == ("disabled", "settings")


def full_house() -> Desk:
    """The largest state that the limits allow with the largest sensible settings."""
    desk = Desk(settings=with_settings(half_open_calls=20))
    for second in range(60):
        desk.control(second, ManualControl.CLOSE, reason="x" * 300)
    for number in range(60):
        name = f"{number:032d}"
        for _ in range(3):
            desk.hear(desk.report(60 + number / 2, successes=1_000, reporter=name))
    desk.fail(95, failures=200_000)
    for number in range(20):
        request = ProbeRequest(f"op-{number:040d}", 99, after(130), 300)
        desk.breaker, _ = PermitMessage(request, desk.settings).apply(desk.breaker, after(130))
    return desk


def test_the_state_stays_below_eight_kilobytes() -> None:
    breaker = full_house().breaker
    assert len(breaker.leases) == 20
    assert len(json.dumps(breaker.to_json())) < 8_000


@pytest.mark.parametrize("breaker", [Breaker(), full_house().breaker, tripped().breaker])
def test_the_state_travels_as_json(breaker: Breaker) -> None:
    assert Breaker.from_json(json.loads(json.dumps(breaker.to_json()))) == breaker


def test_the_state_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match=r"version: .*: 2"):
        Breaker.from_json({**Breaker().to_json(), "version": 2})


def test_a_report_that_arrives_twice_counts_once() -> None:
    desk = Desk()
    report = desk.report(0, failures=6)
    desk.hear(report)
    desk.hear(report)
    assert desk.breaker.window.everything().calls == 6


def test_a_report_that_was_overtaken_counts() -> None:
    desk = Desk()
    first, second = desk.report(0, failures=1), desk.report(1, failures=1)
    for report in (second, first, first, second):
        desk.hear(report)
    assert desk.breaker.window.everything().calls == 2


def test_a_report_that_was_overtaken_by_very_many_does_not_count() -> None:
    desk = Desk()
    reports = [desk.report(0, successes=1) for _ in range(40)]
    for report in reversed(reports):
        desk.hear(report)
    assert desk.breaker.window.everything().calls == 32


def test_two_workers_with_the_same_numbers_both_count() -> None:
    desk = Desk()
    report = desk.report(0, failures=1)
    desk.hear(report)
    desk.sequence = 0
    desk.hear(desk.report(0, failures=1, reporter="w2"))
    assert desk.breaker.window.everything().calls == 2
    assert existing(desk.read(1).budget).reporters == 2


@pytest.mark.parametrize(
    ("category", "status_code", "verdict"),
    [
        (None, 200, CallHealth.SUCCESS),
        (Category.TRANSIENT, 503, CallHealth.FAILURE),
        (Category.TRANSIENT, None, CallHealth.FAILURE),
        (Category.TRANSIENT, 408, CallHealth.FAILURE),
        (Category.TRANSIENT, 404, CallHealth.SUCCESS),
        (Category.TRANSIENT, 409, CallHealth.SUCCESS),
        (Category.AMBIGUOUS, 499, CallHealth.FAILURE),
        (Category.THROTTLED, 429, CallHealth.SILENT),
        (Category.AMBIGUOUS, None, CallHealth.FAILURE),
        (Category.AMBIGUOUS, 500, CallHealth.FAILURE),
        (Category.AMBIGUOUS, 408, CallHealth.FAILURE),
        (Category.AMBIGUOUS, 409, CallHealth.SUCCESS),
        (Category.MALFORMED, 302, CallHealth.SUCCESS),
        (Category.MALFORMED, 400, CallHealth.SUCCESS),
        (Category.MALFORMED, None, CallHealth.SUCCESS),
        (Category.MALFORMED, 501, CallHealth.SUCCESS),
        (Category.MALFORMED, 503, CallHealth.FAILURE),
        (Category.MALFORMED, 499, CallHealth.FAILURE),
        (Category.UNAUTHORIZED, 401, CallHealth.SUCCESS),
        (Category.NOT_FOUND, 404, CallHealth.SUCCESS),
        (Category.BUSINESS_RULE, 409, CallHealth.SUCCESS),
        (Category.CIRCUIT_OPEN, None, CallHealth.SILENT),
        (Category.DEADLINE_EXCEEDED, None, CallHealth.SILENT),
    ],
)
def test_only_what_speaks_of_the_dependency_counts(
    category: Category | None, status_code: int | None, verdict: CallHealth
) -> None:
    assert call_health(category, status_code) is verdict


@pytest.mark.parametrize("status_code", [202, 401, 404, 409, 503, None])
@pytest.mark.parametrize("of_key", [True, False])
def test_what_classify_calls_transient_is_a_failure(status_code: int | None, *, of_key: bool) -> None:
    health = call_health(Category.TRANSIENT, status_code, of_key=of_key, is_ruled=True)
    assert health is CallHealth.FAILURE
    assert call_health(Category.NOT_FOUND, 404, of_key=of_key, is_ruled=True) is CallHealth.SUCCESS
    assert call_health(Category.MALFORMED, 503, of_key=of_key, is_ruled=True) is CallHealth.SUCCESS


def test_every_category_has_a_verdict() -> None:
    assert all(call_health(category, None) in set(CallHealth) for category in Category)
