"""What goes after its time, a bounded step at a time; the next run goes on where this one stopped."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

import grpc
from durabletask.client import OrchestrationStatus

from stores.attempt_markers import free_attempt, marked_runs, note_removal_place, removal_place
from stores.dead_letter_index import drop_due, due, unlist_archived
from stores.dead_letters import remove_archived
from stores.status import is_over
from stores.task_hub import TaskHubUnavailableError, client_for

DEAD_LETTERS_PER_STEP: Final = 200

MARKERS_PER_STEP: Final = 1_000

MARKERS_KEPT: Final = timedelta(days=1)
"""Far longer than a task hub takes to give up an execution of an attempt: a marker must outlive them all."""

_PURGE_SECONDS: Final = 30
"""For one purge of histories: far below `functionTimeout`, and what is left goes the next time."""

_CLEAN_SECONDS: Final = 120
"""For one pass over the entities, as long as nothing else of ours takes in a run."""

_FINISHED: Final = [
    OrchestrationStatus.COMPLETED,
    OrchestrationStatus.FAILED,
    OrchestrationStatus.TERMINATED,
]


async def remove_archived_dead_letters(archived_before: datetime) -> int:
    """Remove dead letters that were archived before an instant, at most `DEAD_LETTERS_PER_STEP`.

    The dead letter itself goes first: lists do not show what has no row, and the row that says it is due is
    the last to go, so that a crash in between is made up by the next run.

    Returns:
        How many were looked at.
    """
    waiting = await due(archived_before, DEAD_LETTERS_PER_STEP)
    for entry, archived_at in waiting:
        if await remove_archived(entry.id, archived_at):
            await unlist_archived(entry, archived_at)
        else:
            await drop_due(entry.id, archived_at)
    return len(waiting)


async def remove_attempt_markers(hub: str, marked_before: datetime) -> int:
    """Remove markers that are older than an instant and whose operation has ended.

    Looks at `MARKERS_PER_STEP` at most and goes on behind them the next time, so that operations that wait
    for weeks do not stand in the way of others.

    Returns:
        How many went.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run begins at the same place.
    """
    runs, following = await marked_runs(await removal_place(), MARKERS_PER_STEP)
    removed = 0
    for run in runs:
        if run.marked_at < marked_before and await is_over(hub, run.operation_id):
            for attempt in run.attempts:
                await free_attempt(run.name, attempt)
            removed += len(run.attempts)
    await note_removal_place(following)
    return removed


async def purge_histories(hub: str, started_before: datetime) -> int:
    """Purge finished orchestrations that started before an instant.

    Returns:
        How many.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        result = await client.purge_orchestrations_by(
            created_time_to=started_before,
            runtime_status=_FINISHED,
            timeout=timedelta(seconds=_PURGE_SECONDS),
        )
    except grpc.aio.AioRpcError as error:
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    return result.deleted_instance_count


async def clean_expired_records(hub: str) -> int:
    """Remove the entities whose idempotency record has expired, for two minutes at most.

    Returns:
        How many; 0 when the time was over before the list was.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    client = await client_for(hub)
    try:
        async with asyncio.timeout(_CLEAN_SECONDS):
            result = await client.clean_entity_storage()
    except TimeoutError:
        return 0
    except grpc.aio.AioRpcError as error:
        raise TaskHubUnavailableError(f"the task hub answered {error.code().name}") from error
    return result.empty_entities_removed
