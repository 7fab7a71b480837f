"""Which orchestrations stand still, where the app looks for them."""

from datetime import datetime

from durable_retry.features.standstill.store import Stuck
from durable_retry.features.standstill.stuck import stuck_instances
from durable_retry.hub.task_hub import TaskHub
from durable_retry.settings.configuration import app_settings


async def stuck(hub: TaskHub, now: datetime, _letters: object) -> Stuck:
    """Return the orchestrations that no nudge moves; none when no threshold needs it."""
    return await stuck_instances(hub, now) if app_settings().alert_stuck_seconds > 0 else ()
