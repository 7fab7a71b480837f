"""What stands still, where the app looks for it."""

from datetime import datetime

from durable_retry.features.standstill.settings import stuck_after_seconds
from durable_retry.features.standstill.store import Stuck
from durable_retry.features.standstill.stuck import stuck_instances
from durable_retry.hub.task_hub import TaskHub


async def stuck(hub: TaskHub, now: datetime, _letters: object) -> Stuck:
    """Return the orchestrations that no nudge moves; none when no threshold needs it."""
    return await stuck_instances(hub, now) if stuck_after_seconds() > 0 else ()
