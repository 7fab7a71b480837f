"""The activity of a circuit that was closed by hand."""

from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.features.circuit_controls.waking import wake_some
from durable_retry.hub.binding import TaskHub


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
