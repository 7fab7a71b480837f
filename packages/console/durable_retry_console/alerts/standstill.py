"""What stands still, where the app looks for it."""

from datetime import datetime

from durable_retry.features.standstill.settings import stuck_after_seconds
from durable_retry.features.standstill.stuck import stuck_instances
from durable_retry.hub.task_hub import TaskHub


async def stuck(hub: TaskHub, now: datetime, _letters: object) -> dict[str, datetime]:
    """Return since when each orchestration is due that no nudge moves; none when no threshold needs it."""
    found = await stuck_instances(hub, now) if stuck_after_seconds() > 0 else ()
    return {each.instance_id: each.since for each in found}
