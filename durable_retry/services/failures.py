"""Operations whose orchestration failed or was terminated before it completed the record of their key.

    failed        dead letter --> record of the key completed --> history purged, when that is seen
    terminated    record of the key completed, as cancelled

An orchestrator ends in a dead letter whatever happens inside it. It fails where it cannot run: a history that
does not fit the code, a limit of the platform. Then nobody would see the operation again. A person may
terminate an orchestration through the platform, instead of cancelling the operation.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.base.text import cut_text
from durable_retry.engine.operations.completion import unreadable_completion, unreadable_document
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.status import STEPS_RUN
from durable_retry.stores.dead_letters.records import keep_operation, keep_unreadable
from durable_retry.stores.operation_notes import note_state, note_steered
from durable_retry.stores.operations import document_of, operation_of
from durable_retry.stores.task_hub import (
    Instance,
    Selection,
    complete_record,
    expire_record,
    instances_of,
    purge_history,
    read_operation,
    read_record,
)

FAILED_PER_RUN: Final = 200

TERMINATED_WITHIN: Final = timedelta(hours=1)
"""Terminated instances stay in the task hub for days; only those that ended within this time are checked."""

_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """A failed operation whose dead letter is kept. `completion` completes the record of its key."""

    dead_letter_id: str
    completion: dict[str, Any]


async def sweep_failed(hub: str, now: datetime) -> int:
    """Make dead letters of operations whose orchestration failed, of at most `FAILED_PER_RUN` in a run.

    Returns:
        How many records were completed; the instances are purged by a later run.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
        azure.core.exceptions.AzureError: Storage did not; the next run repeats it.
    """
    swept = seen = 0
    async for state in instances_of(hub, Selection(runtime_statuses=[OrchestrationStatus.FAILED])):
        swept += await _sweep(hub, state.instanceId, now)
        seen += 1
        if seen == FAILED_PER_RUN:
            break
    return swept


async def sweep_terminated(hub: str, now: datetime) -> int:
    """Complete the records of operations that were terminated lately; their histories stay for their time.

    Returns:
        How many were completed, as cancelled.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run repeats it.
    """
    swept = 0
    async for state in instances_of(hub, Selection(runtime_statuses=[OrchestrationStatus.TERMINATED])):
        if state.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC) >= now - TERMINATED_WITHIN:
            swept += await _complete_terminated(hub, state.instanceId, now)
    return swept


async def _complete_terminated(hub: str, operation_id: str, now: datetime) -> bool:
    instance = await read_operation(hub, operation_id)
    record = await read_record(hub, operation_id)
    is_complete = record is not None and record.document is not None
    if is_complete or instance is None or instance.runtime_status is not OrchestrationStatus.TERMINATED:
        return False
    document = document_of(instance)
    try:
        completion = _completion(operation_of(instance), document, now)
    except (KeyError, TypeError, ValueError):
        completion = unreadable_completion(instance.input, document, now)
    await complete_record(hub, operation_id, completion)
    note_steered(document)
    return True


def _completion(operation: OperationInput, document: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "owner": operation.owner,
        "fingerprint": operation.fingerprint,
        "document": document,
        "now": to_rfc3339(now),
        "ttl_seconds": operation.ttl_seconds,
        "trace": operation.to_json()["trace"],
    }


async def keep_failed(instance: Instance, now: datetime) -> KeptFailure:
    """Keep the dead letter of an operation whose orchestration failed. Idempotent."""
    detail = cut_text(f"the orchestration failed: {instance.failure}", _DETAIL_CHARS)
    try:
        operation, document = operation_of(instance), document_of(instance)
    except (KeyError, TypeError, ValueError):
        return await _keep_unreadable(instance, detail)
    letter = {
        # What the dependency did until then is not known.
        "category": Category.AMBIGUOUS.value,
        "reason": DeadLetterReason.AMBIGUOUS_OUTCOME.value,
        "detail": detail,
    }
    # Before its first turn a document shows the first run, which is not the run that would have been.
    steps_run = document.get(STEPS_RUN, 1)
    operation = replace(operation, steps_run=None if steps_run == 1 else steps_run)
    entry = {"operation": operation.to_json(), "attempts": document["attempts"], **letter}
    dead_letter_id = await keep_operation(entry, now)
    note_state(operation, OperationState.DEAD_LETTERED, detail)
    ended = document | {"dead_letter": {"id": dead_letter_id, **letter}}
    return KeptFailure(dead_letter_id, _completion(operation, ended, now))


async def _sweep(hub: str, operation_id: str, now: datetime) -> bool:
    instance = await read_operation(hub, operation_id)
    if instance is None or instance.runtime_status is not OrchestrationStatus.FAILED:
        return False
    kept = await keep_failed(instance, now)
    record = await read_record(hub, operation_id)
    if record is not None and record.document is not None:
        # Without its history, retention may not find it.
        await expire_record(hub, operation_id, max(now, record.expires_at or now))
        await purge_history(hub, operation_id)
        return False
    await complete_record(hub, operation_id, kept.completion)
    return True


async def _keep_unreadable(instance: Instance, detail: str) -> KeptFailure:
    operation_id, at = instance.instance_id, instance.created_at
    dead_letter_id = await keep_unreadable(operation_id, instance.input, detail, at)
    document = unreadable_document(
        operation_id, instance.input, at, dead_letter_id=dead_letter_id, detail=detail
    )
    return KeptFailure(dead_letter_id, unreadable_completion(instance.input, document, at))
