"""Batches in an Azure Table, sagas in the task hub, and lists of these and of bulk actions by time.

Batches have one partition each, a row for the batch and one for every item:

    RK `batch`       the batch; written after its items, so a batch without this row was never accepted
    RK `item-0000`   the item: its operation, or why it has none, and its status

Sagas: the orchestration's input has the constant fields, the custom status how each step ended.

The task hub cannot list instances by the time of their creation, so sagas, bulk replays and all bulk actions
have lists of their own:

    PK `saga` | `replay` | `bulk_action`   RK <newest first>-<instance id>

An entry is written before its instance starts, so there may be one too many, never one too few. One whose
instance is gone, because its history was purged, is removed by `services.retention`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import batched
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.engine.base.json_forms import age, from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import FINISHED, DeadLetterReason, OperationState
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import MAX_BYTES, size_bytes
from durable_retry.engine.workflows import (
    BatchState,
    Saga,
    SagaState,
    SagaStep,
    batch_state_of,
    counts_of,
    saga_document,
)
from durable_retry.stores import tables
from durable_retry.stores.task_hub import Instance, read_operation

TABLE: Final = "Batches"
CREATED: Final = "created"

_BATCH_KEY: Final = "batch"
_ITEM_PREFIX: Final = "item-"
_AFTER_ITEMS: Final = "item."
_SHOWN: Final = ("PartitionKey", "RowKey", "key", "operation_id", "status", "error")

_BYTES_AT_ONCE: Final = 1_500_000
"""A transaction takes 4 MiB of UTF-8 including the protocol's overhead."""

_MAX_TEXT_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item as it was submitted.

    Attributes:
        index: From 0.
        key: Idempotency key; None for an invalid item without one.
        operation: The operation to start; None for an invalid item.
        text: Raw text of an invalid item.
        reason: Of an invalid item.
        detail: Explains `reason`.
        has_ended: Whether an end of it is stored.
        etag: Of its row; "" before it was stored.
    """

    index: int
    key: str | None
    operation: OperationInput | None = None
    text: str = ""
    reason: DeadLetterReason = DeadLetterReason.VALIDATION_FAILED
    detail: str = ""
    has_ended: bool = False
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as it was accepted.

    Attributes:
        batch_id: `batch-...`, also the orchestration's instance id.
        fingerprint: What makes two submissions under one key the same.
        total: Number of items.
        max_concurrency: Maximum number of items that run at once.
        tolerated_failures: With more failures the batch is failed.
        created_at: RFC 3339.
        finished_at: RFC 3339; None while it runs.
        counts: Items by status when it finished; None while it runs.
    """

    batch_id: str
    fingerprint: str
    total: int
    max_concurrency: int
    tolerated_failures: int
    created_at: str
    finished_at: str | None = None
    counts: Mapping[str, int] | None = None


async def keep_batch(batch: Batch, items: Sequence[Item]) -> None:
    """Store a batch, its items first. Idempotent: storing it again does not reset the items' status."""
    for rows in _transactions(_item_row(batch.batch_id, item) for item in items):
        await tables.transact(TABLE, [("upsert", row) for row in rows])
    row = {
        "PartitionKey": batch.batch_id,
        "RowKey": _BATCH_KEY,
        "fingerprint": batch.fingerprint,
        "total": batch.total,
        "max_concurrency": batch.max_concurrency,
        "tolerated_failures": batch.tolerated_failures,
        "created_at": batch.created_at,
    }
    listed = {"PartitionKey": CREATED, "RowKey": f"{age(from_rfc3339(batch.created_at))}-{batch.batch_id}"}
    await tables.merge(TABLE, listed)
    await tables.insert_if_absent(TABLE, row)


async def find_batch(batch_id: str) -> Batch | None:
    """Return a batch, or None when none of this id was accepted."""
    row = await tables.read(TABLE, batch_id, _BATCH_KEY)
    if row is None:
        return None
    return Batch(
        batch_id=batch_id,
        fingerprint=row["fingerprint"],
        total=row["total"],
        max_concurrency=row["max_concurrency"],
        tolerated_failures=row["tolerated_failures"],
        created_at=row["created_at"],
        finished_at=row.get("finished_at"),
        counts=json.loads(row["counts"]) if "counts" in row else None,
    )


