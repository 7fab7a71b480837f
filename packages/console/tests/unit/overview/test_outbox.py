"""The counts of events that are not sent: exact while they can be, otherwise at least so many."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from durable_retry.attempt.commits import commit_success
from durable_retry.features.outbox.event_store import find_event, mark_failed, mark_pending, mark_sent
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from durable_retry_console.overview import outbox
from durable_retry_console.overview.outbox import OutboxGlance, outbox_glance
from tests.support.builders import NOON, a_success
from tests.support.tables import TablesInMemory

EVENT = {"type": "order.placed", "queue": "order-events", "data": {"order": 1}}


@pytest.fixture(autouse=True)
def few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    monkeypatch.setattr(outbox, "_LISTED", 2)
    with using(parse_config("", {})):
        yield


async def committed(name: str, *, events: int = 1, at: datetime = NOON) -> None:
    await commit_success(name, a_success(events=[EVENT] * events), at)


async def fail(event_id: str) -> None:
    found = await find_event(event_id)
    assert found is not None
    await mark_failed(found, "status 422", 1)


async def counts() -> tuple[int, bool, int, bool]:
    found = await outbox_glance(TaskHub(""))
    return found.pending, found.pending_complete, found.failed, found.failed_complete


async def test_an_empty_outbox_is_counted_as_such() -> None:
    found = await outbox_glance(TaskHub(""))
    assert found == OutboxGlance(
        pending=0,
        pending_complete=True,
        oldest=None,
        failed=0,
        failed_complete=True,
        latest_failed=(),
        alarm_lag_seconds=found.alarm_lag_seconds,
    )


async def test_single_events_are_counted_by_their_notes_and_the_oldest_of_all_is_shown() -> None:
    for number in range(1, 8):
        await committed(f"op-{number}", at=NOON - timedelta(minutes=number))
    assert await counts() == (7, True, 0, True)
    found = await outbox_glance(TaskHub(""))
    assert found.oldest is not None
    assert found.oldest.event_id == "op-7.1"


async def test_of_runs_with_several_events_those_that_wait_are_counted() -> None:
    for number in range(4):
        await committed(f"op-{number}", events=3, at=NOON + timedelta(seconds=number))
    sent = await find_event("op-3.1")
    assert sent is not None
    await mark_sent(sent, NOON, 1)
    assert await counts() == (11, True, 0, True)


async def test_more_runs_with_several_events_than_are_read_are_at_least_so_many() -> None:
    for number in range(6):
        await committed(f"op-{number}", events=3, at=NOON + timedelta(seconds=number))
    assert await counts() == (14, False, 0, True)


async def test_failed_events_are_counted_by_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await committed(f"op-{number}")
        await fail(f"op-{number}.1")
    found = await outbox_glance(TaskHub(""))
    assert (found.failed, found.failed_complete) == (5, True)
    assert len(found.latest_failed) == 2
    monkeypatch.setattr(outbox, "_MOST", 1)
    pending, _, failed, is_every = await counts()
    assert (pending, is_every) == (0, False)
    assert 0 < failed < 5


async def test_an_event_that_is_pending_again_is_counted_among_those() -> None:
    await committed("op-again")
    await fail("op-again.1")
    await mark_pending("op-again.1", NOON)
    assert await counts() == (1, True, 0, True)
