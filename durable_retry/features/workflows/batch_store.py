"""Batches in an Azure Table: one partition each, a row for the batch and one for every item.

RK `batch`       the batch; written after its items, so a batch without this row was never accepted
RK `item-0000`   the item: its operation, or why it has none, and its status
PK `created`     RK <newest first>-<batch id>: all of them by time
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import batched
from typing import Final

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import (
    from_ms,
    from_rfc3339,
    newest_first,
    optional_from_rfc3339,
    to_rfc3339,
)
from durable_retry.base.names import FINISHED, DeadLetterReason
from durable_retry.features.workflows.rules.document import (
    BatchCounts,
    BatchDocument,
    BatchItem,
    BatchSummary,
    batch_state_of,
    counts_of,
    why_batch_failed,
)
from durable_retry.features.workflows.rules.shapes import BatchState, ItemState
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.storage import contents, tables

TABLE: Final = "Batches"
CREATED: Final = "created"

_BATCH_KEY: Final = "batch"
_ITEM_PREFIX: Final = "item-"
_AFTER_ITEMS: Final = "item."
_ITEM_COLUMNS: Final = ("PartitionKey", "RowKey", "key", "operation_id", "status", "error")

_BYTES_AT_ONCE: Final = 1_500_000
"""A transaction takes 4 MiB of UTF-8 including the protocol's overhead."""

_MAX_TEXT_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item as it was submitted."""

    index: int  # from 0
    key: str | None  # idempotency key; None for an invalid item without one
    operation: OperationInput | None = None  # the operation to start; None for an invalid item
    text: str = ""  # raw text of an invalid item
    reason: DeadLetterReason = DeadLetterReason.VALIDATION_FAILED  # the reason of an invalid item
    detail: str = ""  # explains `reason`
    has_ended: bool = False  # whether an end of it is stored
    etag: str = ""  # the ETag of its row; "" before it was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as it was accepted."""

    batch_id: str  # `batch-...`, also the orchestration's instance id
    fingerprint: str  # what makes two submissions under one key the same
    total: int  # number of items
    max_concurrency: int  # maximum number of items that run at once
    tolerated_failures: int  # with more failures the batch is failed
    created_at: datetime
    key: str | None = None  # the caller's
    finished_at: datetime | None = None  # None while it runs
    counts: BatchCounts | None = None  # items by status when it finished; None while it runs
    unreadable: str | None = None  # why its row cannot be read; None when it can


async def keep_batch(batch: Batch, items: Sequence[Item]) -> None:
    """Store a batch, its items first. Idempotent: storing it again does not reset the items' status."""
    await _merge_items(_item_row(batch.batch_id, item) for item in items)
    row = {
        "PartitionKey": batch.batch_id,
        "RowKey": _BATCH_KEY,
        "fingerprint": batch.fingerprint,
        "total": batch.total,
        "max_concurrency": batch.max_concurrency,
        "tolerated_failures": batch.tolerated_failures,
        "created_at": to_rfc3339(batch.created_at),
    }
    if batch.key is not None:
        row["key"] = batch.key
    entry = {"PartitionKey": CREATED, "RowKey": f"{newest_first(batch.created_at)}-{batch.batch_id}"}
    await tables.merge(TABLE, entry)
    await tables.insert_if_absent(TABLE, row)


async def find_batch(batch_id: str) -> Batch | None:
    """Return a batch, or None when none of this id was accepted."""
    row = await tables.read(TABLE, batch_id, _BATCH_KEY)
    if row is None:
        return None
    return read_or(partial(_batch_of_row, batch_id, row), partial(_unreadable_batch, batch_id, row))


def _batch_of_row(batch_id: str, row: tables.Row) -> Batch:
    counts = json.loads(row["counts"]) if "counts" in row else None
    return Batch(
        batch_id=batch_id,
        fingerprint=row["fingerprint"],
        total=int(row["total"]),
        max_concurrency=int(row["max_concurrency"]),
        tolerated_failures=int(row["tolerated_failures"]),
        created_at=from_rfc3339(row["created_at"]),
        key=row.get("key"),
        finished_at=optional_from_rfc3339(row.get("finished_at")),
        counts=None if counts is None else BatchCounts.read(counts),
    )


def _unreadable_batch(batch_id: str, row: tables.Row, reason: str) -> Batch:
    """Return what is known of a batch whose row cannot be read; its items are counted by their own rows."""
    created_at = read_or(lambda: from_rfc3339(row["created_at"]), lambda _: from_ms(0))
    finished_at = read_or(lambda: from_rfc3339(row["finished_at"]), lambda _: None)
    return Batch(
        batch_id=batch_id,
        fingerprint=str(row.get("fingerprint")),
        total=0,
        max_concurrency=0,
        tolerated_failures=0,
        created_at=created_at,
        finished_at=finished_at,
        unreadable=reason,
    )


