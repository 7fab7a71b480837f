"""The activity that looks at the operations in an order lane."""

from typing import Any

from durable_retry.features.order import lanes
from durable_retry.hub.binding import TaskHub


async def look_at_lane(request: dict[str, Any], hub: TaskHub) -> object:
    """Remove operations that are over from the front of the lane `order_key`; return how many. Idempotent.

    With `unseen`, an operation that the lane has not seen, it returns the join of that; None when it is over.
    With `held`, the dependency of `operation_id`, it returns the `HeldTurn`; None where nothing is held.
    """
    if "held" in request:
        held = await lanes.hold_of(hub, request["held"], request["operation_id"])
        return None if held is None else held.to_json()
    unseen: str | None = request.get("unseen")
    if unseen is None:
        return await lanes.look_at_lane(hub, request["order_key"])
    message = await lanes.find_unseen(hub, unseen)
    return None if message is None else message.to_json()
