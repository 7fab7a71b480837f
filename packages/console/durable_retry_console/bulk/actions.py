"""Bulk actions: archive or replay many dead letters; cancel, retry now, pause or resume many operations.

Each is one orchestration (`bulk/orchestration.py`): `replay` for replays, `bulk_action` for others. What a
filter means is read page by page while it runs; a selection is in its input.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.errors import (
    ContendedError,
    InstanceEndedError,
    NoSuchDeadLetterError,
    NoSuchOperationError,
    StorageRefusedError,
    UnreadableDeadLetterError,
    WrongOperationStateError,
)
from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.masking import MASKED
from durable_retry.engine.base.names import BULK_ACTION, CANCEL_REPLAY_EVENT, REPLAY
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.circuit.snapshot import CLOCKS_APART
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import FullError, WrongStatusError
from durable_retry.engine.operations.pause import Pause
from durable_retry.engine.operations.turn_names import turn_names_of
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.services.dead_letters.records import annotate, archive
from durable_retry.services.operations import control
from durable_retry.stores import workflows
from durable_retry.stores.dead_letters.list import count_dead_letters, list_dead_letters
from durable_retry.stores.dead_letters.records import find_dead_letter
from durable_retry.stores.instances import Instance
from durable_retry.stores.operations.status import NOT_ENDED, find_status, preview_of
from durable_retry.stores.task_hub import Selection, TaskHub
from durable_retry.stores.workflows import note_created
from durable_retry_console.bulk.bodies import BulkBody
from durable_retry_console.bulk.document import (
    BulkActionDocument,
    BulkPause,
    BulkProgress,
    BulkReplayDocument,
    action_document,
    progress_document,
)
from durable_retry_console.bulk.shapes import (
    FINISHED_REPLAY,
    BulkAction,
    BulkItem,
    ItemOutcome,
    ReplayProgress,
    ReplayState,
    UnfinishedFilter,
    checked_input,
)
from durable_retry_console.bulk.store import keep_items

_ID: Final = re.compile(r"(?:replay|bulk)-[0-9a-f]{32}")
_REPLAY_ID: Final = re.compile(r"replay-[0-9a-f]{32}")

_AT_ONCE: Final = 8

# A front end gives up after 230 s, and a person long before; about 100,000 operations of a local hub.
_COUNTED_SECONDS: Final = 10.0

type Wanted = DeadLetterFilter | UnfinishedFilter | None


async def count_matches(hub: TaskHub, wanted: Wanted, selection: Sequence[str]) -> tuple[int, bool]:
    """Return how many an action would meet, and whether all were looked at: operations for ten seconds."""
    if wanted is None:
        return len(selection), True
    if isinstance(wanted, DeadLetterFilter):
        return await count_dead_letters(wanted), True
    count, cursor, until = 0, None, clock.monotonic_seconds() + _COUNTED_SECONDS
    while True:
        page = await hub.instance_page(_selection_of_unfinished(wanted), cursor)
        found = await _ids_of_matching(hub, wanted, page.instances)
        count, cursor = count + len(found), page.following
        if cursor is None or clock.monotonic_seconds() >= until:
            return count, cursor is None


async def start_bulk_action(
    hub: TaskHub, body: BulkBody, wanted: Wanted, *, matched: int, now: datetime, by: str | None
) -> str:
    """Start a bulk action and return its id; `wanted` is its filter, None for a selection."""
    is_replay = body.what is BulkAction.REPLAY
    action_id = f"{'replay' if is_replay else 'bulk'}-{uuid.uuid4().hex}"
    created_at = to_rfc3339(now)
    await note_created(workflows.BULK_ACTION, action_id, created_at)
    if is_replay:
        await note_created(workflows.REPLAY, action_id, created_at)
    input_: dict[str, Any] = {
        "replay_id": action_id,
        "created_at": created_at,
        "filter": DeadLetterFilter().to_json() if wanted is None else wanted.to_json(),
        "rate_per_second": body.rate_per_second,
        "matched": matched,
        "note": body.note,
        "by": by,
    }
    if options := {name: value for name, value in body.options.items() if name != "note"}:
        input_["options"] = options
    if not is_replay:
        input_["action"] = body.what.value
    if ids := body.selection:
        input_ |= {"selected": len(ids), "page": {"ids": ids, "cursor": None}}
    await hub.start_instance(REPLAY if is_replay else BULK_ACTION, action_id, input_, again=False)
    return action_id


class BulkActionEndedError(Exception):
    """A bulk action or replay takes no cancel any more; the text is a clause that says so."""


async def cancel_bulk(hub: TaskHub, action_id: str, document: BulkProgress, what: str) -> None:
    """Cancel what `document` says how far it got; `what` names it in an error.

    What was done stays done, and the batch under way ends first.

    Raises:
        BulkActionEndedError: It has ended.
    """
    if document.status in FINISHED_REPLAY:
        raise BulkActionEndedError(f"the {what} is {document.status}")
    try:
        await hub.raise_event(action_id, CANCEL_REPLAY_EVENT, {})
    except InstanceEndedError:
        raise BulkActionEndedError(f"the {what} has ended meanwhile") from None


async def list_bulk_actions(hub: TaskHub, limit: int, cursor: str | None) -> Page[BulkActionDocument]:
    """Return bulk actions, bulk replays among them, the newest first."""
    found, following = await workflows.list_created(
        hub, workflows.BULK_ACTION, _action_of_instance, limit=limit, cursor=cursor
    )
    return Page[BulkActionDocument](items=tuple(found), next_cursor=following)


async def list_bulk_replays(hub: TaskHub, limit: int, cursor: str | None) -> Page[BulkReplayDocument]:
    """Return bulk replays, the newest first."""
    found, following = await workflows.list_created(
        hub, workflows.REPLAY, replay_of_instance, limit=limit, cursor=cursor
    )
    return Page[BulkReplayDocument](items=tuple(found), next_cursor=following)


async def find_bulk_action(hub: TaskHub, action_id: str) -> BulkActionDocument | None:
    """Return a bulk action's document; None when no instance of this id exists (never started, or purged)."""
    instance = await hub.read_instance(action_id) if _ID.fullmatch(action_id) else None
    return None if instance is None else _action_of_instance(instance)


