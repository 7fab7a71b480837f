"""The activity `submit`: starts the operation of a saga's step, or returns how it ended."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import SUBMIT
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.services.workflows import start_item

blueprint = df.Blueprint()


async def submit(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Start an operation. Idempotent.

    Args:
        request: `operation`, an `OperationInput`.
        hub: Configuration of the durable client.

    Returns:
        `ending`: the JSON form of a `Completion`, or None while it runs.
    """
    ending = await start_item(hub, OperationInput.from_json(request["operation"]), clock.now())
    return {"ending": None if ending is None else ending.to_json()}


blueprint.activity_trigger(input_name="request", activity=SUBMIT)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(submit)
)
