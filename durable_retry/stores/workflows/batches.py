"""Batches in an Azure Table: one partition each, a row for the batch and one for every item.

RK `batch`       the batch; written after its items, so a batch without this row was never accepted
RK `item-0000`   the item: its operation, or why it has none, and its status
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import batched
from typing import Any, Final

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import DeadLetterReason, OperationState
from durable_retry.engine.operations.operation import Completion, OperationInput
from durable_retry.engine.workflows import BatchState, batch_state_of, counts_of
from durable_retry.stores.storage import tables

TABLE: Final = "Batches"
CREATED: Final = "created"

_BATCH_KEY: Final = "batch"
_ITEM_PREFIX: Final = "item-"
_AFTER_ITEMS: Final = "item."
_SHOWN: Final = ("PartitionKey", "RowKey", "key", "operation_id", "status", "error")

_ROWS_AT_ONCE: Final = 100
"""Maximum changes of one transaction."""

_BYTES_AT_ONCE: Final = 1_500_000
"""A transaction takes 4 MiB of UTF-8 including the protocol's overhead."""

_MAX_TEXT_CHARS: Final = 100_000

_LAST_INSTANT_US: Final = 10**17
"""Microseconds since 1970 in the year 5138: subtracted from, so that the newest row sorts first."""


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
        etag: Of its row; "" before it was stored.
    """

    index: int
    key: str | None
    operation: OperationInput | None = None
    text: str = ""
    reason: DeadLetterReason = DeadLetterReason.VALIDATION_FAILED
    detail: str = ""
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
    """

    batch_id: str
    fingerprint: str
    total: int
    max_concurrency: int
    tolerated_failures: int
    created_at: str
    finished_at: str | None = None


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
    listed = {"PartitionKey": CREATED, "RowKey": f"{age(batch.created_at)}-{batch.batch_id}"}
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
    """Mark a batch finished. Idempotent: the first time is kept."""
    if batch.finished_at is None:
        row = {"PartitionKey": batch.batch_id, "RowKey": _BATCH_KEY, "finished_at": to_rfc3339(now)}
        await tables.merge(TABLE, row)


async def document_of(batch: Batch) -> dict[str, Any]:
    """Return the document of `GET /api/batches/{batch_id}`."""
    page = await tables.rows_between(
        TABLE, batch.batch_id, after=_ITEM_PREFIX, before=_AFTER_ITEMS, only=_SHOWN
    )
    items = [_item_document(row) for row in page.rows]
    counts = counts_of(item["status"] for item in items)
    state = BatchState.RUNNING
    if batch.finished_at is not None:
        state = batch_state_of(counts, batch.tolerated_failures)
    return {
        "batch_id": batch.batch_id,
        "status": state.value,
        "max_concurrency": batch.max_concurrency,
        "tolerated_failures": batch.tolerated_failures,
        "counts": counts,
        "items": items,
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
    document = await document_of(batch)
    return {name: value for name, value in document.items() if name != "items"}


def age(created_at: str) -> str:
    """Return digits that sort after those of every later instant."""
    return f"{_LAST_INSTANT_US - round(from_rfc3339(created_at).timestamp() * 1_000_000):017d}"


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
        "status": row.get("status") or OperationState.PENDING.value,
        "error": row.get("error") or None,
    }


def _transactions(rows: Iterable[tables.Row]) -> Iterator[list[tables.Row]]:
    """Split rows into transactions by number and size."""
    for group in batched(rows, _ROWS_AT_ONCE, strict=False):
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
