from dataclasses import replace

import pytest

from durable_retry.base.json_forms import union_from_json
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.calls import CallHealth, ProbeResult
from durable_retry.rules.circuit.messages import PermitAnswer, PermitMessage, view_of
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import Gone, ProbeRequest
from tests.support.builders import NOON, after
from tests.support.circuit import SETTINGS, Desk, tripped, with_settings
from tests.support.narrowing import of_type

C = CircuitState


def test_a_probe_is_granted_when_the_break_is_over() -> None:
    desk = tripped()
    assert desk.ask(30) == Permitted(epoch=3, lease_id="op-1:1", lease_expires_at=after(40))


def test_a_probe_that_succeeds_closes_it() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.SUCCESS)
    assert (desk.breaker.state, desk.breaker.reason) == (C.CLOSED, "1 probe got through")
    assert desk.breaker.opened_at is None


def test_a_probe_that_fails_opens_it_for_twice_as_long() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.FAILURE)
    assert (desk.breaker.state, desk.breaker.retry_at) == (C.OPEN, after(91))


def test_the_first_opening_is_kept_until_it_closes() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.FAILURE)
    assert (desk.breaker.first_opened_at, desk.breaker.opened_at) == (NOON, after(31))
    desk.control(40, ManualControl.OPEN)
    assert (desk.breaker.first_opened_at, desk.breaker.opened_at) == (NOON, after(40))
    desk.control(50, ManualControl.CLOSE)
    assert (desk.breaker.first_opened_at, desk.breaker.opened_at) == (None, None)


def test_the_last_error_is_that_of_the_latest_failed_call_until_it_closes() -> None:
    desk = Desk()
    desk.hear(replace(desk.report(0, failures=10), last_error="503: no backend"))
    desk.hear(replace(desk.report(1), last_error="ConnectTimeout"))
    desk.hear(desk.report(2))
    assert desk.breaker.last_error == "ConnectTimeout"
    desk.control(50, ManualControl.OPEN)
    assert desk.breaker.last_error == "ConnectTimeout"
    desk.control(60, ManualControl.CLOSE)
    assert desk.breaker.last_error is None


def test_a_circuit_that_is_held_open_by_hand_does_not_show_an_error_of_before() -> None:
    desk = Desk()
    desk.hear(replace(desk.report(0, failures=1, successes=9), last_error="503: no backend"))
    desk.control(50, ManualControl.OPEN)
    assert desk.breaker.last_error is None


def test_a_circuit_that_an_older_version_opened_keeps_that_opening() -> None:
    desk = tripped()
    desk.breaker = replace(desk.breaker, first_opened_at=None)
    desk.ask(30)
    desk.conclude(31, CallHealth.FAILURE)
    assert desk.breaker.first_opened_at == NOON


def test_a_probe_that_says_nothing_gives_its_lease_back() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.SILENT)
    assert desk.breaker.state is C.HALF_OPEN
    assert desk.read(31).probes_free == 1


def test_no_probe_is_granted_to_a_repetition_of_a_request_whose_probe_is_over() -> None:
    """A turn that was not committed asks again, and has the same lease."""
    desk = tripped()
    assert desk.ask(30) == desk.ask(32)
    desk.conclude(33, CallHealth.SILENT)
    request = ProbeRequest("op-1", 1, after(32), 10.0)
    desk.breaker, answer = PermitMessage(request, desk.settings).apply(desk.breaker, after(34))
    assert isinstance(answer, Refused)
    assert isinstance(desk.ask(35), Permitted)


def test_no_more_probes_than_allowed_are_in_flight() -> None:
    desk = tripped(with_settings(half_open_calls=2))
    answers = [desk.ask(30, f"op-{number}") for number in range(4)]
    assert [isinstance(answer, Permitted) for answer in answers] == [True, True, False, False]


def test_all_allowed_probes_must_succeed() -> None:
    desk = tripped(with_settings(half_open_calls=2))
    desk.ask(30, "op-1")
    desk.conclude(31, CallHealth.SUCCESS, "op-1")
    snapshot = desk.read(31)
    assert (snapshot.state, snapshot.probes_free) == (C.HALF_OPEN, 1)
    desk.ask(31, "op-2")
    assert desk.read(31).probes_free == 0
    desk.conclude(32, CallHealth.SUCCESS, "op-2")
    assert desk.breaker.state is C.CLOSED


@pytest.mark.shows("W10")
def test_the_lease_of_a_dead_owner_expires() -> None:
    desk = tripped()
    desk.ask(30, "op-1", lease_seconds=10)
    assert isinstance(desk.ask(39, "op-2"), Refused)
    assert isinstance(desk.ask(40, "op-2"), Permitted)


