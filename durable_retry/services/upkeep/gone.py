"""Operations whose instance vanished while they ran: somebody purged it by its id, from outside."""

import logging
from typing import Any, Final

from durable_retry import clock
from durable_retry.engine.base.names import OPERATION, DeadLetterReason
from durable_retry.engine.base.unreadable import marked
from durable_retry.engine.facts import OperationEnded
from durable_retry.engine.operations.completion import unreadable_completion, unreadable_document
from durable_retry.engine.operations.status import checked_document, last_error
from durable_retry.facts import report
from durable_retry.stores.dead_letters.records import keep_message
from durable_retry.stores.operations.index import OperationEntry
from durable_retry.stores.operations.key_record import complete_record, read_record
from durable_retry.stores.operations.notes import note_document
from durable_retry.stores.task_hub import TaskHub

GONE: Final = "its orchestration was purged from outside while it ran, or the task hub lost it"

_log = logging.getLogger(__name__)

_NAMED: Final = ("key", "dependency", "source", "correlation_id")


async def keep_gone(hub: TaskHub, entry: OperationEntry) -> bool:
    """Make a dead letter of an operation that the index has, without an end, and the task hub has not.

    What it did, and was to do, is not known. Its key answers with the dead letter for a day.

    Returns:
        Whether it is gone. It is not where its record has an end, or cannot be read, or where the task hub
        may never have had it.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if entry.was_answered is False or await hub.read_instance(entry.operation_id) is not None:
        return False
    try:
        record = await read_record(hub, entry.operation_id)
        if record is not None:
            note_document(checked_document(record.document), last_error(record.document), is_known=True)
            return False
    except ValueError as error:
        _log.warning("the record of %s cannot be read: %s", entry.operation_id, error)
        return False
    dead_letter_id = await keep_message(
        "",
        source=OPERATION,
        message_id=entry.operation_id,
        reason=DeadLetterReason.AMBIGUOUS_OUTCOME,
        detail=GONE,
        now=entry.created_at,
    )
    document, given = document_of_gone(entry, dead_letter_id), {"operation": _written(entry)}
    await complete_record(hub, entry.operation_id, unreadable_completion(given, document, clock.now()))
    note_document(document, GONE, is_known=True)
    report(OperationEnded(document, None))
    return True


def document_of_gone(entry: OperationEntry, dead_letter_id: str) -> dict[str, Any]:
    """Return what is known of an operation whose instance is gone."""
    given = {"operation": _written(entry)}
    document = unreadable_document(
        entry.operation_id, given, entry.created_at, dead_letter_id=dead_letter_id, detail=GONE
    )
    reason = {"reason": DeadLetterReason.AMBIGUOUS_OUTCOME.value}
    return document | {"dead_letter": document["dead_letter"] | reason} | marked(GONE)


def _written(entry: OperationEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _NAMED}
