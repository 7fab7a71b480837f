"""Retention of remembered steps: rows of operations whose key's time is over, and that cannot be replayed."""

from collections.abc import Iterable
from typing import Final

from durable_retry.base.json_forms import UnreadableRecordError
from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.features.handlers import records
from durable_retry.operations.entities import read_record
from durable_retry.operations.status import document_of
from durable_retry.rules.dead_letters.record import Status
from durable_retry.rules.operations.keys import is_live
from durable_retry.rules.operations.status import is_finished
from durable_retry.storage import tables
from durable_retry.upkeep.failures import completion_of_ended
from durable_retry.upkeep.removal import Past, RowsOfOperations


async def remove_steps(past: Past, operation_id: str, rows: list[tables.Row]) -> int:
    """Delete the remembered steps of an operation that needs them no more; it counts the operations.

    They live as long as the record of the operation's key, and as long as a dead letter that may be replayed
    with them.
    """
    is_old = all(past.has(row, "changed_at") for row in rows)
    letters = {str(row.get("dead_letter_id")) for row in rows}
    if not is_old or await _are_steps_needed(past, operation_id, letters):
        return 0
    await tables.delete_rows(records.TABLE, rows)
    return 1


async def _are_steps_needed(past: Past, operation_id: str, dead_letter_ids: Iterable[str]) -> bool:
    if await _does_key_answer(past, operation_id):
        return True
    return any([await _may_be_replayed(dead_letter_id) for dead_letter_id in dead_letter_ids])


async def _does_key_answer(past: Past, operation_id: str) -> bool:
    """Whether an operation has not ended, or its key's time is not over."""
    instance = await past.hub.read_instance(operation_id)
    if instance is not None:
        completion = completion_of_ended(instance)
        is_over = completion is None or completion.expires_at <= past.now
        return not (is_over and is_finished(document_of(instance)))
    try:
        return is_live(await read_record(past.hub, operation_id), past.now)
    except UnreadableRecordError:
        return True


async def _may_be_replayed(dead_letter_id: str) -> bool:
    """Whether a dead letter, or the last one that its replays became, may be replayed again."""
    letter = await find_dead_letter(dead_letter_id)
    while letter is not None and letter.unreadable is None and letter.status is Status.REPLAYED:
        following = letter.replays[-1].dead_letter_id
        if following is None:
            return False
        letter = await find_dead_letter(following)
    return letter is not None


STEPS: Final = RowsOfOperations(
    "durable_retry.features.handlers.records:TABLE", ("changed_at", "dead_letter_id"), remove_steps
)
