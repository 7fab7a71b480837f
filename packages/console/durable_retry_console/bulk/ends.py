"""How that ended which a bulk action started: looked up, and counted.

The orchestration has the ends counted again and again until nothing is under way. An end that was seen is
kept with the item, so that it is looked up once, and outlives the operation's record.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import Any, Final

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import FINISHED, EventState, OperationState
from durable_retry.dead_letters.records import find_dead_letters
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import find_status
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry_console.bulk.document import BulkItem, ItemOutcome
from durable_retry_console.bulk.proof import LATEST, End, failure_text
from durable_retry_console.bulk.replay import part_of
from durable_retry_console.bulk.shapes import BulkAction
from durable_retry_console.bulk.store import keep_items, list_items
from durable_retry_console.optional import of_feature

_AT_ONCE: Final = 8
_PAGE: Final = 100
# Pages that one activity counts: at most 1,000 items are looked up, a few seconds of work.
_PAGES_AT_ONCE: Final = 10


async def items_page(
    hub: TaskHub, action_id: str, action: BulkAction, *, limit: int, cursor: str | None
) -> Page[BulkItem]:
    kept, following = await list_items(action_id, limit=limit, cursor=cursor)
    look = partial(_seen_item, hub, action_id, action)
    items = await map_bounded(look, (item for _, item in kept), _AT_ONCE)
    if action.is_of_dead_letters and (nameless := [item.id for item in items if item.key is None]):
        keys = {record.id: record.key for record in await find_dead_letters(nameless) if record is not None}
        items = [item if item.key else item.model_copy(update={"key": keys.get(item.id)}) for item in items]
    return Page[BulkItem](items=tuple(items), next_cursor=following)


async def bulk_ends(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Count the ends of a part of what was started, and keep those that are new: an activity. Idempotent.

    Args:
        request: `action_id`, `action`, `cursor`, and `resumes` of a replay that has a `Proof`.

    Returns:
        `succeeded`, `failed_again`, `under_way`, and the `cursor` of the next part; None at the end. With
        `resumes` also `ended` as in the `Proof`, and `latest`: an `End` each.
    """
    action_id, cursor, resumes = request["action_id"], request["cursor"], request.get("resumes")
    counts: Counter[str] = Counter(succeeded=0, failed_again=0, under_way=0)
    proving: list[BulkItem] = []
    look = partial(_seen_item, hub, action_id, BulkAction(request["action"]))
    for _ in range(_PAGES_AT_ONCE):
        kept, cursor = await list_items(action_id, limit=_PAGE, cursor=cursor)
        waiting = [(key, item) for key, item in kept if item.is_under_way]
        seen = await map_bounded(look, (item for _, item in waiting), _AT_ONCE)
        ended = [(key, item) for (key, _), item in zip(waiting, seen, strict=True) if not item.is_under_way]
        await keep_items(action_id, ended)
        over = [item for _, item in kept if item.outcome is ItemOutcome.DONE and not item.is_under_way]
        counts.update(_COUNTS[item.succeeded] for item in (*over, *seen))
        proving += (item for item in (*over, *seen) if item.resumes == resumes)
        if cursor is None:
            break
    proof = {} if resumes is None else await _proof_by(proving)
    return {**counts, **proof, "cursor": cursor}


async def _proof_by(items: Iterable[BulkItem]) -> dict[str, Any]:
    """Return what items say of a proof: `ended` and `latest`."""
    waiting, ended = 0, list[tuple[End, BulkItem]]()
    for item in items:
        if item.succeeded is not None and item.ended_at is not None:
            ended.append((End(at=item.ended_at, failed=not item.succeeded), item))
        elif item.status is OperationState.WAITING_ORDER:
            waiting += 1
    latest = nlargest(LATEST, ended, key=lambda pair: pair[0].at)
    newest = next((item for end, item in latest if end.failed), None)
    why = None if newest is None else await _why_failed(newest)
    ends = [replace(end, why=why if item is newest else None).to_json() for end, item in latest]
    return {"ended": waiting + len(ended), "latest": ends}


async def _why_failed(item: BulkItem) -> str:
    """Return what a replay failed with again: `still 422 at /amount`, or `now 500` where that is new."""
    ids = [each for each in (item.failed_again, item.id) if each is not None]
    after, before = (*await find_dead_letters(ids), None)[:2]
    if item.failed_again is None or after is None:
        return f"now {item.status or 'gone'}"
    is_same = before is not None and before.group == after.group
    return f"{'still' if is_same else 'now'} {failure_text(after)}"


_COUNTS: Final = {None: "under_way", True: "succeeded", False: "failed_again"}


async def _seen_item(hub: TaskHub, action_id: str, action: BulkAction, item: BulkItem) -> BulkItem:
    """Return an item with where it stands now, unless its end was seen before."""
    if item.status is not None:
        return item
    present = await _present_item(hub, action_id, action, item)
    if not item.is_under_way:
        return item.model_copy(update={"status": present.status, "key": present.key})
    status, succeeded = present.status, None
    wanted = OperationState.CANCELLED if action is BulkAction.CANCEL else OperationState.SUCCEEDED
    if status in {None, wanted, EventState.SENT}:
        # A record that is gone expired after its end, and a dead letter would have been found.
        succeeded = True
    elif status in FINISHED or status is EventState.FAILED:
        succeeded = False
    ended_at = None if succeeded is None else present.ended_at or clock.now()
    return present.model_copy(update={"succeeded": succeeded, "ended_at": ended_at})


async def _present_item(hub: TaskHub, action_id: str, action: BulkAction, item: BulkItem) -> BulkItem:
    """Return an item with where its operation or its event stands, and as `ended_at` since when."""
    if item.event_id is not None:
        find = of_feature("outbox", "durable_retry.features.outbox.event_store:find_event")
        event = None if find is None else await find(item.event_id)
        return item.model_copy(update={"status": None if event is None else event.event.state})
    document = None if item.operation_id is None else await find_status(hub, item.operation_id)
    dead_letter_id, stands = None, dict[str, Any]()
    if document is not None:
        dead_letter_id = (document["dead_letter"] or {}).get("id")
        stands = {"status": OperationState(document["status"]), "key": item.key or document.get("key")}
        stands["ended_at"] = from_rfc3339(document["updated_at"])
    if document is not None and document.get("replay_of") == item.id:
        stands["failed_again"] = dead_letter_id
    elif item.operation_id is not None and action.is_replay:
        # It was replayed again meanwhile, or its history was purged.
        mine = await part_of(action_id, item.id)
        if mine is not None and mine.dead_letter_id is not None:
            ended = {"failed_again": mine.dead_letter_id, "ended_at": None}
            stands |= {"status": OperationState.DEAD_LETTERED, **ended}
        elif dead_letter_id == item.id:
            # The run that the dead letter came from shows until that of the replay does.
            stands["status"] = OperationState.PENDING
    return item.model_copy(update=stands)
