"""Notes of operations on their way into the index, with storage in memory that may be away."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category, OperationState, Priority
from durable_retry.features.debounce.rules import Debounce
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.facts import (
    ActedOn,
    AttemptEnded,
    DeadLetterKept,
    OperationEnded,
    StartUnanswered,
    SubmissionOutcome,
    Submitted,
)
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.history import History
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from durable_retry.telemetry.facts import report
from durable_retry.upkeep.health import HealthPart
from durable_retry_console.index import notes as operation_notes
from durable_retry_console.index.health import index_part
from durable_retry_console.index.notes import note_document, write_noted
from durable_retry_console.index.store import (
    NAMES_TABLE,
    TABLE,
    OperationEntry,
    OperationList,
    buckets,
    gaps,
)
from scripts.processes import eventually
from tests.support.builders import NOON, an_operation, an_outcome
from tests.support.feature_parts import in_order
from tests.support.tables import TablesInMemory

FAR = timedelta(days=1)
WITH_TABLE = tables.with_table


@dataclass
class Storage:
    """The account, which can be away."""

    account: TablesInMemory = field(default_factory=TablesInMemory)
    is_away: bool = False
    requests: int = 0

    async def run(self, table: str, action: Callable[[Any], Any]) -> Any:
        return self.answer(table, action)

    def answer(self, table: str, action: Callable[[Any], Any]) -> Any:
        self.requests += 1
        if self.is_away:
            raise ServiceResponseError("the storage is away")
        return WITH_TABLE(table, action)

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        every = [*self.account.rows(TABLE), *self.account.rows(NAMES_TABLE)]
        return [row for row in every if row["PartitionKey"].startswith(prefix)]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    storage = Storage()
    monkeypatch.setattr(tables, "_run_on_table", storage.run)
    monkeypatch.setattr(tables, "with_table", storage.answer)
    monkeypatch.setattr(storage_clients, "table_service", lambda: storage.account)
    monkeypatch.setattr(clock, "now", lambda: NOON)
    return storage


def note_accepted(operation: OperationInput) -> None:
    report(Submitted(operation, SubmissionOutcome.STARTED))


def note_failure(operation: OperationInput, error: str) -> None:
    report(AttemptEnded(operation, replace(an_outcome(Category.TRANSIENT), error=error), was_held=False))


def note_success(operation: OperationInput, *, was_held: bool = False) -> None:
    report(AttemptEnded(operation, replace(an_outcome(None), number=1), was_held=was_held))


async def listed(kind: OperationList = OperationList.ALL) -> list[OperationEntry]:
    return [entry async for _, _, entries in buckets([kind], None) for entry in entries]


async def test_many_notes_are_one_row(storage: Storage) -> None:
    for number in range(100):
        note_accepted(an_operation(operation_id=f"op-{number}"))
    assert storage.requests == 0
    await write_noted()
    assert len(storage.rows("all-")) == 1
    assert len(await listed()) == 100


@pytest.mark.usefixtures("storage")
async def test_a_list_does_not_wait_for_storage_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, is_over = threading.Event(), threading.Event()

    def flush() -> None:
        goes_on.wait(5)
        is_over.set()

    monkeypatch.setattr(operation_notes.WRITER, "flush", flush)
    note_accepted(an_operation())
    await write_noted(seconds=0.01)
    assert not is_over.is_set()
    goes_on.set()


@pytest.mark.usefixtures("storage")
async def test_an_operation_that_may_run_is_listed() -> None:
    report(StartUnanswered(an_operation()))
    await write_noted()
    assert [entry.operation_id for entry in await listed()] == [an_operation().operation_id]


def test_notes_are_written_by_themselves_and_one_that_waits_is_announced(storage: Storage) -> None:
    writer = operation_notes.WRITER
    writer.begin()
    note_accepted(an_operation(operation_id="op-1"))
    eventually(lambda: bool(storage.rows("all-")), "the first is written")
    note_accepted(an_operation(operation_id="op-2"))  # Within a second of the first, so it has to wait.
    eventually(lambda: bool(storage.rows("writer")), "the second is announced")
    eventually(lambda: len(storage.rows("all-")) == 2, "the second is written")
    writer.end()


async def test_an_entry_has_what_lists_filter_by(storage: Storage) -> None:
    debounce = Debounce(entity="e", key="stock-3", seconds=1.0, accepted_at=NOON)
    operation = an_operation(
        correlation_id="order-42",
        priority=Priority.LOW,
        limit_key="customer-17",
        parts={"debounce": debounce.to_json(), **in_order("lane-7")},
    )
    note_accepted(operation)
    note_failure(operation, "timed out " + 400 * "x")
    note_success(operation, was_held=True)
    await write_noted()
    (accepted,), (failed,) = await listed(), await listed(OperationList.FAILED)
    assert (accepted.key, accepted.correlation_id, accepted.status) == (operation.key, "order-42", None)
    assert (accepted.order_key, accepted.priority, accepted.debounce_key) == ("lane-7", "low", "stock-3")
    assert accepted.limit_key == "customer-17"
    assert accepted.created_at == operation.created_at
    assert (failed.status, failed.error) == (OperationState.SUCCEEDED, "")
    assert len(storage.rows("named-")) == 4


@pytest.mark.usefixtures("storage")
async def test_a_document_that_was_lost_is_noted_with_its_end() -> None:
    document = {
        "operation_id": "op-1",
        "key": "k",
        "dependency": "payments",
        "source": "http",
        "correlation_id": None,
        "status": "dead_lettered",
        "created_at": to_rfc3339(NOON),
        "updated_at": to_rfc3339(NOON),
        "order_key": "lane-7",
    }
    note_document(document, "422 Unprocessable")
    note_document({**document, "operation_id": "op-2", "status": "succeeded"}, "")
    await write_noted()
    assert [(one.operation_id, one.status) for one in await listed()] == [
        ("op-2", OperationState.SUCCEEDED),
        ("op-1", OperationState.DEAD_LETTERED),
    ]
    assert {one.order_key for one in await listed()} == {"lane-7"}
    failed = {one.operation_id: one.error for one in await listed(OperationList.FAILED)}
    assert failed == {"op-1": "422 Unprocessable"}


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("reported_in", ["the loop", "a thread"])
async def test_every_end_that_no_attempt_shows_is_noted_also_from_the_thread_of_an_entity(
    reported_in: str,
) -> None:
    operation = an_operation(operation_id="op-1")
    note_accepted(operation)
    cancelled = OperationStatus(
        operation=operation, state=OperationState.CANCELLED, history=History(), updated_at=NOON
    )
    ended = OperationEnded(cancelled.to_json(), None)
    if reported_in == "a thread":
        await asyncio.to_thread(report, ended)
    else:
        report(ended)
    await write_noted()
    (entry,) = await listed(OperationList.FAILED)
    assert (entry.operation_id, entry.status) == ("op-1", OperationState.CANCELLED)


@pytest.mark.usefixtures("storage")
async def test_a_change_of_the_priority_is_noted_where_lists_filter_by_it() -> None:
    operation = an_operation(operation_id="op-1", priority=Priority.LOW)
    note_accepted(operation)
    waiting = OperationStatus(
        operation=operation, state=OperationState.WAITING_RETRY, history=History(), updated_at=NOON
    )
    for changed in (None, "high"):
        report(ActedOn(waiting.to_json(), "resume", "ada", changed))
    await write_noted()
    (accepted,), (failed,) = await listed(), await listed(OperationList.FAILED)
    assert (accepted.priority, accepted.status) == ("high", None)
    assert (failed.priority, failed.status) == ("high", OperationState.WAITING_RETRY)


async def test_a_dead_letter_is_noted_with_its_error(storage: Storage) -> None:
    report(DeadLetterKept(an_operation(operation_id="op-1").to_json(), "422\nRejectedByDependency"))
    await write_noted()
    (entry,) = await listed(OperationList.FAILED)
    assert (entry.status, entry.error) == (OperationState.DEAD_LETTERED, "422\nRejectedByDependency")
    assert storage.rows("all-") == []


async def test_of_what_is_noted_of_an_operation_in_a_second_only_what_counts_is_written(
    storage: Storage,
) -> None:
    """Attempts can fail after a cancellation, also while storage is away."""
    operation = an_operation(operation_id="op-1")
    cancelled = OperationStatus(
        operation=operation, state=OperationState.CANCELLED, history=History(), updated_at=NOON
    )
    storage.is_away = True
    for number in range(3):
        note_failure(operation, f"failure {number}")
        await write_noted()
    report(OperationEnded(cancelled.to_json(), None))
    await write_noted()
    note_failure(operation, "failure 3")
    held = operation_notes.WRITER.held
    assert [entry.status for entry in held.values()] == [OperationState.CANCELLED]
    storage.is_away = False
    await write_noted()
    assert [entry.status for entry in await listed(OperationList.FAILED)] == [OperationState.CANCELLED]


async def test_the_end_of_what_has_a_dead_letter_is_not_noted_again(storage: Storage) -> None:
    operation = an_operation(operation_id="op-1")
    report(DeadLetterKept(operation.to_json(), "422\nRejectedByDependency"))
    await write_noted()
    requests = storage.requests
    ended = OperationStatus(
        operation=operation, state=OperationState.DEAD_LETTERED, history=History(), updated_at=NOON
    )
    report(OperationEnded(ended.to_json(), None))
    await write_noted()
    assert storage.requests == requests


async def test_what_is_held_at_the_end_of_a_process_is_written(storage: Storage) -> None:
    note_accepted(an_operation(correlation_id="order-42"))
    operation_notes.WRITER.end()
    assert (len(storage.rows("all-")), len(storage.rows("named-"))) == (1, 1)
    await write_noted()
    assert len(await listed()) == 1


async def test_a_success_rides_on_the_row_of_its_acceptance(storage: Storage) -> None:
    for number in range(3):
        note_accepted(an_operation(operation_id=f"op-{number}"))
    note_success(an_operation(operation_id="op-1"))
    await write_noted()
    note_success(an_operation(operation_id="op-2"))
    note_success(an_operation(operation_id="op-elsewhere"))
    await write_noted()
    states = {one.operation_id: one.status for one in await listed()}
    assert states == {"op-0": None, "op-1": OperationState.SUCCEEDED, "op-2": None}
    assert len(storage.rows("all-")) == 1


async def test_what_waits_for_storage_is_announced_and_written_later(storage: Storage) -> None:
    writer = operation_notes.WRITER
    note_accepted(an_operation(operation_id="op-1"))
    assert writer._seconds_to_write() == pytest.approx(0.05)
    await write_noted()
    note_accepted(an_operation(operation_id="op-2"))  # Within a second of the first, so it has to wait.
    assert writer._seconds_to_write() == pytest.approx(1.0, abs=0.5)
    writer._announce()
    (row,) = storage.rows("writer")
    assert datetime.fromisoformat(row["since"]) <= NOON
    assert await gaps(NOON + FAR) == {row["RowKey"]: NOON - timedelta(seconds=5)}
    assert await gaps(NOON - FAR) == {}
    storage.is_away = True
    await write_noted()
    storage.is_away = False
    await write_noted()
    assert {one.operation_id for one in await listed()} == {"op-1", "op-2"}
    assert writer.flush()  # Nothing came for a while.
    assert storage.rows("writer") == []


async def test_a_process_that_stays_busy_renews_what_it_announced(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = operation_notes.WRITER
    writer._announce()
    since = []
    for seconds in (20, 40):
        monkeypatch.setattr(clock, "now", lambda seconds=seconds: NOON + timedelta(seconds=seconds))
        monkeypatch.setattr(clock, "monotonic_seconds", lambda at=(writer._renewed or 0) + seconds: at)
        note_accepted(an_operation(operation_id=f"op-{seconds}"))
        await write_noted()
        since += [(at - NOON).total_seconds() for at in (await gaps(NOON + FAR)).values()]
    assert since == [-5, 35]
    assert len(storage.rows("writer")) == 1


async def test_what_waits_while_storage_fails_is_shown_in_the_health(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await index_part(TaskHub("")) == HealthPart(healthy=True)
    storage.is_away = True
    for number in range(2):
        note_accepted(an_operation(operation_id=f"op-{number}"))
        await write_noted()
    monkeypatch.setattr(clock, "now", lambda: NOON + timedelta(seconds=35))
    part = await index_part(TaskHub(""))
    assert not part.healthy
    assert (part.detail or "").startswith("storage has not taken the index of operations for 35 s; 2 entries")
    storage.is_away = False
    await write_noted()
    assert (await index_part(TaskHub(""))).healthy


async def test_what_is_too_much_to_hold_is_left_to_upkeep(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_notes.WRITER, "_most_held", 3)
    storage.is_away = True
    for number in range(5):
        note_accepted(an_operation(operation_id=f"op-{number}"))
    await write_noted()
    storage.is_away = False
    await write_noted()
    assert {one.operation_id for one in await listed()} == {"op-2", "op-3", "op-4"}
    assert len(await gaps(NOON + FAR)) == 1


async def test_storage_that_is_away_is_asked_less_and_less_often(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.is_away = True
    note_accepted(an_operation())
    writer = operation_notes.WRITER
    pauses = []
    for _ in range(7):
        assert not writer.flush()
        pauses.append(writer._seconds_to_write())
    assert pauses == pytest.approx([2, 4, 8, 16, 30, 30, 30], abs=0.5)
    warning = "the index of operations cannot be written: ServiceResponseError: the storage is away"
    assert caplog.messages[0] == warning
    storage.is_away = False
    await write_noted()
    assert writer._seconds_to_write() == pytest.approx(1.0, abs=0.5)
    assert len(await listed()) == 1