async def read_item(batch_id: str, index: int) -> Item:
    """Return an item; LookupError where the batch has none of this index."""
    version = await tables.read_version(TABLE, batch_id, _item_key(index))
    if version is None:
        raise LookupError(f"{batch_id} has no item {index}")
    row = version.row
    operation = contents.unpacked("operation", row)
    return Item(
        index=index,
        key=row["key"] or None,
        operation=OperationInput.from_json_text(operation) if operation else None,
        text=contents.unpacked("text", row),
        reason=DeadLetterReason(row["reason"]),
        detail=row["detail"],
        has_ended=row.get("status") in FINISHED,
        etag=version.etag,
    )


async def note_running(batch_id: str, item: Item) -> None:
    """Mark an item running, unless its row was changed since it was read."""
    row = {"PartitionKey": batch_id, "RowKey": _item_key(item.index), "status": ItemState.RUNNING.value}
    await tables.merge_version(TABLE, row, item.etag)


async def note_ended(batch_id: str, ends: Mapping[int, Completion]) -> None:
    """Store how the operations of some items ended."""
    # Together: a hundred ends, one request after the other, would hold up the items that wait for a place.
    await _merge_items(
        {
            "PartitionKey": batch_id,
            "RowKey": _item_key(index),
            "status": completion.status.value,
            "error": completion.error or "",
        }
        for index, completion in ends.items()
    )


async def _merge_items(rows: Iterable[tables.Row]) -> None:
    for transaction in _transactions_of_rows(rows):
        await tables.transact(TABLE, [("upsert", row) for row in transaction])


async def close_batch(batch: Batch, now: datetime) -> None:
    """Mark a batch finished, with its counts for lists. Idempotent: the first time is kept."""
    if batch.finished_at is None:
        row = {"PartitionKey": batch.batch_id, "RowKey": _BATCH_KEY, "finished_at": to_rfc3339(now)}
        await tables.merge(
            TABLE, row | {"counts": json.dumps((await _count_items(batch.batch_id)).to_json())}
        )


async def _count_items(batch_id: str) -> BatchCounts:
    page = await tables.rows_between(
        TABLE, batch_id, after=_ITEM_PREFIX, before=_AFTER_ITEMS, only=("RowKey", "status")
    )
    return counts_of(_status_of_item(row) for row in page.rows)


def _status_of_item(row: tables.Row) -> ItemState:
    return ItemState(row.get("status") or ItemState.PENDING)


async def document_of_batch(batch: Batch, status: ItemState | None = None) -> BatchDocument:
    """Return the document of `GET /api/batches/{batch_id}`, with the items of a status; None for all."""
    page = await tables.rows_between(
        TABLE, batch.batch_id, after=_ITEM_PREFIX, before=_AFTER_ITEMS, only=_ITEM_COLUMNS
    )
    items = [
        read_or(partial(_item_of_row, row), partial(_unreadable_item, index))
        for index, row in enumerate(page.rows)
    ]
    summary = _summary_of(batch, counts_of(item.status for item in items))
    chosen = (item for item in items if status in (None, item.status))
    return BatchDocument(**dict(summary), items=tuple(chosen))


def _summary_of(batch: Batch, counts: BatchCounts) -> BatchSummary:
    state = BatchState.RUNNING
    if batch.finished_at is not None:
        state = batch_state_of(counts, batch.tolerated_failures)
    reason = why_batch_failed(counts, batch.tolerated_failures) if state is BatchState.FAILED else None
    return BatchSummary.taken_from(batch, status=state, counts=counts, reason=reason)


async def list_batches(limit: int, cursor: str | None) -> tuple[list[BatchSummary], str | None]:
    """Return documents of batches without their items, the newest first, and the cursor of the next ones.

    A page that is shorter than the limit may have a cursor.
    """
    page = await tables.rows_between(TABLE, CREATED, limit=limit, cursor=cursor)
    documents = await asyncio.gather(*(find_summary(row["RowKey"].partition("-")[2]) for row in page.rows))
    return [document for document in documents if document is not None], page.cursor


async def find_summary(batch_id: str) -> BatchSummary | None:
    """Return where a batch stands, without its items; None when there is none of this id."""
    batch = await find_batch(batch_id)
    if batch is None:
        return None  # A crash came before it was accepted.
    return _summary_of(batch, batch.counts or await _count_items(batch_id))


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
        return row | contents.packed("operation", json.dumps(item.operation.to_json()))
    return row | contents.packed("text", item.text[:_MAX_TEXT_CHARS])


def _item_of_row(row: tables.Row) -> BatchItem:
    return BatchItem(
        index=int(row["RowKey"].removeprefix(_ITEM_PREFIX)),
        key=row["key"] or None,
        operation_id=row["operation_id"] or None,
        status=_status_of_item(row),
        error=row.get("error") or None,
    )


def _unreadable_item(index: int, reason: str) -> BatchItem:
    return BatchItem(index=index, error=f"This row cannot be read: {reason}", unreadable=reason)


def _transactions_of_rows(rows: Iterable[tables.Row]) -> Iterator[list[tables.Row]]:
    for group in batched(rows, tables.MOST_CHANGES, strict=False):
        transaction: list[tables.Row] = []
        size = 0
        for row in group:
            row_size = len(json.dumps(row))
            if transaction and size + row_size > _BYTES_AT_ONCE:
                yield transaction
                transaction, size = [], 0
            transaction.append(row)
            size += row_size
        yield transaction
