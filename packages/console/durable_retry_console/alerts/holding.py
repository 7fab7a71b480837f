"""What alerts need of operations that their policies hold."""

from datetime import datetime

from durable_retry.features.holding.look import held_operations
from durable_retry.hub.task_hub import TaskHub


async def held(hub: TaskHub, now: datetime, _letters: object) -> dict[str, datetime] | None:
    """Return since when each operation is held, the first first; None where nobody has looked lately."""
    return held_operations(hub, now)
