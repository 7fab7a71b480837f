"""Ends of operations that the record of their key did not learn of.

An operation completes the record of its key by a signal, and the platform drops the signals of an entity
batch whose worker dies. The history of the operation answers all the same, for as long as it is kept. Two
looks find such a record, so that it has the end before the history goes:

    complete_lost       each operation once, 10 to 15 minutes after it was accepted: one read of its record
    complete_lost_end   what ended later: when retention is about to purge the history

Both make a dead letter of an operation whose key is claimed and whose instance is gone: somebody purged it by
its id while it ran.

The first look also compares the end with the list of what failed: a process that is killed at once after a
pause has not announced that it may lose a note.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from itertools import batched
from typing import Final

from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import OPERATION, DeadLetterReason, OperationState
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.operations.idempotency import KeyCompletion, KeyRecord
from durable_retry.engine.operations.status import checked_document, last_error
from durable_retry.services.upkeep.failures import completion_of
from durable_retry.stores.dead_letters.records import keep_message
from durable_retry.stores.operations import index as operation_index
from durable_retry.stores.operations.index import OperationList, buckets
from durable_retry.stores.operations.key_record import complete_record, read_record
from durable_retry.stores.operations.notes import is_listed, note_document
from durable_retry.stores.operations.status import GONE, document_of_gone, is_gone
from durable_retry.stores.storage import rounds
from durable_retry.stores.task_hub import TaskHub

SETTLED_AFTER: Final = timedelta(minutes=10)
"""By then most operations have ended and their signals arrived: a dead host hides them for minutes."""

WINDOW: Final = timedelta(minutes=5)
"""Operations accepted within so long are looked at together."""

GONE_KEPT: Final = timedelta(days=1)
"""How long a key answers whose operation is gone, and with it how long it was to answer."""

_AT_ONCE: Final = 32

PLACE: Final = "lost-ends"

_log = logging.getLogger(__name__)


async def complete_lost(hub: TaskHub, now: datetime, seconds: float) -> int:
    """Look at the records of operations accepted since the last run; return how many were completed.

    Args:
        seconds: When to stop; the next run goes on.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run goes on.
    """
    stop_at, until = clock.monotonic_seconds() + seconds, now - SETTLED_AFTER
    place = (await rounds.read_round(operation_index.TABLE, PLACE)).after
    since = read_or(lambda: from_rfc3339(place), lambda _: until - WINDOW)  # The first time there is none.
    completed = 0
    while since < until and clock.monotonic_seconds() < stop_at:
        end = min(since + WINDOW, until)
        failed = await states_in_list(OperationList.FAILED, since, end)
        for some in batched(await states_in_list(OperationList.ALL, since, end), _AT_ONCE, strict=False):
            looks = (_was_completed(hub, each, failed.get(each)) for each in some)
            completed += sum(await asyncio.gather(*looks))
        since = end
        await rounds.write_round(operation_index.TABLE, rounds.Round(to_rfc3339(since)), PLACE)
    if completed:
        _log.warning("completed the records of %d operations whose signal was lost", completed)
    return completed


async def states_in_list(
    kind: OperationList, since: datetime | None, before: datetime | None = None
) -> dict[str, OperationState | None]:
    """Return the operations of a list with their states there, of those accepted in a window.

    Args:
        since: Where the window begins; None for all.
        before: Where it ends, exclusive; None for now.
    """
    states: dict[str, OperationState | None] = {}
    async for begin, _, entries in buckets(kind, before):
        # A replay is listed once more, at its own time: the latest entry counts.
        states = {
            each.operation_id: each.status
            for each in entries
            if (since is None or since <= each.created_at) and (before is None or each.created_at < before)
        } | states
        if since is not None and begin <= since:
            break
    return states


async def _was_completed(hub: TaskHub, operation_id: str, failed: OperationState | None) -> bool:
    """Complete a record that needs it; one that nobody can read must not hold the others up."""
    try:
        record = await read_record(hub, operation_id)
        if record is None or record.document is None:
            return await _complete_record(hub, operation_id, record)
        document = checked_document(record.document)
        if not is_listed(OperationState(document["status"]), failed):
            note_document(document, last_error(document), is_known=True)
    except ValueError as error:
        _log.warning("the record of %s cannot be read: %s", operation_id, error)
    return False


async def complete_lost_end(hub: TaskHub, operation_id: str) -> bool:
    """Complete the record of an operation that has ended; return whether it lacked the end.

    Raises:
        UnreadableRecordError: Nobody can read the record.
        TaskHubUnavailableError: The task hub did not answer.
    """
    return await _complete_record(hub, operation_id, await read_record(hub, operation_id))


async def _complete_record(hub: TaskHub, operation_id: str, record: KeyRecord | None) -> bool:
    if record is not None and record.document is not None:
        return False
    instance = await hub.read_instance(operation_id)
    if record is not None and instance is None and await is_gone(hub, operation_id):
        await _keep_gone(hub, operation_id, record)
        return True
    if instance is None or instance.runtime_status is not OrchestrationStatus.COMPLETED:
        return False
    if instance.output is None:
        return False
    completion = completion_of(instance, instance.updated_at)
    ttl = timedelta(seconds=completion.ttl_seconds)
    if record is None and instance.updated_at + ttl <= clock.now():
        return False  # It has expired.
    await complete_record(hub, operation_id, completion, record)
    return True


async def _keep_gone(hub: TaskHub, operation_id: str, record: KeyRecord) -> None:
    """Make an operation a dead letter whose instance is gone: what it did, and was to do, is not known."""
    dead_letter_id = await keep_message(
        "",
        source=OPERATION,
        message_id=operation_id,
        reason=DeadLetterReason.AMBIGUOUS_OUTCOME,
        detail=GONE,
        now=record.claimed_at,
    )
    completion = KeyCompletion(
        owner=record.owner,
        fingerprint=record.fingerprint,
        document=document_of_gone(operation_id, record, dead_letter_id),
        now=clock.now(),
        ttl_seconds=GONE_KEPT.total_seconds(),
    )
    await complete_record(hub, operation_id, completion, record)
