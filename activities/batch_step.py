"""The activities of a batch: starting items and noting what became of them, and the end."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import azure.durable_functions as df

from engine.ending import Ending
from engine.vocabulary import Category, OperationState
from stores import clock
from stores.batches import Item, close_batch, find_batch, note_ended, note_running, read_item
from stores.dead_letters import keep_message
from stores.parts import take_part
from stores.task_hub import BATCH_CLOSE, BATCH_STEP

blueprint = df.Blueprint()

SOURCE: Final = "batch"

_AT_ONCE: Final = 10


async def batch_step(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Note which items have ended, and start others; the same again changes nothing.

    Args:
        request: `batch_id`; `ended`: items (`indices`) and how their operation ended (`ending`); `start`: the
            items to start, or to look at once more.
        hub: Configuration of the durable client.

    Returns:
        `running`: pairs of index and operation id of those that were started and have not ended.
    """
    batch_id = request["batch_id"]
    for each in request["ended"]:
        await note_ended(batch_id, each["indices"], Ending.from_json(each["ending"]))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def start(index: int) -> list[Any] | None:
        async with gate:
            return await _start(hub, batch_id, index)

    started = await asyncio.gather(*map(start, request["start"]))
    return {"running": [pair for pair in started if pair is not None]}


async def batch_close(request: dict) -> None:  # type: ignore[type-arg] # as above
    """Say of a batch that all its items have ended.

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
        await note_ended(batch_id, [index], await _leave(batch_id, item))
        return None
    ending = await take_part(hub, replace(item.operation, reports_to=batch_id), clock.now())
    if ending is not None:
        await note_ended(batch_id, [index], ending)
        return None
    await note_running(batch_id, item)
    return [index, item.operation.operation_id]


async def _leave(batch_id: str, item: Item) -> Ending:
    """Leave an item to a person that can never be an operation."""
    await keep_message(
        item.text,
        source=SOURCE,
        message_id=f"{batch_id}.{item.index}",
        reason=item.reason,
        detail=item.detail,
        now=clock.now(),
    )
    return Ending(
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
