"""The activities of a batch: starting items, storing how they ended, and closing the batch."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import BATCH_CLOSE, BATCH_STEP, Category, OperationState
from durable_retry.engine.operations.operation import Completion
from durable_retry.services.workflows import start_item
from durable_retry.stores.dead_letters.records import keep_message
from durable_retry.stores.workflows import Item, close_batch, find_batch, note_ended, note_running, read_item

blueprint = df.Blueprint()

SOURCE: Final = "batch"

_AT_ONCE: Final = 10


async def batch_step(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Store how items ended, and start others. Idempotent.

    Args:
        request: `batch_id`; `ended`: items (`indices`) and how their operation ended (`ending`); `start`: the
            items to start, or to look at again.
        hub: Configuration of the durable client.

    Returns:
        `running`: pairs of index and operation id of those that were started and have not ended.
    """
    batch_id = request["batch_id"]
    for each in request["ended"]:
        await note_ended(batch_id, each["indices"], Completion.from_json(each["ending"]))
    limit = asyncio.Semaphore(_AT_ONCE)

    async def start(index: int) -> list[Any] | None:
        async with limit:
            return await _start(hub, batch_id, index)

    started = await asyncio.gather(*map(start, request["start"]))
    return {"running": [pair for pair in started if pair is not None]}


async def batch_close(request: dict) -> None:  # type: ignore[type-arg] # as above
    """Mark a batch as ended.

    Args:
        request: `batch_id`.
    """
    batch = await find_batch(request["batch_id"])
    if batch is not None:
        await close_batch(batch, clock.now())


async def _start(hub: str, batch_id: str, index: int) -> list[Any] | None:
    """Start one item; None when it has ended already."""
    item = await read_item(batch_id, index)
    if item.operation is None:
        await note_ended(batch_id, [index], await _dead_letter(batch_id, item))
        return None
    ending = await start_item(hub, replace(item.operation, reports_to=batch_id), clock.now())
    if ending is not None:
        await note_ended(batch_id, [index], ending)
        return None
    await note_running(batch_id, item)
    return [index, item.operation.operation_id]


async def _dead_letter(batch_id: str, item: Item) -> Completion:
    """Store the dead letter of an item that can never be an operation."""
    await keep_message(
        item.text,
        source=SOURCE,
        message_id=f"{batch_id}.{item.index}",
        reason=item.reason,
        detail=item.detail,
        now=clock.now(),
    )
    return Completion(
        operation_id="",
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{item.reason.value}: {item.detail}",
    )


blueprint.activity_trigger(input_name="request", activity=BATCH_STEP)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(
        batch_step
    )
)
blueprint.activity_trigger(input_name="request", activity=BATCH_CLOSE)(batch_close)
