"""Batches cut at any write and any start, whose reports come late, twice or never: each seed is one life.

Whatever happens, every item is started once, no more run at once than allowed, every item's row says how it
ended, and every bad item has exactly one dead letter. A failing seed is in the test's name.
"""

import asyncio
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from activities.workflows import batch_close, batch_step
from durable_retry.base.names import DeadLetterReason, OperationState
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.workflows.batch_store import (
    Batch,
    Item,
    document_of_batch,
    find_batch,
    keep_batch,
)
from durable_retry.features.workflows.rules.shapes import BatchProgress
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.operation import OperationInput
from orchestrators.batch import batch
from tests.fault.app.workflow_items import PartHub
from tests.support.builders import an_operation
from tests.support.cuts import CutError, Cuts, PartStage, Turns, on_the_clock_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("storage")]

TOTAL, CONCURRENCY = 12, 3
BAD, FAILING, SHARED = {2, 9}, {4}, {6, 7}


def an_item(batch_id: str, index: int) -> Item:
    if index in BAD:
        return Item(index=index, key=None, text=f'"{batch_id}.{index}"', detail="/: must be an object")
    key = f"{batch_id}.shared" if index in SHARED else f"{batch_id}.{index}"
    return Item(index=index, key=key, operation=an_operation(operation_id=f"op-{key}", key=key))


def a_batch(batch_id: str, total: int = TOTAL) -> Batch:
    return Batch(
        batch_id=batch_id,
        fingerprint="f",
        total=total,
        max_concurrency=CONCURRENCY,
        tolerated_failures=2,
        created_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
    )


def fate(operation: OperationInput) -> OperationState:
    failed = any(operation.key.endswith(f".{index}") for index in FAILING)
    return OperationState.DEAD_LETTERED if failed else OperationState.SUCCEEDED


def lived(batch_id: str, cuts: Cuts, rng: Random, *, twice: bool, cut_ratio: float) -> PartHub:
    items = [an_item(batch_id, index) for index in range(TOTAL)]
    stored = a_batch(batch_id)
    hub = PartHub(fate, rng, cut_ratio)
    steps = Turns(
        {"batch_step": lambda given: batch_step(given, TaskHub("hub")), "batch_close": batch_close},
        twice=twice,
    )
    progress = BatchProgress(total=TOTAL, max_concurrency=CONCURRENCY)
    given = {"batch_id": batch_id, "progress": progress.to_json()}
    stage = PartStage(batch, batch_id, given, steps.answer)
    stage.before_turn = lambda _: hub.move_on(stage)
    with cuts.in_place(), hub.in_place(), on_the_clock_of(stage):
        while True:  # The caller repeats a request that was not answered.
            try:
                asyncio.run(keep_batch(stored, items))
                break
            except CutError:
                continue
        stage.run()
    return hub


async def document(batch_id: str) -> dict[str, Any]:
    stored = await find_batch(batch_id)
    assert stored is not None
    return (await document_of_batch(stored)).to_json()


async def bad_letters(batch_id: str) -> list[str]:
    wanted = DeadLetterFilter(reason=DeadLetterReason.VALIDATION_FAILED.value)
    page = await list_dead_letters(wanted, limit=200, cursor=None)
    records = list(page.records)
    while page.cursor is not None:
        page = await list_dead_letters(wanted, limit=200, cursor=page.cursor)
        records += page.records
    return sorted(record.key for record in records if record.key.startswith(f"{batch_id}."))


def check(batch_id: str, hub: PartHub) -> None:
    shown = asyncio.run(document(batch_id))
    ended = {index: "dead_lettered" if index in BAD | FAILING else "succeeded" for index in range(TOTAL)}
    assert {item["index"]: item["status"] for item in shown["items"]} == ended
    assert shown["status"] == "failed", "three failures, two are tolerated"
    keys = {item.key for item in (an_item(batch_id, index) for index in range(TOTAL)) if item.operation}
    assert sorted(hub.started) == sorted(str(key) for key in keys), "each once"
    assert hub.most_running <= CONCURRENCY
    assert asyncio.run(bad_letters(batch_id)) == sorted(f"{batch_id}.{index}" for index in BAD)


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_that_is_cut_now_and_then_ends_as_it_should(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - a seeded simulation
    cuts = Cuts(rng.randint(1, 30), rng.choice(["before", "after"]))
    hub = lived(f"batch-{seed}", cuts, rng, twice=seed % 3 == 0, cut_ratio=0.1)
    check(f"batch-{seed}", hub)