async def read_item(batch_id: str, index: int) -> Item:
    """Return an item.

    Raises:
        LookupError: The batch has none of this index.
    """
    found = await tables.read_version(TABLE, batch_id, _item_key(index))
    if found is None:
        raise LookupError(f"{batch_id} has no item {index}")
    row = found.row
    operation = tables.unpacked("operation", row)
    return Item(
        index=index,
        key=row["key"] or None,
        operation=OperationInput.from_json(json.loads(operation)) if operation else None,
        text=tables.unpacked("text", row),
        reason=DeadLetterReason(row["reason"]),
        detail=row["detail"],
        has_ended=row.get("status") in FINISHED,
        etag=found.etag,
    )


async def note_running(batch_id: str, item: Item) -> None:
    """Mark an item running, unless its row was changed since it was read."""
    row = {
        "PartitionKey": batch_id,
        "RowKey": _item_key(item.index),
        "status": OperationState.RUNNING.value,
    }
    await tables.merge_version(TABLE, row, item.etag)


async def note_ended(batch_id: str, indices: Iterable[int], completion: Completion) -> None:
    """Store how the operation of some items ended."""
    for index in indices:
        keys = {"PartitionKey": batch_id, "RowKey": _item_key(index)}
        await tables.merge(TABLE, keys | {"status": completion.status.value, "error": completion.error or ""})


async def close_batch(batch: Batch, now: datetime) -> None:
    """Mark a batch finished, with its counts for lists. Idempotent: the first time is kept."""
    if batch.finished_at is None:
        row = {"PartitionKey": batch.batch_id, "RowKey": _BATCH_KEY, "finished_at": to_rfc3339(now)}
        await tables.merge(TABLE, row | {"counts": json.dumps(await _counts(batch.batch_id))})


async def _counts(batch_id: str) -> dict[str, int]:
    """Count the items by status, and read nothing else of them."""
    page = await tables.rows_between(
        TABLE, batch_id, after=_ITEM_PREFIX, before=_AFTER_ITEMS, only=("RowKey", "status")
    )
    return counts_of(_status(row) for row in page.rows)


def _status(row: tables.Row) -> str:
    return str(row.get("status") or OperationState.PENDING.value)


async def document_of_batch(batch: Batch) -> dict[str, Any]:
    """Return the document of `GET /api/batches/{batch_id}`."""
    page = await tables.rows_between(
        TABLE, batch.batch_id, after=_ITEM_PREFIX, before=_AFTER_ITEMS, only=_SHOWN
    )
    items = [_item_document(row) for row in page.rows]
    return _summary_of(batch, counts_of(item["status"] for item in items)) | {"items": items}


def _summary_of(batch: Batch, counts: Mapping[str, int]) -> dict[str, Any]:
    state = BatchState.RUNNING
    if batch.finished_at is not None:
        state = batch_state_of(counts, batch.tolerated_failures)
    return {
        "batch_id": batch.batch_id,
        "status": state.value,
        "max_concurrency": batch.max_concurrency,
        "tolerated_failures": batch.tolerated_failures,
        "counts": dict(counts),
        "created_at": batch.created_at,
        "finished_at": batch.finished_at,
    }