def test_the_end_of_an_expired_probe_leaves_the_next_lease_of_its_attempt() -> None:
    desk = tripped()
    first = of_type(Permitted, desk.ask(30, lease_seconds=10))
    assert isinstance(desk.ask(41), Permitted)
    late = ProbeResult("op-1:1", first.epoch, CallHealth.SILENT, first.lease_expires_at)
    desk.hear(desk.report(42, probes=(late,)))
    assert isinstance(desk.ask(43, "op-2"), Refused)


def test_a_result_after_its_lease_expired_does_not_count() -> None:
    desk = tripped()
    desk.ask(30, lease_seconds=10)
    desk.conclude(41, CallHealth.SUCCESS)
    assert desk.breaker.state is C.HALF_OPEN


@pytest.mark.parametrize("verdict", [CallHealth.SUCCESS, CallHealth.FAILURE])
def test_a_probe_of_an_older_epoch_changes_nothing(verdict: CallHealth) -> None:
    desk = tripped(with_settings(half_open_calls=2))
    desk.ask(30, "op-1", lease_seconds=300)
    desk.ask(30, "op-2", lease_seconds=300)
    desk.conclude(31, CallHealth.FAILURE, "op-1")
    before = desk.breaker
    desk.conclude(32, verdict, "op-2", epoch=3)
    assert (desk.breaker.state, desk.breaker.epoch) == (C.OPEN, before.epoch)
    desk.ask(91, "op-2", lease_seconds=300)
    desk.conclude(92, verdict, "op-2", epoch=3)
    assert desk.breaker.state is C.HALF_OPEN


@pytest.mark.parametrize(("failures", "successes"), [(0, 100), (100, 0)])
def test_calls_of_an_older_epoch_change_nothing(failures: int, successes: int) -> None:
    desk = tripped()
    desk.hear(desk.report(1, failures=failures, successes=successes, epoch=1))
    assert (desk.breaker.state, desk.breaker.epoch) == (C.OPEN, 2)
    desk.ask(30)
    desk.conclude(31, CallHealth.SUCCESS)
    desk.hear(desk.report(32, failures=failures, successes=successes, epoch=1))
    assert desk.breaker.state is C.CLOSED
    assert desk.breaker.window.everything().calls == 0


def test_a_request_that_finds_it_closed_goes_without_a_lease() -> None:
    assert Desk().ask(0) == Permitted(epoch=1)


def test_a_request_that_finds_it_open_gets_the_end_of_the_break() -> None:
    answer = of_type(Refused, tripped().ask(10))
    assert answer.base == after(30)
    assert after(30) <= answer.until < after(31)
    assert answer.reason == "the circuit is open: 10 of 10 calls in 30 s failed"


@pytest.mark.parametrize(("for_seconds", "base"), [(60, 60), (None, 605), (10_000, 605)])
def test_a_request_that_finds_it_held_open_comes_back_in_time(for_seconds: float | None, base: float) -> None:
    desk = Desk().control(0, ManualControl.OPEN, for_seconds)
    answer = of_type(Refused, desk.ask(5))
    assert answer.base == after(base)
    assert answer.reason == "the circuit is held open: drill"
    assert answer.stops_deadline is None


def test_a_hold_that_stops_deadlines_says_so_until_it_is_over() -> None:
    desk = Desk().control(0, ManualControl.OPEN, 60, stops_deadline=True)
    answers = [desk.ask(5)]
    desk.control(10, ManualControl.OPEN, 60)
    answers.append(desk.ask(15))
    assert [isinstance(each, Refused) and each.stops_deadline for each in answers] == [True, None]
    desk.control(20, ManualControl.OPEN, 10, stops_deadline=True)
    assert desk.breaker.holds_deadlines
    assert not desk.read(31).holds_deadlines


@pytest.mark.parametrize("desk", [Desk(), tripped()])
def test_a_request_that_finds_a_throttling_pause_waits_for_its_end(desk: Desk) -> None:
    desk.hear(desk.report(29, throttled_until=45))
    assert of_type(Refused, desk.ask(30)).base == after(45)
    assert isinstance(desk.ask(45), Permitted)


@pytest.mark.parametrize(("asked", "granted"), [(0, 1), (10, 10), (1e9, 3_600)])
def test_leases_are_neither_momentary_nor_endless(asked: float, granted: float) -> None:
    desk = tripped()
    answer = of_type(Permitted, desk.ask(30, lease_seconds=asked))
    assert answer.lease_expires_at == after(30 + granted)


@pytest.mark.parametrize("at", [0, 30])
def test_question_and_answer_travel_as_json(at: float) -> None:
    message = PermitMessage(ProbeRequest("op-1", 1, after(at), 10), SETTINGS)
    assert PermitMessage.from_json(message.to_json()) == message
    _, answer = message.apply(tripped().breaker, after(at))
    read = union_from_json(PermitAnswer, answer.to_json())
    assert type(read) is type(answer)
    if isinstance(answer, Refused) and isinstance(read, Refused):
        assert (read.base, read.waiting, read.reason) == (answer.base, 0, answer.reason)
        assert abs(read.until - answer.until).total_seconds() < 0.001
    else:
        assert read == answer


