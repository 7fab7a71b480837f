"""The open dead letters of a batch: what *Replay the failed* means."""

from functools import partial
from typing import Final

from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import find_status
from durable_retry.runtime.concurrency import map_bounded
from durable_retry_console.bulk.bodies import BulkActionBody
from durable_retry_console.optional import of_feature

_READS_AT_ONCE: Final = 16


async def with_batch(hub: TaskHub, body: BulkActionBody) -> BulkActionBody:
    """Return the body with the dead letters of its batch as its selection; as it is without a batch.

    Raises:
        InvalidInputError: There is no such batch, or no operation of it is an open dead letter.
    """
    if body.batch_id is None:
        return body
    find = of_feature("workflows", "durable_retry.features.workflows.batches:find_batch")
    batch = None if find is None else await find(body.batch_id, OperationState.DEAD_LETTERED)
    if batch is None:
        raise InvalidInputError([Problem("/batch_id", "there is no batch of this id")])
    operation_ids = [item.operation_id for item in batch.items if item.operation_id]
    found = await map_bounded(partial(_open_dead_letter, hub), operation_ids, _READS_AT_ONCE)
    if not (ids := [each for each in found if each is not None]):
        raise InvalidInputError([Problem("/batch_id", "no operation of this batch is an open dead letter")])
    return body.model_copy(update={"ids": ids})


async def _open_dead_letter(hub: TaskHub, operation_id: str) -> str | None:
    """Return the dead letter of an operation; None when a replay has succeeded or is under way."""
    document = await find_status(hub, operation_id)
    if document is None or document["status"] != OperationState.DEAD_LETTERED:
        return None
    found: str | None = document["dead_letter"]["id"]
    return found
