"""How that ended which a bulk replay or another bulk action started: looked up, and counted.

The orchestration has the ends counted again and again until nothing is under way. An end that was seen is
kept in the item's row, so that it is looked up once, and outlives the operation's record.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.names import FINISHED, EventState, OperationState
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.stores.operations.status import find_status
from durable_retry.stores.outbox.events import find_event
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.bulk.document import BulkItemDocument
from durable_retry_console.bulk.replay import part_of
from durable_retry_console.bulk.shapes import BulkAction, BulkItem, ItemEnd, ItemOutcome
from durable_retry_console.bulk.store import KeptItem, keep_ends, list_items

_AT_ONCE: Final = 8
_PAGE: Final = 100
# Pages that one activity counts: at most 1,000 items are looked up, a few seconds of work.
_PAGES_AT_ONCE: Final = 10


async def items_page(
    hub: TaskHub, action_id: str, *, limit: int, cursor: str | None
) -> Page[BulkItemDocument]:
    """Return what became of the items of a bulk action, the latest first."""
    found, following = await list_items(action_id, limit=limit, cursor=cursor)

    async def shown(kept: KeptItem) -> BulkItemDocument:
        item, end = kept.item, kept.end
        status, failed_again = (
            await _standing_of_item(hub, action_id, item) if end is None else (end.status, end.dead_letter_id)
        )
        more = {"at": kept.at, "status": status, "failed_again": failed_again}
        return BulkItemDocument.read({**asdict(item), **more})

    items = await map_bounded(shown, found, _AT_ONCE)
    return Page[BulkItemDocument](items=tuple(items), next_cursor=following)


async def count_ends(hub: TaskHub, action_id: str, action: BulkAction, cursor: str | None) -> dict[str, Any]:
    """Count the ends of a part of what was started, and keep those that are new.

    Returns:
        `succeeded`, `failed_again`, `under_way`, and the `cursor` of the next part; None at the end.
    """
    counts: Counter[str] = Counter(succeeded=0, failed_again=0, under_way=0)
    for _ in range(_PAGES_AT_ONCE):
        page, cursor = await list_items(action_id, limit=_PAGE, cursor=cursor)
        ends = await _ends_of_items(hub, action_id, action, [each for each in page if each.item.is_started])
        counts.update(_name_of_count(end) for _, end in ends)
        new = [(kept, end) for kept, end in ends if end is not None and kept.end is None]
        await keep_ends(action_id, new)
        if cursor is None:
            break
    return {**counts, "cursor": cursor}


def _name_of_count(end: ItemEnd | None) -> str:
    if end is None:
        return "under_way"
    return "succeeded" if end.succeeded else "failed_again"


async def _ends_of_items(
    hub: TaskHub, action_id: str, action: BulkAction, items: Sequence[KeptItem]
) -> list[tuple[KeptItem, ItemEnd | None]]:
    async def end(kept: KeptItem) -> ItemEnd | None:
        if kept.end is not None:
            return kept.end
        return await _end_of_item(hub, action_id, action, kept.item)

    return list(zip(items, await map_bounded(end, items, _AT_ONCE), strict=True))


async def _end_of_item(hub: TaskHub, action_id: str, action: BulkAction, item: BulkItem) -> ItemEnd | None:
    if not action.has_later_end:
        return ItemEnd(succeeded=True)
    status, dead_letter_id = await _standing_of_item(hub, action_id, item)
    wanted = OperationState.CANCELLED if action is BulkAction.CANCEL else OperationState.SUCCEEDED
    if status in {None, wanted, EventState.SENT}:
        # A record that is gone expired after its end, and a dead letter would have been found.
        return ItemEnd(succeeded=True, status=status)
    if status in FINISHED or status == EventState.FAILED:
        return ItemEnd(succeeded=False, status=status, dead_letter_id=dead_letter_id)
    return None


async def _standing_of_item(hub: TaskHub, action_id: str, item: BulkItem) -> tuple[str | None, str | None]:
    """Return where the operation or the event stands, and the dead letter that a replay ended as."""
    if item.event_id is not None:
        event = await find_event(item.event_id)
        return (None if event is None else event.event.state.value), None
    if item.operation_id is None:
        return None, None
    document = await find_status(hub, item.operation_id)
    status = None if document is None else document["status"]
    if item.outcome is not ItemOutcome.REPLAYED:
        return status, None
    dead_letter_id = None if document is None else (document["dead_letter"] or {}).get("id")
    if document is not None and document.get("replay_of") == item.id:
        return status, dead_letter_id
    # It was replayed again meanwhile, or its history was purged.
    mine = await part_of(action_id, item.id)
    if mine is not None and mine.dead_letter_id is not None:
        return OperationState.DEAD_LETTERED.value, mine.dead_letter_id
    # The run that the dead letter came from shows until that of the replay does.
    return (OperationState.PENDING.value if dead_letter_id == item.id else status), None
