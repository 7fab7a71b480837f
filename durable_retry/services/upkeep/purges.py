"""The purge of an operation's history, wherever upkeep decides that it may go.

A purge by id does not look at the instance. Between the look before it and the purge, a person may replay the
dead letter with which the operation ended: that run would be erased after it was answered with 202.
"""

from datetime import datetime

from durable_retry.services.dead_letters.replay import start_if_lost
from durable_retry.stores.instances import Instance
from durable_retry.stores.task_hub import TaskHub


async def purge_operation(
    hub: TaskHub,
    instance: Instance,
    *,
    completed_before: datetime | None = None,
    dead_letter_id: str | None = None,
) -> bool:
    """Purge the history of an operation that has ended, and start a replay again that went with it.

    Args:
        instance: As it was read just before.
        completed_before: Only if it completed and was started before this instant; None for any end.
        dead_letter_id: With which it ended; None where its output says so.

    Returns:
        Whether it was purged.
    """
    if not await hub.purge_instance(instance, completed_before):
        return False
    letter = (instance.output or {}).get("dead_letter")
    kept_id = letter.get("id") if isinstance(letter, dict) else None
    if dead_letter_id or kept_id:
        await start_if_lost(hub, str(dead_letter_id or kept_id))
    return True
