"""The activities that keep the app going: retention, and who waits for a circuit."""

from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.circuit.circuits import wake_some
from durable_retry.hub.binding import TaskHub
from durable_retry.runtime import clock
from durable_retry.upkeep.rounds import STEP_SECONDS, RetentionPart
from durable_retry.upkeep.rounds import remove_past as remove


async def remove_past(part: dict[str, Any], hub: TaskHub) -> bool:
    """Remove one part until nothing is left or the time of a step is up. Idempotent.

    Args:
        part: `kind` and `shard`.

    Returns:
        Whether more may be left.
    """
    return await remove(hub, RetentionPart(part["kind"], part["shard"]), clock.now(), STEP_SECONDS)


async def wake_waiting(step: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Wake the waiting operations on the next pages of the task hub; waking one twice is harmless.

    Args:
        step: `dependency`; `changed_at`: since when every worker sees the change; `position`: `following` of
            the step before, None for the first; `limit_key`: only operations that have it.

    Returns:
        `woken`, the number of operations, and `following`, where the next step begins; None after the last.
    """
    changed_at, limit_key = from_rfc3339(step["changed_at"]), step.get("limit_key")
    woken, following = await wake_some(hub, step["dependency"], changed_at, step["position"], limit_key)
    return {"woken": woken, "following": following}
