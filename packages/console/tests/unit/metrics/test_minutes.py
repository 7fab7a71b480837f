"""Counting per minute in a process: what is not written, what is forgotten, and the bounds."""

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry.base.names import OperationState, Priority
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.facts import (
    CircuitChanged,
    LimitsRead,
    OperationEnded,
    SubmissionOutcome,
    Submitted,
    WaitEnded,
)
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import History, WaitKind
from durable_retry.runtime import clock
from durable_retry.storage import contents
from durable_retry.storage.tables import Row
from durable_retry.telemetry.facts import report
from durable_retry_console.metrics import debounced
from durable_retry_console.metrics.counts import Counts, from_text, labelled
from durable_retry_console.metrics.minutes import (
    CELL_MINUTES,
    KEPT_CELLS,
    MINUTES,
    Minutes,
    record_facts,
)
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


def taken(minutes: Minutes, *, is_away: bool = False) -> list[Row]:
    """Return the rows that are written now, which storage may not take."""
    taken: list[Row] = []

    def replace(_table: str, rows: Iterable[Row]) -> None:
        taken.extend(rows)
        if is_away:
            raise ServiceResponseError("away")

    with patch.object(minutes, "replace", replace):
        assert minutes.flush() is not is_away
    return taken


def counts_of(row: Row) -> dict[str, Counts]:
    return from_text(contents.unpacked("counts", row))


def minutes_in(rows: Iterable[Row]) -> list[dict[str, Counts]]:
    return [counts_of(row) for row in rows if row["RowKey"].startswith("1|")]


def of_payments() -> Counts:
    (minute,) = minutes_in(taken(MINUTES))
    return minute["payments"]


@pytest.mark.usefixtures("manual_clock")
def test_what_happened_is_taken_once_as_a_minute_and_as_a_cell() -> None:
    minutes = Minutes()
    minutes.count("payments", {"started": 1})
    minutes.count("payments", {"started": 1, "attempt_seconds": 0.1})
    minutes.count("other", {"started": 1})
    minute, cell = taken(minutes)
    assert [row["RowKey"].rpartition("|")[0] for row in (minute, cell)] == [
        f"1|{NOON:%H%M}",
        f"{CELL_MINUTES}|{NOON:%H%M}",
    ]
    assert counts_of(minute) == {"payments": {"started": 2, "attempt_seconds": 0.1}, "other": {"started": 1}}
    assert counts_of(cell) == counts_of(minute)
    assert taken(minutes) == []


@pytest.mark.usefixtures("manual_clock")
def test_a_change_during_the_write_is_written_the_next_time() -> None:
    minutes = Minutes()
    minutes.count("payments", {"started": 1})
    assert len(taken(minutes)) == 2
    minutes.count("payments", {"started": 1})
    # The whole minute, so that the row may be written twice.
    assert minutes_in(taken(minutes)) == [{"payments": {"started": 2}}]


@pytest.mark.usefixtures("manual_clock")
def test_what_could_not_be_written_is_taken_again() -> None:
    minutes = Minutes()
    minutes.count("payments", {"started": 1})
    taken(minutes, is_away=True)
    assert minutes_in(taken(minutes)) == [{"payments": {"started": 1}}]


def test_a_cell_adds_up_its_minutes_also_those_that_are_written(manual_clock: ManualClock) -> None:
    minutes = Minutes()
    for number in range(CELL_MINUTES + 1):
        minutes.count("payments", {"started": 1})
        *_, cell = taken(minutes)
        assert counts_of(cell)["payments"]["started"] == number % CELL_MINUTES + 1
        manual_clock.now += timedelta(minutes=1)


@pytest.mark.usefixtures("manual_clock")
def test_an_outage_counts_once_however_many_of_its_probes_fail_and_those_of_limit_keys_apart() -> None:
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
        for limit_key in (None, "a", "b"):
            report(CircuitChanged("payments", before, after, "", "circuit", limit_key=limit_key))
    assert of_payments() == {"openings": 1, "key_openings": 2}
    MINUTES.clear()


def test_limits_of_the_moment_are_noted_and_no_limit_is_none(manual_clock: ManualClock) -> None:
    record_facts()
    MINUTES.clear()
    report(LimitsRead("payments", 8, 0.0))
    report(LimitsRead("payments", 6, 2.5))
    manual_clock.now += timedelta(minutes=1)
    report(LimitsRead("other", 0, 1.0))
    first, second = minutes_in(taken(MINUTES))
    assert first == {
        "payments": {
            "limit|concurrency": 14,
            "limit_readings|concurrency": 2,
            "limit|rate": 2.5,
            "limit_readings|rate": 1,
        }
    }
    assert second == {"other": {"limit|rate": 1, "limit_readings|rate": 1}}
    MINUTES.clear()


@pytest.mark.usefixtures("manual_clock")
def test_what_happens_to_an_operation_counts_for_its_priority_and_its_debounce_key() -> None:
    record_facts()
    debounced.record_facts()
    MINUTES.clear()
    operation = an_operation(priority=Priority.LOW)
    report(Submitted(operation, SubmissionOutcome.STARTED))
    report(WaitEnded(operation, WaitKind.LIMIT, 2.5, None))
    status = OperationStatus(
        operation=operation, state=OperationState.CANCELLED, history=History(), updated_at=NOON
    )
    report(OperationEnded(status.to_json() | {"replaced_by": "op-2"}, None))
    found = of_payments()
    assert (found["low:started"], found["low:waits"], found["low:wait_seconds"]) == (1, 1, 2.5)
    assert list(labelled(found, "low:operation_ms").values()) == [1]
    assert found["debounce|replaced"] == 1
    MINUTES.clear()


def test_a_cell_that_is_over_and_written_is_forgotten(manual_clock: ManualClock) -> None:
    minutes = Minutes()
    minutes.count("payments", {"started": 1})
    taken(minutes)
    manual_clock.now += timedelta(minutes=CELL_MINUTES)
    minutes.count("payments", {"started": 1})
    taken(minutes)
    assert list(minutes._counts) == [int(manual_clock.now.timestamp()) // 60]


def test_what_cannot_be_written_for_long_is_given_up_and_said(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    minutes = Minutes()
    minutes.count("payments", {"attempts": 1})
    manual_clock.now += timedelta(minutes=KEPT_CELLS * CELL_MINUTES)
    assert len(taken(minutes, is_away=True)) == 2
    manual_clock.now += timedelta(minutes=CELL_MINUTES)
    with caplog.at_level(logging.WARNING):
        assert taken(minutes) == []
    assert "1 minute of metrics with 1 attempt could" in caplog.text
    assert minutes._counts == {}


@pytest.mark.usefixtures("manual_clock")
def test_one_call_says_that_there_is_something_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes, calls = Minutes(), list[int]()
    monkeypatch.setattr(minutes, "wake", lambda: calls.append(1))
    minutes.count("payments", {"started": 1})
    minutes.count("payments", {"started": 1})
    assert len(calls) == 1
    taken(minutes)
    minutes.count("payments", {"started": 1})
    assert len(calls) == 2
    minutes.clear()
    assert taken(minutes) == []
