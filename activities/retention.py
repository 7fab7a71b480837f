"""The activity that removes what is past its time."""

from typing import Any

from durable_retry.features.retention.rounds import RetentionPart
from durable_retry.features.retention.rounds import remove_past as remove
from durable_retry.hub.binding import TaskHub
from durable_retry.runtime import clock
from durable_retry.upkeep.rounds import STEP_SECONDS


async def remove_past(part: dict[str, Any], hub: TaskHub) -> bool:
    """Remove one part until nothing is left or the time of a step is up. Idempotent.

    Args:
        part: `kind` and `shard`.

    Returns:
        Whether more may be left.
    """
    return await remove(hub, RetentionPart(part["kind"], part["shard"]), clock.now(), STEP_SECONDS)
