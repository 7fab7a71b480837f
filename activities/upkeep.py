"""The activity `remove_past`: removes one part of what retention keeps no longer, for 25 s."""

from typing import Any

from durable_retry import clock
from durable_retry.runtime.binding import TaskHub
from durable_retry.services.upkeep.rounds import STEP_SECONDS, RetentionKind, RetentionPart
from durable_retry.services.upkeep.rounds import remove_past as remove


async def remove_past(part: dict[str, Any], hub: TaskHub) -> bool:
    """Remove one part until nothing is left or the time of a step is up. Idempotent.

    Args:
        part: `kind` and `shard`.

    Returns:
        Whether more may be left.
    """
    return await remove(
        hub, RetentionPart(RetentionKind(part["kind"]), part["shard"]), clock.now(), STEP_SECONDS
    )