async def list_batches(limit: int, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return documents of batches without their items, the newest first, and the cursor of the next ones.

    Args:
        limit: The most documents to return; less can come with a cursor.
        cursor: Of the page before; None to begin.
    """
    page = await tables.rows_between(TABLE, CREATED, limit=limit, cursor=cursor)
    documents = await asyncio.gather(*(_summary(row["RowKey"].partition("-")[2]) for row in page.rows))
    return [document for document in documents if document is not None], page.cursor


async def _summary(batch_id: str) -> dict[str, Any] | None:
    batch = await find_batch(batch_id)
    if batch is None:
        return None  # A crash came before it was accepted.
    return _summary_of(batch, batch.counts or await _counts(batch_id))


def _item_key(index: int) -> str:
    return f"{_ITEM_PREFIX}{index:04d}"


def _item_row(batch_id: str, item: Item) -> tables.Row:
    """Return a row without the item's status, so that writing it again does not reset the status."""
    row: tables.Row = {
        "PartitionKey": batch_id,
        "RowKey": _item_key(item.index),
        "key": item.key or "",
        "operation_id": "" if item.operation is None else item.operation.operation_id,
        "reason": item.reason.value,
        "detail": item.detail,
    }
    if item.operation is not None:
        return row | tables.packed("operation", json.dumps(item.operation.to_json()))
    return row | tables.packed("text", item.text[:_MAX_TEXT_CHARS])


def _item_document(row: tables.Row) -> dict[str, Any]:
    return {
        "index": int(row["RowKey"].removeprefix(_ITEM_PREFIX)),
        "key": row["key"] or None,
        "operation_id": row["operation_id"] or None,
        "status": _status(row),
        "error": row.get("error") or None,
    }


def _transactions(rows: Iterable[tables.Row]) -> Iterator[list[tables.Row]]:
    """Split rows into transactions by number and size."""
    for group in batched(rows, tables.MOST_CHANGES, strict=False):
        begun: list[tables.Row] = []
        size = 0
        for row in group:
            row_size = len(json.dumps(row))
            if begun and size + row_size > _BYTES_AT_ONCE:
                yield begun
                begun, size = [], 0
            begun.append(row)
            size += row_size
        yield begun


LISTS_TABLE: Final = "Workflows"
SAGA: Final = "saga"
REPLAY: Final = "replay"
BULK_ACTION: Final = "bulk_action"
LISTED: Final = (SAGA, REPLAY, BULK_ACTION)


async def note_created(kind: str, instance_id: str, created_at: str) -> None:
    """List an instance. Idempotent.

    Args:
        kind: Of the list, one of `LISTED`.
        instance_id: Of its orchestration.
        created_at: RFC 3339; the same for the same instance.
    """
    keys = {"PartitionKey": kind, "RowKey": f"{age(from_rfc3339(created_at))}-{instance_id}"}
    await tables.merge(LISTS_TABLE, keys | {"created_at": created_at})


async def list_created(
    kind: str,
    find: Callable[[str], Awaitable[dict[str, Any] | None]],
    *,
    limit: int,
    cursor: str | None,
) -> tuple[list[dict[str, Any]], str | None]:
    """Return documents, the newest first, and the cursor of the next ones (None at the end).

    Args:
        kind: Of the list, one of `LISTED`.
        find: Reads the document of an instance; None when there is none.
        limit: The most documents to return; less can come with a cursor.
        cursor: Of the page before; None to begin.
    """
    page = await tables.rows_between(LISTS_TABLE, kind, limit=limit, cursor=cursor)
    found = await asyncio.gather(*(find(row["RowKey"].partition("-")[2]) for row in page.rows))
    return [document for document in found if document is not None], page.cursor


def saga_progress(saga: Saga) -> dict[str, Any]:
    """Return how the steps ended, without their error texts when those do not fit a custom status."""
    completions = [[_ended(step.done), _ended(step.undone)] for step in saga.steps]
    if size_bytes(completions) <= MAX_BYTES:
        return {"endings": completions}
    return {"endings": [[_without_text(one) for one in pair] for pair in completions]}


async def find_saga(hub: str, saga_id: str) -> dict[str, Any] | None:
    """Return a saga's document, or None when there is none.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    instance = await read_operation(hub, saga_id)
    return None if instance is None or "saga" not in instance.input else document_of_saga(instance)


def document_of_saga(instance: Instance) -> dict[str, Any]:
    """Return the document of a saga's instance."""
    if instance.output is not None and instance.runtime_status is OrchestrationStatus.COMPLETED:
        return instance.output
    saga = _with_completions(Saga.from_json(instance.input["saga"]), instance.custom_status)
    document = saga_document(saga, instance.updated_at)
    if instance.runtime_status in {OrchestrationStatus.TERMINATED, OrchestrationStatus.FAILED}:
        return document | {"status": SagaState.STOPPED.value}
    return document


def fingerprint_of_saga(instance: Instance) -> str:
    """Return a saga's fingerprint: equal for equal submissions."""
    return str(instance.input["saga"]["fingerprint"])


def _with_completions(saga: Saga, moving: Mapping[str, Any] | None) -> Saga:
    if not moving:
        return saga
    steps = zip(saga.steps, moving["endings"], strict=True)
    return saga.with_steps(tuple(_with_completion(step, *pair) for step, pair in steps))


def _with_completion(step: SagaStep, done: Any, undone: Any) -> SagaStep:
    completion = None if done is None else Completion.from_json(done)
    return step.ended(completion, None if undone is None else Completion.from_json(undone))


def _ended(completion: Completion | None) -> dict[str, Any] | None:
    return None if completion is None else completion.to_json()


def _without_text(ended: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if ended is None else ended | {"error": None}
