"""The activities of sagas, batches and calls: starting operations, storing or reading how they ended."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import BATCH_CLOSE, BATCH_STEP, LOOK_AT_CALL, START_CALL, SUBMIT
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.services.workflows import begin_call, look_at, refuse_item, start_batch_items, start_item
from durable_retry.stores.task_hub import bind_hub
from durable_retry.stores.workflows import close_batch, find_batch, note_ended

blueprint = df.Blueprint()


async def submit(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Start the operation of a saga's step, or return how it ended. Idempotent.

    Args:
        request: `operation`, an `OperationInput`; `wanted`: JSON pointers to the parts of its result that are
            needed; `missing`: why it can never start, if it cannot.
        hub: Configuration of the durable client.

    Returns:
        `ending`: the JSON form of a `Completion`, or None while it runs.
    """
    operation, now = OperationInput.from_json(request["operation"]), clock.now()
    if (missing := request.get("missing")) is not None:
        return {"ending": (await refuse_item(operation, missing, now)).to_json()}
    completion = await start_item(hub, operation, now, request.get("wanted", ()))
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


async def start_call(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Start the operation of a call. Idempotent.

    Args:
        request: `document`, the body of an operation, and `instance`: whose call it is.
        hub: Configuration of the durable client.

    Returns:
        `operation_id`, or `problems`: why it can never start, pointer and detail of each.
    """
    return await begin_call(hub, request["document"], request["instance"], clock.now())


async def look_at_call(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Look how the operation of a call ended.

    Args:
        request: `operation_id`.
        hub: Configuration of the durable client.

    Returns:
        `document`: its status document, None while it runs; or `problems`, when nothing is left of it.
    """
    return await look_at(hub, request["operation_id"])


blueprint.activity_trigger(input_name="request", activity=SUBMIT)(bind_hub(blueprint)(submit))
blueprint.activity_trigger(input_name="request", activity=BATCH_STEP)(bind_hub(blueprint)(batch_step))
blueprint.activity_trigger(input_name="request", activity=BATCH_CLOSE)(batch_close)
blueprint.activity_trigger(input_name="request", activity=START_CALL)(bind_hub(blueprint)(start_call))
blueprint.activity_trigger(input_name="request", activity=LOOK_AT_CALL)(bind_hub(blueprint)(look_at_call))
