"""The activity that looks at the operations in an order lane."""

from typing import Any

from durable_retry.features.order import lanes
from durable_retry.hub.binding import TaskHub


async def look_at_lane(request: dict[str, Any], hub: TaskHub) -> object:
    """Remove operations that are over from the front of the lane `order_key`; return how many. Idempotent.

    With `unseen`, an operation that the lane has not seen, it returns the join of that; None when it is over.
    """
    unseen: str | None = request.get("unseen")
    if unseen is None:
        return await lanes.look_at_lane(hub, request["order_key"])
    message = await lanes.find_unseen(hub, unseen)
    return None if message is None else message.to_json()
