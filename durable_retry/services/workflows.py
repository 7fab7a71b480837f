"""Items of a batch or a saga: operations that are started like any other."""

from dataclasses import replace
from datetime import datetime

from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.operations.operation import Completion, OperationInput
from durable_retry.engine.retry.policy import deadline_of
from durable_retry.services.submit import KeyReused, Replayed, Started, submit
from durable_retry.stores.dead_letters.records import keep_operation

_KEY_REUSED = "the key belongs to another request"


async def start_item(hub: str, operation: OperationInput, now: datetime) -> Completion | None:
    """Start an operation unless its key was used before, and return how it ended if it has.

    An operation that was started here reports its end to `operation.reports_to`. One that was submitted
    elsewhere under the same key reports to nobody, so whoever waits calls this again now and then.

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
            return Completion.of(document)
        case KeyReused():
            return await _refused(operation, now)


async def _refused(operation: OperationInput, now: datetime) -> Completion:
    """Store the dead letter of an operation whose key belongs to another request: it can never run."""
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
    return Completion(
        operation_id=operation.operation_id,
        status=OperationState.DEAD_LETTERED,
        category=Category.MALFORMED,
        error=f"{reason.value}: {_KEY_REUSED}",
    )
