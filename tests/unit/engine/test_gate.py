from datetime import timedelta

import pytest

from engine.budget import BudgetPostponed
from engine.circuit import CircuitSettings, PermitMessage, Permitted, Refused
from engine.decide import DeadLetter, RetryAt, WaitForCircuit, decide, postpone
from engine.gate import (
    NeedsProbe,
    Stop,
    Ticket,
    hold_of,
    probe_message,
    stop_from_json,
    stop_to_json,
    view_at,
)
from engine.operation import AttemptOutcome, History
from engine.vocabulary import Category, DeadLetterReason
from engine.waits import KEPT_WAITS, WaitKind, WaitRecord
from tests.operation_stage import START, an_operation

LEASE = Permitted(7, lease_id="op-test:2", lease_expires_at=START + timedelta(seconds=15))
REFUSED = Refused(START, 40, START + timedelta(seconds=1), "the circuit is open: 9 of 10 calls failed")


def later(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@pytest.mark.parametrize("ticket", [Ticket(), Ticket(waiting=True, promised=True), Ticket(permit=LEASE)])
def test_a_ticket_survives_its_json(ticket: Ticket) -> None:
    assert Ticket.from_json(ticket.to_json()) == ticket


def test_who_has_no_ticket_comes_for_the_first_time() -> None:
    assert Ticket.from_json(None) == Ticket()


@pytest.mark.parametrize(
    "stop",
    [
        REFUSED,
        NeedsProbe(CircuitSettings(half_open_calls=3)),
        BudgetPostponed(START, reserved=True),
        BudgetPostponed(START, reserved=False),
    ],
)
def test_what_holds_up_survives_its_json(stop: Stop) -> None:
    assert stop_from_json(stop_to_json(stop)) == stop


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "tired"},
        {"kind": "refused", "permitted": True, "epoch": 1, "lease_id": None, "lease_expires_at": None},
    ],
)
def test_nothing_else_holds_up(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="holds nothing up"):
        stop_from_json(document)


def test_a_permit_holds_until_its_lease_expires() -> None:
    ticket = Ticket(permit=LEASE)
    assert ticket.valid_permit(START + later(14.9)) == LEASE
    assert ticket.valid_permit(START + later(15)) is None
    assert Ticket(permit=Permitted(3)).valid_permit(START) == Permitted(3)


def test_a_probe_is_asked_for_the_time_of_an_attempt_and_some_room() -> None:
    message = probe_message(an_operation(), 2, CircuitSettings(), START)
    assert message.request.lease_seconds == an_operation().timeouts.attempt_seconds + 5
    assert message.request.lease_id == "op-test:2"
    assert PermitMessage.from_json(message.to_json()) == message


def test_a_break_that_ended_on_the_way_back_still_spreads_those_who_wait() -> None:
    refusal = AttemptOutcome(
        number=1, started_at=START, duration_ms=0, category=Category.CIRCUIT_OPEN, counted=False
    )
    now = START + later(0.5)
    decision = decide(an_operation(), History(), refusal, view_at(REFUSED, now), now)
    assert isinstance(decision, WaitForCircuit)
    assert decision.delay_seconds <= 1.1
    assert decision.reasons[0] == REFUSED.reason


def test_a_postponed_retry_waits_and_says_why() -> None:
    hold = hold_of(BudgetPostponed(START + later(9), reserved=True), "payments")
    decision = postpone(an_operation(), hold, START)
    told = "the retry budget of payments is spent; this retry has its turn then"
    assert decision == RetryAt(START + later(9), 9.0, (told,))


def test_a_turn_after_the_deadline_is_not_waited_for() -> None:
    hold = hold_of(BudgetPostponed(START + later(3_599), reserved=False), "payments")
    decision = postpone(an_operation(), hold, START)
    assert isinstance(decision, DeadLetter)
    assert decision.reason is DeadLetterReason.DEADLINE_EXCEEDED
    assert "the retry budget of payments is spent; it asks again then" in decision.detail


def a_wait(before_attempt: int, seconds: float, kind: WaitKind = WaitKind.CIRCUIT) -> WaitRecord:
    return WaitRecord(
        before_attempt=before_attempt,
        kind=kind,
        began_at=START + later(seconds),
        until=START + later(seconds + 1),
        delay_reasons=(f"since {seconds}",),
    )


def test_waits_of_one_kind_before_one_attempt_are_told_as_one() -> None:
    history = History().with_wait(a_wait(1, 0)).with_wait(a_wait(1, 5))
    (told,) = history.waits
    assert (told.times, told.began_at, told.until) == (2, START, START + later(6))
    assert told.delay_reasons == ("since 5",)


def test_other_waits_stand_by_themselves_and_the_latest_are_kept() -> None:
    history = History().with_wait(a_wait(1, 0)).with_wait(a_wait(1, 1, WaitKind.RETRY_BUDGET))
    assert [wait.kind.value for wait in history.waits] == ["circuit", "retry_budget"]
    for attempt in range(2, 12):
        history = history.with_wait(a_wait(attempt, attempt))
    assert [wait.before_attempt for wait in history.waits] == list(range(12 - KEPT_WAITS, 12))


def test_waits_survive_the_json_of_a_history_and_an_older_one_has_none() -> None:
    history = History().with_wait(a_wait(1, 0))
    assert History.from_json(history.to_json()) == history
    older = {name: value for name, value in history.to_json().items() if name != "waits"}
    assert History.from_json(older) == History()
