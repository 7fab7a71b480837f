"""Operations as parts of a batch or a saga: started like any other, and told apart by their keys only."""

from dataclasses import replace
from datetime import datetime

from engine.deadline import deadline_of
from engine.ending import Ending
from engine.operation import OperationInput
from engine.vocabulary import Category, DeadLetterReason, OperationState
from stores.dead_letters import keep_operation
from stores.submission import KeyReused, Replayed, Started, submit

_KEY_REUSED = "the key belongs to another request"


async def take_part(hub: str, operation: OperationInput, now: datetime) -> Ending | None:
    """Start an operation unless its key was used before, and tell how it ended if it has.

    It reports its end to `operation.reports_to`, but only when it was started here: one that was submitted
    elsewhere under the same key knows of nobody who waits, so whoever does calls this again now and then.

    Args:
        hub: Configuration of the durable client.
        operation: Resolved when the batch or the saga was accepted; its deadline counts from now.
        now: Aware UTC instant.

    Returns:
        None while it runs.

    Raises:
        TaskHubUnavailableError: It was not taken over.
        azure.core.exceptions.AzureError: The dead letter of a key that is taken could not be written.
    """
    started = replace(
        operation, created_at=now, deadline_at=deadline_of(now, operation.timeouts.deadline_seconds)
    )
    match await submit(hub, started):
        case Started():
            return None
        case Replayed(document):
            return Ending.of(document)
        case KeyReused():
            return await _refused(operation, now)


async def _refused(operation: OperationInput, now: datetime) -> Ending:
    """Leave an operation to a person whose key stands for something else: it can never run."""
    is_compensation = operation.undoes is not None
    reason = DeadLetterReason.COMPENSATION_FAILED if is_compensation else DeadLetterReason.VALIDATION_FAILED
    entry = {
        "operation": operation.to_json(),
        "category": Category.MALFORMED.value,
        "reason": reason.value,
        "detail": _KEY_REUSED,
        "attempts": [],
    }
    await keep_operation(entry, now)
    return Ending(
        operation_id=operation.operation_id,
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{reason.value}: {_KEY_REUSED}",
    )
