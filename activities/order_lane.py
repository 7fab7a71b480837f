"""The activity `look_at_lane`: whether those in front of an order lane are still there, or one before it."""

from typing import Any

from durable_retry.runtime.binding import TaskHub
from durable_retry.services import order_lanes


async def look_at_lane(request: dict[str, Any], hub: TaskHub) -> object:
    """Let go on who waits for nobody: `order_key`. Idempotent. Returns how many places were taken away.

    With `unseen`, an operation that the lane has not seen, it returns the join of that; None when it is over.
    """
    unseen: str | None = request.get("unseen")
    if unseen is None:
        return await order_lanes.look_at_lane(hub, request["order_key"])
    message = await order_lanes.find_unseen(hub, unseen)
    return None if message is None else message.to_json()
