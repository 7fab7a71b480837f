"""Bulk actions: to archive or replay many dead letters, to cancel or retry now many operations.

Each is one orchestration (`orchestrators.bulk_replay`): `replay` for replays, `bulk_action` for others. What
a filter means is read page by page while it runs; a selection is in its input.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import grpc
from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import (
    BULK_ACTION,
    CANCEL_EVENT,
    FORM,
    REPLAY,
    RETRY_NOW_EVENT,
    OperationState,
)
from durable_retry.engine.dead_letters.bulk_replay import (
    BulkAction,
    BulkActionBody,
    BulkItem,
    ItemOutcome,
    ReplayProgress,
    ReplayState,
    UnfinishedFilter,
    action_document,
    progress_document,
)
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import FullError, WrongStatusError, archived, noted
from durable_retry.engine.operations.status import is_finished
from durable_retry.services.bulk_replay import part_of
from durable_retry.stores import workflows
from durable_retry.stores.bulk_replay import list_items
from durable_retry.stores.dead_letters.list import count_dead_letters
from durable_retry.stores.dead_letters.records import (
    ContendedError,
    NoSuchDeadLetterError,
    change_dead_letter,
    move_dead_letter,
)
from durable_retry.stores.operations import MAX_SCANNED, NOT_ENDED, find_status, preview_of
from durable_retry.stores.outbox import find_event
from durable_retry.stores.tables import StorageRefusedError
from durable_retry.stores.task_hub import (
    InstanceEndedError,
    Selection,
    client_for,
    operations_page,
    raise_event,
    start_instance,
    task_hub_unavailable,
)
from durable_retry.stores.workflows import note_created

_ID: Final = re.compile(r"(?:replay|bulk)-[0-9a-f]{32}")
_REPLAY_ID: Final = re.compile(r"replay-[0-9a-f]{32}")

_AT_ONCE: Final = 8
_WAITING: Final = frozenset({OperationState.WAITING_RETRY.value, OperationState.WAITING_CIRCUIT.value})

type Wanted = DeadLetterFilter | UnfinishedFilter | None


async def count_matches(hub: str, body: BulkActionBody, wanted: Wanted) -> tuple[int, bool]:
    """Return how many an action would meet, and whether all were looked at.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    if wanted is None:
        return len(dict.fromkeys(body.ids or ())), True
    if isinstance(wanted, DeadLetterFilter):
        return await count_dead_letters(wanted), True
    count, seen, cursor = 0, 0, None
    while True:
        page = await operations_page(hub, _selection(wanted), cursor)
        found = await _matching(hub, wanted, page.instances)
        count, seen, cursor = count + len(found), seen + len(page.instances), page.following
        if cursor is None or seen >= MAX_SCANNED:
            return count, cursor is None


async def start_bulk_action(
    hub: str, body: BulkActionBody, wanted: Wanted, *, matched: int, now: datetime, by: str | None
) -> str:
    """Start a bulk action and return its id.

    Args:
        hub: Configuration of the durable client.
        body: What was asked for.
        wanted: Its filter; None for a selection.
        matched: How many there are, for the progress.
        now: Aware UTC instant.
        by: Who asks for it; None when nobody said.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    is_replay = body.what is BulkAction.REPLAY
    ids = list(dict.fromkeys(body.ids or ()))
    more: dict[str, Any] = {"selected": len(ids)}
    if ids:
        more["page"] = {"ids": ids, "cursor": None}
    if not is_replay:
        more["action"] = body.action
    input_ = {
        "filter": DeadLetterFilter().to_json() if wanted is None else wanted.to_json(),
        "rate_per_second": body.rate_per_second,
        "matched": matched,
        "note": body.note,
        "by": by,
    }
    return await _start(hub, input_ | more, now, is_replay=is_replay)


async def start_bulk_replay(
    hub: str,
    wanted: DeadLetterFilter,
    *,
    rate_per_second: float,
    matched: int,
    note: str | None,
    now: datetime,
    by: str | None = None,
) -> str:
    """Start a bulk replay and return its id; `by` is None when nobody said who asks for it.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    input_ = {
        "filter": wanted.to_json(),
        "rate_per_second": rate_per_second,
        "matched": matched,
        "note": note,
        "by": by,
    }
    return await _start(hub, input_, now, is_replay=True)


