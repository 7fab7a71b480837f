"""The activities of sagas and batches: starting operations, storing how items ended, closing a batch."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import BATCH_CLOSE, BATCH_STEP, SUBMIT
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.services.workflows import start_batch_items, start_item
from durable_retry.stores.task_hub import bind_hub
from durable_retry.stores.workflows import close_batch, find_batch, note_ended

blueprint = df.Blueprint()


async def submit(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Start the operation of a saga's step, or return how it ended. Idempotent.

    Args:
        request: `operation`, an `OperationInput`.
        hub: Configuration of the durable client.

    Returns:
        `ending`: the JSON form of a `Completion`, or None while it runs.
    """
    completion = await start_item(hub, OperationInput.from_json(request["operation"]), clock.now())
    return {"ending": None if completion is None else completion.to_json()}


async def batch_step(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
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
    running = await start_batch_items(hub, batch_id, request["start"])
    return {"running": [list(pair) for pair in running]}


async def batch_close(request: dict) -> None:  # type: ignore[type-arg] # as above
    """Mark a batch as ended.

    Args:
        request: `batch_id`.
    """
    batch = await find_batch(request["batch_id"])
    if batch is not None:
        await close_batch(batch, clock.now())


blueprint.activity_trigger(input_name="request", activity=SUBMIT)(bind_hub(blueprint)(submit))
blueprint.activity_trigger(input_name="request", activity=BATCH_STEP)(bind_hub(blueprint)(batch_step))
blueprint.activity_trigger(input_name="request", activity=BATCH_CLOSE)(batch_close)