async def find_bulk_replay(hub: TaskHub, replay_id: str) -> BulkReplayDocument | None:
    """Return a bulk replay's document; None and errors as `find_bulk_action`."""
    instance = await hub.read_instance(replay_id) if _REPLAY_ID.fullmatch(replay_id) else None
    return None if instance is None else replay_of_instance(instance)


def _action_of_instance(instance: Instance) -> BulkActionDocument:
    return action_document(*_progress_of_instance(instance))


def replay_of_instance(instance: Instance) -> BulkReplayDocument:
    """Return the document of a bulk replay's instance; with `unreadable` where not all of it can be read."""
    return _progress_of_instance(instance)[0]


def _progress_of_instance(instance: Instance) -> tuple[BulkReplayDocument, dict[str, Any]]:
    document, given = read_or(partial(_read_progress, instance), partial(_unreadable_progress, instance))
    patch = read_or(lambda: [_shown_step(step) for step in given["options"]["patch"]], lambda _: None)
    shown = {"patch": patch, "pause": _pause_of_input(given), "by": given.get("by")}
    return document.model_copy(update=shown), given


def _pause_of_input(given: dict[str, Any]) -> BulkPause | None:
    if given.get("action") != BulkAction.PAUSE:
        return None
    return read_or(lambda: BulkPause.model_validate(given.get("options", {})), lambda _: None)


def _shown_step(step: dict[str, Any]) -> dict[str, Any]:
    # The dependencies' own rules are not known here: what is known everywhere is masked.
    return step | ({"value": MASKED.value_at(step["path"], step["value"])} if "value" in step else {})


def _read_progress(instance: Instance) -> tuple[BulkReplayDocument, dict[str, Any]]:
    if instance.unreadable is not None:
        raise ValueError(instance.unreadable)
    given = checked_input(instance.input)
    ended = _ENDED_WITHOUT_OUTPUT.get(instance.runtime_status)
    document = instance.custom_status if instance.output is None else instance.output
    if document is None:
        return progress_document(given, ended or ReplayState.PENDING, ReplayProgress()), given
    shown = BulkReplayDocument.read(document)
    return (shown if ended is None else shown.model_copy(update={"status": ended})), given


def _unreadable_progress(instance: Instance, reason: str) -> tuple[BulkReplayDocument, dict[str, Any]]:
    nothing = {
        "replay_id": instance.instance_id,
        "filter": DeadLetterFilter().to_json(),
        "rate_per_second": 0.0,
        "note": None,
        "matched": 0,
        "created_at": to_rfc3339(instance.created_at),
    }
    given = read_or(lambda: checked_input(instance.input), lambda _: nothing)
    ended = _ENDED_WITHOUT_OUTPUT.get(instance.runtime_status, ReplayState.RUNNING)
    is_over = instance.runtime_status is OrchestrationStatus.COMPLETED
    state = ReplayState.COMPLETED if is_over else ended
    shown = progress_document(given, state, ReplayProgress())
    return shown.model_copy(update={"unreadable": reason}), given


_ENDED_WITHOUT_OUTPUT: Final = {
    OrchestrationStatus.FAILED: ReplayState.FAILED,
    OrchestrationStatus.TERMINATED: ReplayState.CANCELLED,
}


async def unfinished_page(
    hub: TaskHub, wanted: UnfinishedFilter, cursor: str | None
) -> tuple[list[str], str | None]:
    """Return the matching operations on the next page of the task hub, and the cursor of the one after it."""
    page = await hub.instance_page(_selection_of_unfinished(wanted), cursor)
    return await _ids_of_matching(hub, wanted, page.instances), page.following


