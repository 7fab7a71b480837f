"""The activity of a fallback."""

from typing import Any

from durable_retry.features.fallback import leaving
from durable_retry.features.fallback.rules import LeaveCall
from durable_retry.hub.binding import TaskHub


async def leave_dependency(asked: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Let an operation leave its dependency for its fallback, or come back from there.

    Args:
        asked: The JSON form of a `LeaveCall`.

    Returns:
        That of a `Departure`.
    """
    return (await leaving.leave_dependency(hub, LeaveCall.from_json(asked))).to_json()
