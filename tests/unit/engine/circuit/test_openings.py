"""Openings of a circuit: which change of state is one, and how many are kept."""

from dataclasses import replace

from durable_retry.engine.circuit.openings import KEPT_OPENINGS, Opening, Openings, opening_of
from durable_retry.engine.circuit.report import CallHealth, LastFailure
from durable_retry.engine.circuit.reporters import ReportBuffer
from durable_retry.engine.circuit.states import CircuitState
from tests.support.builders import after
from tests.support.circuit import SETTINGS, Desk

FAILURE = LastFailure("transient", "status 503")


def opening(epoch: int) -> Opening:
    return Opening(
        at=after(epoch),
        epoch=epoch,
        state=CircuitState.FORCED_OPEN,
        reason="drill",
        by="ana",
        calls=0,
        failures=0,
        slow_calls=0,
        break_seconds=None,
    )


def test_a_hold_without_an_end_has_no_break() -> None:
    desk = Desk()
    held = replace(
        desk.breaker,
        state=CircuitState.FORCED_OPEN,
        epoch=2,
        opened_at=after(0),
        changed_by="ana",
        reason="x",
    )
    found = opening_of(desk.breaker, held)
    assert found is not None
    assert (found.break_seconds, found.last_failure) == (None, None)


def test_what_begins_no_epoch_is_no_opening() -> None:
    held = replace(Desk().breaker, state=CircuitState.FORCED_OPEN, epoch=2, opened_at=after(0))
    assert opening_of(held, held) is None
    assert opening_of(Desk().breaker, replace(held, opened_at=None)) is None


def test_the_oldest_make_room_and_the_latest_come_last() -> None:
    openings = Openings()
    for epoch in range(1, KEPT_OPENINGS + 11):
        openings = openings.with_opening(opening(epoch))
    assert openings.with_opening(opening(KEPT_OPENINGS)) is openings
    assert [each.epoch for each in openings.items] == list(range(11, KEPT_OPENINGS + 11))
    assert Openings.from_json(openings.to_json()) == openings


def test_a_report_says_what_failed_last_and_the_next_one_starts_anew() -> None:
    buffer = ReportBuffer("w1", SETTINGS)
    for health, failure in (
        (CallHealth.FAILURE, FAILURE),
        (CallHealth.SUCCESS, LastFailure("malformed", "status 400")),
        (CallHealth.SUCCESS, None),
        (CallHealth.FAILURE, None),
    ):
        buffer.ended(health, after(0), epoch=0, duration_seconds=0.1, failure=failure)
    assert buffer.take(after(1)).last_failure == FAILURE
    assert buffer.take(after(2)).to_json().get("last_failure", "absent") == "absent"
