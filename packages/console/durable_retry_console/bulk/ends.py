"""How that ended which a bulk action started: looked up, and counted.

The orchestration has the ends counted again and again until nothing is under way. An end that was seen is
kept with the item, so that it is looked up once, and outlives the operation's record.
"""

from collections import Counter
from functools import partial
from typing import Any, Final

from durable_retry.base.answers import Page
from durable_retry.base.names import FINISHED, EventState, OperationState
from durable_retry.dead_letters.records import find_dead_letters
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import find_status
from durable_retry.runtime.concurrency import map_bounded
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.replay import part_of
from durable_retry_console.bulk.shapes import BulkAction
from durable_retry_console.bulk.store import keep_items, list_items
from durable_retry_console.optional import of_features

_AT_ONCE: Final = 8
_PAGE: Final = 100
# Pages that one activity counts: at most 1,000 items are looked up, a few seconds of work.
_PAGES_AT_ONCE: Final = 10


async def items_page(
    hub: TaskHub, action_id: str, action: BulkAction, *, limit: int, cursor: str | None
) -> Page[BulkItem]:
    """Return what became of the items of a bulk action, the latest first."""
    kept, following = await list_items(action_id, limit=limit, cursor=cursor)
    look = partial(_seen_item, hub, action_id, action)
    items = await map_bounded(look, (item for _, item in kept), _AT_ONCE)
    if action.is_of_dead_letters and (nameless := [item.id for item in items if item.key is None]):
        keys = {record.id: record.key for record in await find_dead_letters(nameless) if record is not None}
        items = [item if item.key else item.model_copy(update={"key": keys.get(item.id)}) for item in items]
    return Page[BulkItem](items=tuple(items), next_cursor=following)


async def count_ends(hub: TaskHub, action_id: str, action: BulkAction, cursor: str | None) -> dict[str, Any]:
    """Count the ends of a part of what was started, and keep those that are new.

    Returns:
        `succeeded`, `failed_again`, `under_way`, and the `cursor` of the next part; None at the end.
    """
    counts: Counter[str] = Counter(succeeded=0, failed_again=0, under_way=0)
    look = partial(_seen_item, hub, action_id, action)
    for _ in range(_PAGES_AT_ONCE):
        kept, cursor = await list_items(action_id, limit=_PAGE, cursor=cursor)
        waiting = [(key, item) for key, item in kept if item.is_under_way]
        seen = await map_bounded(look, (item for _, item in waiting), _AT_ONCE)
        ended = [(key, item) for (key, _), item in zip(waiting, seen, strict=True) if not item.is_under_way]
        await keep_items(action_id, ended)
        over = [item for _, item in kept if item.outcome is ItemOutcome.DONE and not item.is_under_way]
        counts.update(_COUNTS[item.succeeded] for item in (*over, *seen))
        if cursor is None:
            break
    return {**counts, "cursor": cursor}


_COUNTS: Final = {None: "under_way", True: "succeeded", False: "failed_again"}


async def _seen_item(hub: TaskHub, action_id: str, action: BulkAction, item: BulkItem) -> BulkItem:
    """Return an item with where it stands now, unless its end was seen before."""
    if item.status is not None:
        return item
    status, dead_letter_id, key = await _standing_of_item(hub, action_id, action, item)
    named = {"status": status, "key": item.key or key}
    if not item.is_under_way:
        return item.model_copy(update=named)
    succeeded = None
    wanted = OperationState.CANCELLED if action is BulkAction.CANCEL else OperationState.SUCCEEDED
    if status in {None, wanted, EventState.SENT}:
        # A record that is gone expired after its end, and a dead letter would have been found.
        succeeded = True
    elif status in FINISHED or status is EventState.FAILED:
        succeeded = False
    return item.model_copy(update=named | {"succeeded": succeeded, "failed_again": dead_letter_id})


async def _standing_of_item(
    hub: TaskHub, action_id: str, action: BulkAction, item: BulkItem
) -> tuple[OperationState | EventState | None, str | None, str | None]:
    """Return where the operation or the event stands, the dead letter that a replay ended as, and the key."""
    if item.event_id is not None:
        places = {"outbox": "durable_retry.features.outbox.event_store:find_event"}
        found = [await find(item.event_id) for find in of_features(places).values()]
        return next((event.event.state for event in found if event is not None), None), None, None
    document = None if item.operation_id is None else await find_status(hub, item.operation_id)
    status, key = (
        (None, None) if document is None else (OperationState(document["status"]), document.get("key"))
    )
    if item.operation_id is None or action is not BulkAction.REPLAY:
        return status, None, key
    dead_letter_id = None if document is None else (document["dead_letter"] or {}).get("id")
    if document is not None and document.get("replay_of") == item.id:
        return status, dead_letter_id, key
    # It was replayed again meanwhile, or its history was purged.
    mine = await part_of(action_id, item.id)
    if mine is not None and mine.dead_letter_id is not None:
        return OperationState.DEAD_LETTERED, mine.dead_letter_id, key
    # The run that the dead letter came from shows until that of the replay does.
    return (OperationState.PENDING if dead_letter_id == item.id else status), None, key
