"""The activity `wake_waiting`: makes some of the operations that wait for a circuit ask it again."""

from typing import Any

from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.runtime.binding import TaskHub
from durable_retry.services.circuits import wake_some


async def wake_waiting(step: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Wake the waiting operations on the next pages of the task hub; waking one twice is harmless.

    Args:
        step: `dependency`; `changed_at`: since when every worker sees the change; `position`: `following` of
            the step before, None for the first.

    Returns:
        `woken`, the number of operations, and `following`, where the next step begins; None after the last.
    """
    changed_at = from_rfc3339(step["changed_at"])
    woken, following = await wake_some(hub, step["dependency"], changed_at, step["position"])
    return {"woken": woken, "following": following}
