"""Retention of batches: the rows of one that finished, or was never accepted, then its entry in the list."""

from typing import Final

from durable_retry.features.workflows.batch_store import CREATED, TABLE, find_batch
from durable_retry.upkeep.removal import Kind, Past, in_rounds, remove_of_list


async def remove_batches(past: Past) -> tuple[int, str]:
    """Delete batches, and their entries in the list by time."""

    async def is_over(batch_id: str) -> bool:
        batch = await find_batch(batch_id)
        return batch is None or batch.finished_at is not None

    return await remove_of_list(past, TABLE, CREATED, is_over)


BATCHES: Final = Kind(in_rounds(remove_batches), lambda settings: settings.history_for)
