"""Retention of batches: the rows of one that finished, or was never accepted, then its entry in the list."""

from typing import Final

from durable_retry.features.workflows.batch_store import CREATED, find_batch
from durable_retry.hub.task_hub import TaskHub
from durable_retry.upkeep.removal import ListByTime


async def _is_over(_hub: TaskHub, batch_id: str) -> bool:
    batch = await find_batch(batch_id)
    return batch is None or batch.finished_at is not None


BATCHES: Final = ListByTime("durable_retry.features.workflows.batch_store:TABLE", CREATED, _is_over)