def test_who_leaves_before_the_report_that_it_waits_has_come_is_counted_out_all_the_same() -> None:
    desk = tripped()
    desk.breaker = Gone(was_waiting=True).apply(desk.breaker, after(1))
    assert (desk.breaker.remaining_waiting(after(1)), desk.read(1).waiting) == (0, 0)
    desk.hear(desk.report(2, refused=3))
    assert (desk.breaker.remaining_waiting(after(2)), desk.read(2).waiting) == (2, 2)


def test_a_probe_that_is_not_made_leaves_its_permit_to_others() -> None:
    desk = tripped()
    permit = of_type(Permitted, desk.ask(30))
    other = replace(permit, lease_expires_at=after(50))
    desk.breaker = Gone(permit=other).apply(desk.breaker, after(31))
    of_type(Refused, desk.ask(31, "op-2"))
    desk.breaker = Gone.from_json(Gone(permit=permit).to_json()).apply(desk.breaker, after(32))
    of_type(Permitted, desk.ask(32, "op-2"))


def test_the_token_of_a_promised_retry_that_is_not_made_comes_back_as_far_as_the_budget_is_in_debt() -> None:
    desk = Desk()
    for tokens, left in ((-2.5, -1.5), (-0.5, 0.0), (0.5, 0.5)):
        breaker = replace(desk.breaker, budget=replace(desk.breaker.budget, tokens=tokens))
        assert Gone(was_promised=True).apply(breaker, NOON).budget.tokens == left
        assert Gone().apply(breaker, NOON).budget.tokens == tokens


def refused_at_noon(**settings: float) -> Desk:
    desk = Desk(settings=with_settings(**settings)).refuse(0, 3)
    return desk


def test_the_first_few_refusals_of_the_credential_open_it_and_say_so() -> None:
    desk = Desk().refuse(0, 2)
    assert desk.breaker.state is C.CLOSED
    desk.refuse(1)
    breaker = desk.breaker
    assert (breaker.state, breaker.reason) == (C.OPEN, "the credential is refused (401)")
    assert (breaker.unauthorized_by, breaker.retry_at) == ("401", after(31))


def test_a_success_between_shows_that_the_credential_is_accepted_and_another_failure_does_not() -> None:
    desk = Desk().refuse(0, 2).refuse(1, 2, successes=1).fail(2, failures=1)
    assert desk.read(2).state is C.CLOSED
    desk.refuse(3)
    assert desk.read(3).state is C.OPEN


def test_refusals_of_the_credential_open_nothing_where_that_is_off() -> None:
    desk = Desk(settings=with_settings(unauthorized_calls=0)).refuse(0, 9)
    assert desk.breaker.state is C.CLOSED
    assert not CircuitSettings(enabled=False).opens_without_credential


def test_a_probe_whose_credential_is_refused_fails_and_gives_the_reason_whatever_opened_it() -> None:
    desk = tripped()
    desk.ask(30)
    desk.conclude(31, CallHealth.UNAUTHORIZED)
    breaker = desk.breaker
    assert (breaker.state, breaker.retry_at) == (C.OPEN, after(91))
    assert (breaker.reason, breaker.unauthorized_by) == ("the credential is refused (401)", "401")


def test_the_reason_lasts_until_something_else_keeps_it_open_or_it_closes() -> None:
    desk = refused_at_noon()
    assert desk.read(30).state is C.HALF_OPEN
    desk.ask(30)
    assert view_of("payments", desk.breaker, after(30), SETTINGS).credential_refused_by == "401"
    desk.conclude(31, CallHealth.FAILURE)
    assert (desk.breaker.reason, desk.breaker.unauthorized_by) == ("a probe failed", None)
    accepted = refused_at_noon()
    accepted.ask(30)
    accepted.conclude(31, CallHealth.SUCCESS)
    assert (accepted.breaker.state, accepted.breaker.unauthorized_by) == (C.CLOSED, None)
    held = refused_at_noon()
    held.control(5, ManualControl.OPEN)
    assert held.breaker.unauthorized_by is None


def test_who_waits_and_who_looks_learns_that_the_credential_is_refused() -> None:
    desk = refused_at_noon()
    assert desk.read(1).reason == "the credential is refused (401)"
    assert view_of("payments", desk.breaker, after(1), SETTINGS).credential_refused_by == "401"
    assert "credential_refused_by" not in view_of("payments", Desk().breaker, after(1), SETTINGS).to_json()
