"""Rows of every kind, in tables of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from durable_retry.attempt import markers, results
from durable_retry.attempt.commits import commit_success
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category, DeadLetterReason, OperationState
from durable_retry.base.trace_context import TraceContext
from durable_retry.dead_letters import records
from durable_retry.features.handlers.records import change_step
from durable_retry.features.handlers.rules.steps import (
    HEARTBEAT,
    Execution,
    RememberedStep,
    report_progress,
)
from durable_retry.features.handlers.starts import count_start
from durable_retry.features.outbox import event_store as outbox
from durable_retry.features.outbox.rules.outbox import event_id_for
from durable_retry.features.workflows import batch_store as workflows
from durable_retry.hub.instance_lists import note_created
from durable_retry.hub.orchestrations import listed_names
from durable_retry.rules.dead_letters.record import Status, of_message
from durable_retry.rules.facts import LimitsRead, TargetType, WaitEnded
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.status import StepState
from durable_retry.rules.retry.history import WaitKind
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import rounds
from durable_retry_console.activity import store as activity
from durable_retry_console.activity.shapes import ActivityItem, ActivityKind, ActivityTarget
from durable_retry_console.alerts import store as alerts
from durable_retry_console.alerts.rules import Alert, AlertDelivery
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.store import keep_items
from durable_retry_console.causes import groups as causes
from durable_retry_console.index.store import OperationEntry, OperationList
from durable_retry_console.metrics.minutes import Minutes
from tests.support.builders import NOON, a_life, a_success, an_entry, an_operation, outcome
from tests.support.counting import STARTED, attempt_ended, counted, operation_ended
from tests.support.operation_index import write_entries, write_since
from tests.support.tables import TablesInMemory

LATER: Final = NOON + timedelta(minutes=5)
_TRACE: Final = TraceContext("00-" + "1" * 32 + "-" + "2" * 16 + "-01", "vendor=1")
_RESULT: Final = {"status_code": 200, "headers": {"content-type": "text/plain"}, "json": {"id": "ch_1"}}
_EVENT: Final[dict[str, Any]] = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}
_WRITE: Final = {
    "table": "Orders",
    "partition_key": "order-1",
    "row_key": "row",
    "values": {"total": 5},
    "mode": "insert",
}


@contextmanager
def account() -> Iterator[TablesInMemory]:
    """Put empty tables in the place of the storage account, at an instant that stands still."""
    held = TablesInMemory()
    numbers = count(1)
    with (
        patch.object(storage_clients, "table_service", lambda: held),
        patch("uuid.uuid4", lambda: UUID(int=next(numbers))),
        patch.object(markers, "uuid4", lambda: UUID(int=next(numbers))),
        clock.reading(lambda: NOON),
    ):
        yield held


async def write_every_row() -> None:
    """Write rows of every kind, as the app does."""
    await _write_attempts()
    await _write_outbox()
    await _write_dead_letters()
    await _write_workflows()
    await _write_index()
    await _write_alerts()
    _write_metrics()
    _write_activity()


async def _write_attempts() -> None:
    await markers.insert_marker(a_life("op-sent"), 1, now=NOON)
    await markers.write_outcome("op-sent", 1, outcome(1, status_code=200, result=_RESULT))
    await count_start(a_life("op-handled"), 2, NOON)
    await markers.take_commit("op-handled", a_life("op-handled"), NOON)
    await results.store_apart(an_operation(), 1, _RESULT, most_chars=4, now=NOON)
    running = RememberedStep(
        name="charge",
        run=1,
        execution="e-1",
        state=StepState.RUNNING,
        attempts=1,
        begun_at=NOON,
        dead_letter_id="dl-1",
    )
    done = replace(running, name="ship", state=StepState.SUCCEEDED, result='{"id": 7}')
    for step in (running, done):
        await change_step("op-handled", 1, step.name, partial(_to, step))
    execution = Execution(
        name=HEARTBEAT, run=1, token="e-1", is_repeatable=True, now=NOON, dead_letter_id="dl-1"
    )
    beat = partial(report_progress, execution=execution, attempt=2, text='{"page": 7}')
    await change_step("op-beating", 1, HEARTBEAT, beat)


def _to(step: RememberedStep, _before: RememberedStep | None) -> RememberedStep:
    return step


async def _write_outbox() -> None:
    await commit_success("op-plain", a_success(result=_RESULT), NOON)
    webhook = {"type": "t", "data": None, "dependency": "payments", "path": "/hook"}
    events: list[dict[str, Any]] = [_EVENT, webhook, _EVENT]
    await commit_success(
        "op-events", a_success(events=events, result=_RESULT, correlation_id="order-42", trace=_TRACE), NOON
    )
    await commit_success("op-writes.2", a_success([_WRITE], [_EVENT], result=_RESULT), NOON)
    sent = await outbox.find_event(event_id_for("op-events", 1))
    failed = await outbox.find_event(event_id_for("op-events", 2))
    assert sent is not None
    assert failed is not None
    await outbox.mark_sent(sent, LATER, 2)
    await outbox.mark_failed(failed, "status 422", 1)
    await rounds.write_round("outbox", rounds.Round("op-plain"))


async def _write_dead_letters() -> None:
    kept = [
        await records.keep_operation(an_entry("op-open"), NOON),
        await records.keep_operation(an_entry("op-archived", correlation_id="order-42"), LATER),
        await records.keep_message(
            of_message(
                "not json",
                source="queue",
                message_id="m-1",
                reason=DeadLetterReason.MALFORMED_JSON,
                detail="no JSON",
                now=LATER,
            )
        ),
    ]
    await records.move_dead_letter(
        kept[1], lambda record: replace(record, status=Status.ARCHIVED, archived_at=LATER, archived_by="ada")
    )
    note = {"text": "looked at it", "at": to_rfc3339(LATER), "by": "ada"}
    await records.change_dead_letter(kept[0], lambda record: replace(record, notes=(note,)))
    await records.begin_change(kept[0], records.Purpose.MOVE)
    await causes.change_cause(
        (await records.existing_dead_letter(kept[0])).group,
        lambda cause: cause.acknowledged(LATER, "ada").noted("looked at it", LATER, "ada"),
    )


async def _write_workflows() -> None:
    batch = workflows.Batch(
        batch_id="batch-1",
        fingerprint="f1",
        total=2,
        max_concurrency=2,
        tolerated_failures=1,
        created_at=NOON,
    )
    bad = workflows.Item(index=1, key=None, text="{", reason=DeadLetterReason.MALFORMED_JSON, detail="no")
    await workflows.keep_batch(batch, [workflows.Item(index=0, key="k", operation=an_operation()), bad])
    await workflows.note_running("batch-1", await workflows.read_item("batch-1", 0))
    failure = Completion(
        operation_id="op-test", status=OperationState.DEAD_LETTERED, category=Category.MALFORMED, error="no"
    )
    await workflows.note_ended("batch-1", {0: failure})
    await workflows.close_batch(batch, LATER)
    for kind in listed_names():
        await note_created(kind, f"{kind}-1", to_rfc3339(NOON))
    items = [
        BulkItem(id="dl-1", outcome=ItemOutcome.DONE, operation_id="op-1", event_id="op-1.1"),
        BulkItem(id="dl-2", outcome=ItemOutcome.FAILED, detail="it is archived"),
    ]
    await keep_items(f"bulk-{'7' * 32}", [(f"1-0{place}", item) for place, item in enumerate(items)])


async def _write_index() -> None:
    accepted = OperationEntry(
        operation_id="op-open",
        created_at=NOON,
        key="key-1",
        dependency="payments",
        handler=None,
        source="http",
        correlation_id="order-42",
    )
    failed = replace(accepted, status=OperationState.DEAD_LETTERED, error="status 422", noted_us=7)
    held = [(OperationList.ALL, accepted), (OperationList.FAILED, failed)]
    await write_entries("worker-1", held)
    await write_since("worker-1", NOON)


async def _write_alerts() -> None:
    delivery = AlertDelivery(tries=1, next_at=LATER, detail="timed out")
    alert = Alert(
        condition="circuit_open:payments",
        is_raised=True,
        since=NOON,
        value=1.0,
        threshold=0.5,
        raised_at=NOON,
        deliveries={"slack": delivery},
    )
    await alerts.write_change(alert, None)


def _write_activity() -> None:
    writer = activity.ActivityWriter()
    target = ActivityTarget(type=TargetType.DEAD_LETTER, id="dl-1", url="/api/dead-letters/dl-1")
    writer.note(
        ActivityItem(
            at=NOON,
            kind=ActivityKind.ACTION,
            who="ada",
            what="archived the dead letter",
            target=target,
            reason="paid by hand",
            dependency="payments",
        )
    )
    assert writer.flush()


def _write_metrics() -> None:
    minutes = Minutes()
    minutes.count(
        "payments",
        counted(
            STARTED,
            attempt_ended(41.5, Category.TRANSIENT, number=2),
            attempt_ended(3.0, Category.TRANSIENT, counted=False),
            operation_ended(1.5),
            WaitEnded(an_operation(), WaitKind.RETRY, 10.25, None),
            LimitsRead("payments", 8, 2.5),
        ),
    )
    minutes.count("payments", {"openings": 1.0})
    assert minutes.flush()
