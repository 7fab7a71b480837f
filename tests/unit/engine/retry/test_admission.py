from datetime import timedelta

import pytest

from durable_retry.engine.circuit import CircuitSettings, PermitMessage, Permitted, Refused
from durable_retry.engine.circuit.retry_budget import BudgetPostponed
from durable_retry.engine.retry.admission import (
    AdmissionState,
    Blocked,
    NeedsProbe,
    blocked_from_json,
    blocked_to_json,
    probe_message,
)
from durable_retry.engine.retry.history import KEPT_WAITS, History, WaitKind, WaitRecord
from tests.support.builders import NOON, an_operation

LEASE = Permitted(7, lease_id="op-test:2", lease_expires_at=NOON + timedelta(seconds=15))
REFUSED = Refused(NOON, 40, NOON + timedelta(seconds=1), "the circuit is open: 9 of 10 calls failed")


def later(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "state", [AdmissionState(), AdmissionState(waiting=True, promised=True), AdmissionState(permit=LEASE)]
)
def test_an_admission_state_survives_its_json(state: AdmissionState) -> None:
    assert AdmissionState.from_json(state.to_json()) == state


def test_without_a_state_it_is_a_first_attempt() -> None:
    assert AdmissionState.from_json({}) == AdmissionState()


@pytest.mark.parametrize(
    "blocked",
    [
        REFUSED,
        NeedsProbe(CircuitSettings(half_open_calls=3)),
        BudgetPostponed(NOON, reserved=True),
        BudgetPostponed(NOON, reserved=False),
    ],
)
def test_what_blocks_an_attempt_survives_its_json(blocked: Blocked) -> None:
    assert blocked_from_json(blocked_to_json(blocked)) == blocked


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "tired"},
        {"kind": "refused", "permitted": True, "epoch": 1, "lease_id": None, "lease_expires_at": None},
    ],
)
def test_nothing_else_blocks_an_attempt(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="blocks no attempt"):
        blocked_from_json(document)


def test_a_permit_holds_until_its_lease_expires() -> None:
    state = AdmissionState(permit=LEASE)
    assert state.valid_permit(NOON + later(14.9)) == LEASE
    assert state.valid_permit(NOON + later(15)) is None
    assert AdmissionState(permit=Permitted(3)).valid_permit(NOON) == Permitted(3)


def test_a_probe_is_asked_for_the_time_of_an_attempt_and_some_room() -> None:
    message = probe_message(an_operation(), 2, CircuitSettings(), NOON)
    assert message.request.lease_seconds == an_operation().timeouts.attempt_seconds + 5
    assert message.request.lease_id == "op-test:2"
    assert PermitMessage.from_json(message.to_json()) == message


def a_wait(before_attempt: int, seconds: float, kind: WaitKind = WaitKind.CIRCUIT) -> WaitRecord:
    return WaitRecord(
        before_attempt=before_attempt,
        kind=kind,
        began_at=NOON + later(seconds),
        until=NOON + later(seconds + 1),
        delay_reasons=(f"since {seconds}",),
    )


def test_waits_of_one_kind_before_one_attempt_are_told_as_one() -> None:
    history = History().with_wait(a_wait(1, 0)).with_wait(a_wait(1, 5))
    (told,) = history.waits
    assert (told.times, told.began_at, told.until) == (2, NOON, NOON + later(6))
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
