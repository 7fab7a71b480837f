"""Counting per minute in a process: what is unwritten, what is forgotten, and the bounds."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.base.names import OperationState, Priority
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.facts import (
    CircuitChanged,
    LimitsRead,
    OperationEnded,
    SubmissionOutcome,
    Submitted,
    WaitEnded,
)
from durable_retry.engine.operations.status import OperationStatus
from durable_retry.engine.retry.history import History, WaitKind
from durable_retry.telemetry.facts import report
from durable_retry_console.metrics import minutes as module
from durable_retry_console.metrics.minutes import KEPT_MINUTES, MINUTES, Minutes, Unsaved, record_facts
from tests.support.builders import NOON, an_operation


class ManualClock:
    """A clock that a test sets."""

    now: datetime = NOON

    def read(self) -> datetime:
        return self.now


@pytest.fixture
def manual_clock() -> Iterator[ManualClock]:
    manual_clock = ManualClock()
    with clock.reading(manual_clock.read):
        yield manual_clock


def figures(one: Unsaved) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one.figures)
    return found


@pytest.mark.usefixtures("manual_clock")
def test_what_happened_is_unsaved_until_it_was_written() -> None:
    minutes = Minutes()
    minutes.started("payments")
    minutes.attempted("payments", 1, "transient", 12.0, counted=True)
    minutes.waited("payments", "retry", 2.0, 0.5)
    minutes.waited("payments", "retry", 1.0, None)  # somebody ended it before it was due
    minutes.opened("payments")
    minutes.ended("other", "succeeded", 0.5)
    other, payments = minutes.unsaved()
    assert (other.dependency, other.minute) == ("other", int(NOON.timestamp()) // 60)
    assert figures(payments)["failures"] == {"transient": 1}
    assert figures(payments)["waits"] == {"retry": [2, 3.0]}
    assert list(figures(payments)["late_times"].values()) == [1]
    minutes.saved([other, payments])
    assert minutes.unsaved() == []


@pytest.mark.usefixtures("manual_clock")
def test_a_change_during_the_write_is_written_the_next_time() -> None:
    minutes = Minutes()
    minutes.started("payments")
    written = minutes.unsaved()
    minutes.started("payments")
    minutes.saved(written)
    (again,) = minutes.unsaved()
    assert figures(again) == {"started": 2}  # the whole minute, so that the row may be written twice


@pytest.mark.usefixtures("manual_clock")
def test_an_outage_counts_once_however_many_of_its_probes_fail() -> None:
    record_facts()
    MINUTES.clear()
    moves = (
        (CircuitState.CLOSED, CircuitState.OPEN),
        (CircuitState.OPEN, CircuitState.HALF_OPEN),
        (CircuitState.HALF_OPEN, CircuitState.OPEN),
        (CircuitState.OPEN, CircuitState.FORCED_OPEN),
        (CircuitState.FORCED_OPEN, CircuitState.CLOSED),
        (CircuitState.CLOSED, CircuitState.DISABLED),
    )
    for before, after in moves:
        report(CircuitChanged("payments", before, after, "", "circuit"))
    (payments,) = MINUTES.unsaved()
    assert figures(payments)["openings"] == 1
    MINUTES.clear()


def test_limits_of_the_moment_are_noted_and_no_limit_is_none(manual_clock: ManualClock) -> None:
    record_facts()
    MINUTES.clear()
    report(LimitsRead("payments", 8, 0.0))
    report(LimitsRead("payments", 6, 2.5))
    manual_clock.now += timedelta(minutes=1)
    report(LimitsRead("other", 0, 1.0))
    payments, other = MINUTES.unsaved()
    assert figures(payments) == {"limits": {"concurrency": [2, 14.0], "rate": [1, 2.5]}}
    assert figures(other) == {"limits": {"rate": [1, 1.0]}}
    MINUTES.clear()


@pytest.mark.usefixtures("manual_clock")
def test_what_happens_to_an_operation_counts_for_its_priority_and_its_debounce_key() -> None:
    record_facts()
    MINUTES.clear()
    operation = an_operation(priority=Priority.LOW)
    report(Submitted(operation, SubmissionOutcome.STARTED))
    report(WaitEnded(operation, WaitKind.LIMIT, 2.5, None))
    status = OperationStatus(
        operation=operation, state=OperationState.CANCELLED, history=History(), updated_at=NOON
    )
    report(OperationEnded(status.to_json() | {"replaced_by": "op-2"}, None))
    (payments,) = MINUTES.unsaved()
    found = figures(payments)
    assert found["priorities"]["low"]["started"] == 1
    assert found["priorities"]["low"]["waits"] == [1, 2.5]
    assert list(found["priorities"]["low"]["operation_times"].values()) == [1]
    assert found["debounce_replaced"] == 1
    MINUTES.clear()


def test_a_minute_that_is_over_and_written_is_forgotten(manual_clock: ManualClock) -> None:
    minutes = Minutes()
    minutes.started("payments")
    manual_clock.now += timedelta(minutes=1)
    minutes.started("payments")
    first, second = minutes.unsaved()
    minutes.saved([first, second])
    minutes.saved([first])  # a repeated note does no harm
    assert list(minutes._slots) == [(second.minute, "payments")]


def test_what_cannot_be_written_for_long_is_given_up_and_said(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    minutes = Minutes()
    minutes.attempted("payments", 1, None, 1.0, counted=True)
    manual_clock.now += timedelta(minutes=KEPT_MINUTES)
    assert len(minutes.unsaved()) == 1
    manual_clock.now += timedelta(minutes=1)
    with caplog.at_level(logging.WARNING):
        assert minutes.unsaved() == []
    assert "1 minute of metrics with 1 attempt could" in caplog.text


def test_the_memory_is_bounded(manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SLOTS", 2)
    minutes = Minutes()
    for name in ("a", "b", "c"):
        manual_clock.now += timedelta(minutes=1)
        minutes.started(name)
    assert [one.dependency for one in minutes.unsaved()] == ["b", "c"]


@pytest.mark.usefixtures("manual_clock")
def test_one_call_says_that_there_is_something_to_write() -> None:
    minutes, calls = Minutes(), []
    minutes.when_changed(lambda: calls.append(1))
    minutes.started("payments")
    minutes.started("payments")
    assert len(calls) == 1
    minutes.unsaved()
    minutes.started("payments")
    assert len(calls) == 2
    minutes.clear()
    assert minutes.unsaved() == []
