import json
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from durable_retry.base.names import OperationState
from durable_retry.features.retention.walks import remove_of_list
from durable_retry.features.workflows.batch_store import (
    TABLE,
    Batch,
    Item,
    close_batch,
    document_of_batch,
    find_batch,
    keep_batch,
    list_batches,
    note_ended,
    note_running,
    read_item,
)
from durable_retry.features.workflows.batches import start_batch_items
from durable_retry.features.workflows.removal import BATCHES
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.completion import Completion
from durable_retry.storage import tables
from durable_retry.upkeep.removal import Past
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("storage")


def a_batch(batch_id: str, total: int, *, days: int = 0) -> Batch:
    return Batch(
        batch_id=batch_id,
        fingerprint="f",
        total=total,
        max_concurrency=10,
        tolerated_failures=0,
        created_at=NOON + timedelta(days=days),
    )


def an_item(index: int, body: str = "") -> Item:
    request = {"method": "POST", "path": "/", "query": {}, "headers": {}, "body": body}
    operation = an_operation(operation_id=f"op-{index}", key=f"k{index}", request=request)
    return Item(index=index, key=operation.key, operation=operation)


@pytest.mark.long
async def test_large_items_are_stored_whole_however_many_transactions_that_takes() -> None:
    items = [an_item(index, "x" * 60_000) for index in range(120)]
    await keep_batch(a_batch("batch-large", 120), items)
    read = await read_item("batch-large", 119)
    assert read.operation == items[119].operation
    batch = existing(await find_batch("batch-large"))
    assert (await document_of_batch(batch)).counts.pending == 120


async def test_storing_a_batch_again_takes_nothing_back() -> None:
    batch, items = a_batch("batch-again", 1), [an_item(0)]
    await keep_batch(batch, items)
    completion = Completion(operation_id="op-0", status=OperationState.SUCCEEDED)
    await note_ended("batch-again", {0: completion})
    await keep_batch(batch, items)
    assert (await document_of_batch(batch)).items[0].status == "succeeded"


async def test_ends_that_come_together_are_stored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request after the other, a hundred ends would hold up the items that wait for a place."""
    await keep_batch(a_batch("batch-ends", 150), [an_item(index) for index in range(150)])
    ends = {
        index: Completion(operation_id=f"op-{index}", status=OperationState.SUCCEEDED) for index in range(150)
    }
    transact = AsyncMock(side_effect=tables.transact)
    monkeypatch.setattr(tables, "transact", transact)
    monkeypatch.setattr(tables, "merge", transact)
    await note_ended("batch-ends", ends)
    assert transact.await_count == 2
    assert (await document_of_batch(a_batch("batch-ends", 150))).counts.succeeded == 150


async def test_a_late_execution_does_not_say_running_of_what_has_ended() -> None:
    await keep_batch(a_batch("batch-late", 1), [an_item(0)])
    late = await read_item("batch-late", 0)
    failed = Completion(operation_id="op-0", status=OperationState.DEAD_LETTERED, error="no")
    await note_ended("batch-late", {0: failed})
    await note_running("batch-late", late)
    item = (await document_of_batch(a_batch("batch-late", 1))).items[0]
    assert (item.status, item.error) == ("dead_lettered", "no")


async def test_a_late_look_does_not_say_running_of_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation reports its end before its own history says that it has ended."""

    monkeypatch.setattr("durable_retry.features.workflows.batches.start_item", AsyncMock(return_value=None))
    await keep_batch(a_batch("batch-look", 1), [an_item(0)])
    assert await start_batch_items(TaskHub("hub"), "batch-look", [0]) == [(0, "op-0")]
    await note_ended("batch-look", {0: Completion(operation_id="op-0", status=OperationState.SUCCEEDED)})
    assert await start_batch_items(TaskHub("hub"), "batch-look", [0]) == []
    assert (await document_of_batch(a_batch("batch-look", 1))).items[0].status == "succeeded"


async def test_a_list_shows_how_a_finished_batch_ended_without_its_items() -> None:
    await keep_batch(a_batch("batch-listed", 2), [an_item(0), an_item(1)])
    await note_ended("batch-listed", {0: Completion(operation_id="op-0", status=OperationState.SUCCEEDED)})

    async def listed() -> dict[str, Any]:
        documents, _ = await list_batches(200, None)
        return next(one.to_json() for one in documents if one.batch_id == "batch-listed")

    running = await listed()
    assert (running["status"], running["counts"]["succeeded"], running["counts"]["pending"]) == (
        "running",
        1,
        1,
    )
    await note_ended("batch-listed", {1: Completion(operation_id="op-1", status=OperationState.CANCELLED)})
    await close_batch(existing(await find_batch("batch-listed")), NOON)
    for index in range(2):
        await tables.delete(TABLE, "batch-listed", f"item-{index:04d}")
    ended = await listed()
    assert (ended["status"], ended["counts"]["total"], ended["counts"]["cancelled"]) == ("failed", 2, 1)


async def test_a_bad_item_is_kept_as_it_came() -> None:
    text = json.dumps({"dependency": 5})
    await keep_batch(a_batch("batch-bad", 1), [Item(index=0, key="k", text=text, detail="/dependency: no")])
    item = await read_item("batch-bad", 0)
    assert (item.operation, item.text, item.key) == (None, text, "k")


async def test_finished_batches_go_after_their_time_and_others_stay() -> None:
    for name, days in (("batch-old", -30), ("batch-running", -30), ("batch-young", -1)):
        await keep_batch(a_batch(name, 150, days=days), [an_item(index) for index in range(150)])
    for name in ("batch-old", "batch-young"):
        await close_batch(existing(await find_batch(name)), NOON)

    past = Past(hub=TaskHub(""), now=NOON, before=NOON - timedelta(days=7))
    assert [await remove_of_list(BATCHES, past) for _ in range(2)] == [(1, ""), (0, "")]

    assert await find_batch("batch-old") is None
    assert (await tables.rows_between(TABLE, "batch-old")).rows == []
    assert await find_batch("batch-running") is not None
    assert await find_batch("batch-young") is not None