async def _start(hub: str, input_: dict[str, Any], now: datetime, *, is_replay: bool) -> str:
    action_id = f"{'replay' if is_replay else 'bulk'}-{uuid.uuid4().hex}"
    created_at = to_rfc3339(now)
    await note_created(workflows.BULK_ACTION, action_id, created_at)
    if is_replay:
        await note_created(workflows.REPLAY, action_id, created_at)
    whole = {"replay_id": action_id, "created_at": created_at, "form": FORM, **input_}
    await start_instance(hub, REPLAY if is_replay else BULK_ACTION, action_id, whole, again=False)
    return action_id


async def find_bulk_action(hub: str, action_id: str) -> dict[str, Any] | None:
    """Return a bulk action's document; None when no instance of this id exists (never started, or purged).

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    found = await _find(hub, action_id) if _ID.fullmatch(action_id) else None
    return None if found is None else action_document(*found)


async def find_bulk_replay(hub: str, replay_id: str) -> dict[str, Any] | None:
    """Return a bulk replay's document, as `find_bulk_action`.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    found = await _find(hub, replay_id) if _REPLAY_ID.fullmatch(replay_id) else None
    return None if found is None else found[0]


async def _find(hub: str, action_id: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return how far it got, as a bulk replay shows it, and its input."""
    client = await client_for(hub)
    try:
        state = await client.get_orchestration_state(action_id)
    except grpc.aio.AioRpcError as error:
        raise task_hub_unavailable(error) from error
    if state is None:
        return None
    given = json.loads(state.serialized_input or "{}")
    ended = _ENDED_WITHOUT_OUTPUT.get(state.runtime_status)
    for text in (state.serialized_output, state.serialized_custom_status):
        if text and isinstance(document := json.loads(text), dict):
            return (document if ended is None else document | {"status": ended.value}), given
    return progress_document(given, ended or ReplayState.PENDING, ReplayProgress()), given


_ENDED_WITHOUT_OUTPUT: Final = {
    OrchestrationStatus.FAILED: ReplayState.FAILED,
    OrchestrationStatus.TERMINATED: ReplayState.CANCELLED,
}


async def unfinished_page(
    hub: str, wanted: UnfinishedFilter, cursor: str | None
) -> tuple[list[str], str | None]:
    """Return the matching operations on the next page of the task hub, and the cursor of the page after it.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    page = await operations_page(hub, _selection(wanted), cursor)
    return await _matching(hub, wanted, page.instances), page.following


def _selection(wanted: UnfinishedFilter) -> Selection:
    return Selection(
        runtime_statuses=NOT_ENDED,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
    )


async def _matching(hub: str, wanted: UnfinishedFilter, instances: Sequence[Any]) -> list[str]:
    """Return the ids of those that match; an operation before its first turn is read to see what it is."""
    found = []
    for preview in map(preview_of, instances):
        status, dependency = preview.status, preview.dependency
        if wanted.dependency is not None and dependency is None:
            document = await find_status(hub, preview.operation_id)
            dependency = None if document is None else document["dependency"]
        if wanted.status in (None, status) and wanted.dependency in (None, dependency):
            found.append(preview.operation_id)
    return found


async def do_some(
    hub: str, action: BulkAction, ids: Sequence[str], *, note: str | None, by: str | None
) -> list[BulkItem]:
    """Do an action other than a replay to some dead letters or operations.

    Returns:
        What became of each, in their order; skipped are those whose state does not allow it.

    Raises:
        TaskHubUnavailableError: The rest was not reached.
    """
    limit = asyncio.Semaphore(_AT_ONCE)
    act = _acts(hub, note, by)[action]

    async def one(each: str) -> BulkItem:
        operation_id = None if action.is_of_dead_letters else each
        async with limit:
            try:
                why_not = await act(each)
            except (ContendedError, StorageRefusedError, FullError) as error:
                return BulkItem.failed(each, error)
        outcome = ItemOutcome.DONE if why_not is None else ItemOutcome.SKIPPED
        return BulkItem(id=each, outcome=outcome, detail=why_not, operation_id=operation_id)

    return list(await asyncio.gather(*map(one, ids)))


type _Act = Callable[[str], Awaitable[str | None]]


def _acts(hub: str, note: str | None, by: str | None) -> dict[BulkAction, _Act]:
    """Return the function of each action.

    It takes an id, and returns why the item's state does not allow the action; None when it was done.
    """

    async def archive(dead_letter_id: str) -> str | None:
        now = clock.now()
        try:
            await move_dead_letter(dead_letter_id, lambda record: archived(record, now, by))
        except NoSuchDeadLetterError:
            return "there is no such dead letter"
        except WrongStatusError as error:
            return str(error)
        if note is not None:
            await change_dead_letter(dead_letter_id, lambda record: noted(record, note, now, by))
        return None

    async def cancel(operation_id: str) -> str | None:
        document = await find_status(hub, operation_id)
        if document is None or is_finished(document):
            return _state_of(document)
        return await _signal(hub, operation_id, CANCEL_EVENT, {"by": by})

    async def retry_now(operation_id: str) -> str | None:
        document = await find_status(hub, operation_id)
        if document is None or document["status"] not in _WAITING:
            return _state_of(document)
        # As for one operation: the event names the attempt that it is for.
        attempt = {"attempt": document["attempt_count"] + 1, "by": by}
        return await _signal(hub, operation_id, RETRY_NOW_EVENT, attempt)

    return {BulkAction.ARCHIVE: archive, BulkAction.CANCEL: cancel, BulkAction.RETRY_NOW: retry_now}


def _state_of(document: Mapping[str, Any] | None) -> str:
    return "there is no such operation" if document is None else f"the operation is {document['status']}"


async def _signal(hub: str, operation_id: str, event: str, data: dict[str, Any]) -> str | None:
    try:
        await raise_event(hub, operation_id, event, data)
    except InstanceEndedError:
        return "the operation has ended meanwhile"
    return None


async def items_page(
    hub: str, action_id: str, *, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return what became of the items of a bulk action, the latest first, and the cursor of the next ones.

    Args:
        hub: Configuration of the durable client.
        action_id: Of the bulk replay or action.
        limit: The most items to return.
        cursor: Of the page before; None to begin.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    found, following = await list_items(action_id, limit=limit, cursor=cursor)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def shown(at: str | None, item: BulkItem) -> dict[str, Any]:
        async with slots:
            status, failed_again = await _end_of(hub, action_id, item)
        return item.to_json() | {"at": at, "status": status, "failed_again": failed_again}

    return list(await asyncio.gather(*(shown(*each) for each in found))), following


async def _end_of(hub: str, action_id: str, item: BulkItem) -> tuple[str | None, str | None]:
    """Return where the operation or the event stands, and the dead letter that a replay ended as."""
    if item.event_id is not None:
        event = await find_event(item.event_id)
        return (None if event is None else event.event.state.value), None
    if item.operation_id is None:
        return None, None
    document = await find_status(hub, item.operation_id)
    if document is None or item.outcome is not ItemOutcome.REPLAYED:
        return (None if document is None else document["status"]), None
    if document.get("replay_of") == item.id:
        return document["status"], (document["dead_letter"] or {}).get("id")
    # It was replayed again meanwhile, or its history was purged.
    mine = await part_of(action_id, item.id)
    if mine is not None and mine.dead_letter_id is not None:
        return OperationState.DEAD_LETTERED.value, mine.dead_letter_id
    return document["status"], None
