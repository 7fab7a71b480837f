"""For how long events have waited, as its alert and its gauge have it."""

from typing import Any, NamedTuple

import pytest

from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.alerts import gauges, outbox
from durable_retry_console.alerts.health import Look
from tests.support.builders import NOON, after
from tests.support.telemetry import telemetry_stage


class Note(NamedTuple):
    """A note of the outbox."""

    noted_at: Any
    is_pending: bool
    unreadable: str | None = None


async def lag_of(monkeypatch: pytest.MonkeyPatch, *notes: Note, is_empty: bool = False) -> float | None:
    async def listed(*_: Any) -> tuple[tuple[Note, ...], None]:
        return notes, None

    async def pending(note: Note) -> bool:
        return note.is_pending

    monkeypatch.setattr(outbox, "list_notes", listed)
    monkeypatch.setattr(outbox, "pending_at", pending)
    monkeypatch.setattr(outbox, "was_swept_empty", lambda *_: is_empty)
    look = Look(TaskHub("{}"), NOON, {"outbox_lag_seconds": 300})
    await outbox.outbox_lag(look)
    value = look.metrics["outbox_lag_seconds"].value
    with telemetry_stage() as recorded:
        gauges.show_gauges(look.gauge_values)
        assert recorded.points(gauges.OUTBOX_LAG) == [({}, value)]
    return value


async def test_the_oldest_note_with_a_pending_event_tells_the_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Note(after(-4), is_pending=True), Note(after(-9), is_pending=False)
    assert await lag_of(monkeypatch, *notes) == 4
    assert await lag_of(monkeypatch, Note(after(-9), is_pending=True, unreadable="damaged")) == 0


async def test_nothing_waits_in_an_outbox_that_was_swept_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await lag_of(monkeypatch, Note(after(-4), is_pending=True), is_empty=True) == 0
    assert await lag_of(monkeypatch) == 0
