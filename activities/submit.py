"""The activity `submit`: starts the operation of a saga's step, or tells how it ended."""

import azure.durable_functions as df

from engine.operation import OperationInput
from stores import clock
from stores.parts import take_part
from stores.task_hub import SUBMIT

blueprint = df.Blueprint()


async def submit(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Start an operation, once however often this runs.

    Args:
        request: `operation`, an `OperationInput`.
        hub: Configuration of the durable client.

    Returns:
        `ending`: the JSON form of an `Ending`, or None while it runs.
    """
    ending = await take_part(hub, OperationInput.from_json(request["operation"]), clock.now())
    return {"ending": None if ending is None else ending.to_json()}


blueprint.activity_trigger(input_name="request", activity=SUBMIT)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(submit)
)