def _selection_of_unfinished(wanted: UnfinishedFilter) -> Selection:
    return Selection(
        runtime_statuses=NOT_ENDED,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
    )


async def _ids_of_matching(hub: TaskHub, wanted: UnfinishedFilter, instances: Sequence[Any]) -> list[str]:
    found = []
    for preview in map(preview_of, instances):
        dependency, names = preview.dependency, preview.turn_names
        if (wanted.dependency and dependency is None) or (wanted.turn_names and names is None):
            document = await find_status(hub, preview.operation_id)
            if document is None:
                continue
            dependency, names = document["dependency"], turn_names_of(document)
        fits_names = wanted.fits_names(names or {})
        if fits_names and wanted.status in (None, preview.status) and wanted.dependency in (None, dependency):
            found.append(preview.operation_id)
    return found


async def letters_page(
    wanted: DeadLetterFilter, limit: int, cursor: str | None
) -> tuple[list[str], str | None]:
    """Return the matching dead letters on the next page, and the cursor of the page after it."""
    page = await list_dead_letters(wanted, limit=limit, cursor=cursor)
    return [record.id for record in page.records], page.cursor


async def do_batch(hub: TaskHub, action_id: str, asked_at: str, **batch: Any) -> list[BulkItem]:
    """Do an action other than a replay to some, as `do_some`, and keep what became of each."""
    done = await do_some(hub, **batch, asked_at=from_rfc3339(asked_at))
    await keep_items(action_id, asked_at, enumerate(done))
    return done


async def do_some(
    hub: TaskHub,
    action: BulkAction,
    ids: Sequence[str],
    *,
    note: str | None,
    by: str | None,
    asked_at: datetime,
    options: Mapping[str, Any] | None = None,
) -> list[BulkItem]:
    """Do an action other than a replay to some dead letters or operations. Idempotent.

    Args:
        asked_at: When the batch was begun, by another machine's clock.
        options: How long a pause lasts and why, as `PauseOptions`; None for other actions.

    Returns:
        What became of each, in their order; skipped are those whose state does not allow it.

    Raises:
        TaskHubUnavailableError: The rest was not reached.
    """
    act = _function_by_action(hub, note, by, Pause.model_validate(options or {}))[action]

    async def one(each: str) -> BulkItem:
        operation_id = None if action.is_of_dead_letters else each
        try:
            why_not = await act(each)
        except (ContendedError, StorageRefusedError, FullError, UnreadableDeadLetterError) as error:
            return BulkItem.failed(each, error)
        if why_not is not None and await _was_done_to_item(hub, action, each, by, asked_at - CLOCKS_APART):
            why_not = None  # By an execution of this batch that was cut short.
        outcome = ItemOutcome.DONE if why_not is None else ItemOutcome.SKIPPED
        return BulkItem(id=each, outcome=outcome, detail=why_not, operation_id=operation_id)

    return await map_bounded(one, ids, _AT_ONCE)


async def _was_done_to_item(
    hub: TaskHub, action: BulkAction, item_id: str, by: str | None, since: datetime
) -> bool:
    """Whether the same person did this to an item since an instant, as far as the item shows."""
    if action.is_of_dead_letters:
        record = await find_dead_letter(item_id)
        if record is None or record.archived_at is None:
            return False
        return record.archived_at >= since and record.archived_by == by
    document = await find_status(hub, item_id) or {}
    return any(
        (each["action"], each["by"]) == (action.value, by) and from_rfc3339(each["at"]) >= since
        for each in document.get("actions", ())
    )


type _Act = Callable[[str], Awaitable[str | None]]


def _function_by_action(
    hub: TaskHub, note: str | None, by: str | None, pause: Pause
) -> dict[BulkAction, _Act]:
    """Return the function of each action.

    It takes an id, and returns why the item's state does not allow the action; None when it was done.
    """

    async def put_away(dead_letter_id: str) -> str | None:
        try:
            await archive(hub, dead_letter_id, by)
        except NoSuchDeadLetterError:
            return "there is no such dead letter"
        except WrongStatusError as error:
            return str(error)
        if note is not None:
            await annotate(dead_letter_id, note, by)
        return None

    def steered(steer: Callable[[TaskHub, str, str | None], Awaitable[object]]) -> _Act:
        async def act(operation_id: str) -> str | None:
            try:
                await steer(hub, operation_id, by)
            except (NoSuchOperationError, WrongOperationStateError) as error:
                return str(error)
            return None

        return act

    return {
        BulkAction.ARCHIVE: put_away,
        BulkAction.CANCEL: steered(control.cancel),
        BulkAction.RETRY_NOW: steered(control.retry_now),
        BulkAction.PAUSE: steered(partial(control.pause, request=pause)),
        BulkAction.RESUME: steered(control.resume),
    }
