"""Acting on some dead letters or operations, as one activity of a bulk action does."""

from collections import Counter
from typing import Any, Final

from durable_retry.base.errors import NoSuchDeadLetterError, NoSuchOperationError, WrongOperationStateError
from durable_retry.base.json_forms import from_rfc3339
from durable_retry.dead_letters.actions import annotate, archive, restore
from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations import actions as operations
from durable_retry.operations.status import find_status
from durable_retry.rules.circuit.snapshot import CLOCKS_APART
from durable_retry.rules.dead_letters.record import WrongStatusError
from durable_retry.rules.operations.waits import Pause, Resume
from durable_retry_console.bulk.document import GONE, BulkItem, ItemOutcome
from durable_retry_console.bulk.replay import act_on_each, replay_some
from durable_retry_console.bulk.shapes import BatchInput, BatchResult, BulkAction, BulkFailure
from durable_retry_console.bulk.store import keep_items, key_of_item


async def bulk_batch(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Do the action to some, and keep what became of each: an activity. Idempotent.

    A `BatchInput` is answered with a `BatchResult`; TaskHubUnavailableError as `replay_some`.
    """
    given = BatchInput.from_json(request)
    if given.action.is_replay:
        items, left, held_until = await replay_some(hub, given)
    else:
        items, left, held_until = await do_some(hub, given), (), None
    turn = {"at": given.now, "resumes": given.resumes}
    places = {item_id: place for place, item_id in enumerate(given.ids)}
    await keep_items(
        given.action_id,
        [(key_of_item(given.now, places[item.id]), item.model_copy(update=turn)) for item in items],
    )
    outcomes = Counter(item.outcome for item in items)
    failed = (item for item in items if item.outcome is ItemOutcome.FAILED)
    return BatchResult(
        started=outcomes[ItemOutcome.DONE],
        skipped=outcomes[ItemOutcome.SKIPPED],
        failures=tuple(BulkFailure(item.id, item.detail or "") for item in failed),
        left=left,
        held_until=held_until,
    ).to_json()


async def do_some(hub: TaskHub, given: BatchInput) -> list[BulkItem]:
    """Do an action other than a replay to some; return what became of each, in their order."""
    # One that is over at once ended well.
    succeeded = None if given.action.has_later_end else True

    async def one(item_id: str) -> BulkItem:
        operation_id = None if given.action.is_of_dead_letters else item_id
        try:
            await _act_on(hub, given, item_id)
        except _WRONG_STATES as error:
            if not await _was_done_to_item(hub, given, item_id):
                why_not = GONE if isinstance(error, NoSuchDeadLetterError) else str(error)
                return BulkItem.skipped(item_id, why_not).model_copy(update={"operation_id": operation_id})
        return BulkItem(id=item_id, outcome=ItemOutcome.DONE, operation_id=operation_id, succeeded=succeeded)

    return await act_on_each(one, given.ids)


_WRONG_STATES: Final = (
    NoSuchDeadLetterError,
    NoSuchOperationError,
    WrongOperationStateError,
    WrongStatusError,
)


async def _act_on(hub: TaskHub, given: BatchInput, item_id: str) -> None:
    match given.action:
        case BulkAction.ARCHIVE:
            await archive(hub, item_id, given.by)
        case BulkAction.RESTORE:
            await restore(item_id)
        case BulkAction.CANCEL:
            await operations.cancel(hub, item_id, given.by)
        case BulkAction.RETRY_NOW:
            await operations.retry_now(hub, item_id, given.by)
        case BulkAction.PAUSE:
            await operations.pause(hub, item_id, given.by, Pause.of(given.options))
        case BulkAction.RESUME:
            await operations.resume(hub, item_id, given.by, Resume.of(given.options))
    if given.note is not None and given.action.is_of_dead_letters:
        await annotate(item_id, given.note, given.by)


async def _was_done_to_item(hub: TaskHub, given: BatchInput, item_id: str) -> bool:
    """Whether an execution of this batch that was cut short did it, as far as the item shows."""
    since = given.now - CLOCKS_APART
    if given.action.is_of_dead_letters:
        record = await find_dead_letter(item_id)
        if record is None or record.archived_at is None:
            return False
        return record.archived_at >= since and record.archived_by == given.by
    document = await find_status(hub, item_id) or {}
    return any(
        (each["action"], each["by"]) == (given.action.value, given.by) and from_rfc3339(each["at"]) >= since
        for each in document.get("actions", ())
    )
