"""The activity `look_at_lane`: whether those in front of an order lane are still there, or one before it."""

import azure.durable_functions as df

from durable_retry.binding import TaskHub, bind_hub
from durable_retry.engine.base.names import LOOK_AT_LANE
from durable_retry.services import order_lanes

blueprint = df.Blueprint()


async def look_at_lane(request: dict, hub: TaskHub) -> object:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Let go on who waits for nobody: `order_key`. Idempotent. Returns how many places were taken away.

    With `unseen`, an operation that the lane has not seen, it returns the join of that; None when it is over.
    """
    unseen: str | None = request.get("unseen")
    if unseen is None:
        return await order_lanes.look_at_lane(hub, request["order_key"])
    message = await order_lanes.find_unseen(hub, unseen)
    return None if message is None else message.to_json()


blueprint.activity_trigger(input_name="request", activity=LOOK_AT_LANE)(bind_hub(blueprint)(look_at_lane))
