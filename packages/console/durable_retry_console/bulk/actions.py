"""Bulk actions: replay or archive many dead letters; cancel, retry now, pause or resume many operations.

Each is one orchestration (`bulk/orchestration.py`). What a filter means is read page by page while it runs; a
selection is in its input.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from durabletask.client import OrchestrationStatus

from durable_retry.base.answers import Page, read_or
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.json_forms import optional_to_rfc3339, to_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.dead_letter_lists.pages import count_dead_letters, list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.hub.instance_lists import list_created, note_created
from durable_retry.hub.instances import ENDED_BADLY, Instance
from durable_retry.hub.task_hub import Selection, TaskHub
from durable_retry.operations.status import MOST_RESTARTS, NOT_ENDED, find_status, restarts_of
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry_console.bulk.bodies import BulkActionBody
from durable_retry_console.bulk.document import BulkActionDocument
from durable_retry_console.bulk.names import BULK_ACTION, CANCEL_BULK_EVENT, RESUME_BULK_EVENT
from durable_retry_console.bulk.shapes import BulkAction, BulkInput, BulkProgress, BulkState, UnfinishedFilter
from durable_retry_console.optional import of_feature
from durable_retry_console.states import is_of, preview_of, turn_names_of

_ID: Final = re.compile(r"bulk-[0-9a-f]{32}")

# A front end gives up after 230 s, and a person long before; about 100,000 operations of a local hub.
_COUNTED_SECONDS: Final = 10.0
_READS_AT_ONCE: Final = 16

type Wanted = DeadLetterFilter | UnfinishedFilter | None


async def count_matches(hub: TaskHub, wanted: Wanted, selection: Sequence[str]) -> tuple[int, bool]:
    """Return how many an action would meet, and whether all were looked at: operations for ten seconds."""
    if wanted is None:
        return len(selection), True
    if isinstance(wanted, DeadLetterFilter):
        return await count_dead_letters(wanted), True
    count, cursor, until = 0, None, clock.monotonic_seconds() + _COUNTED_SECONDS
    while True:
        found, cursor = await unfinished_page(hub, wanted, cursor)
        count += len(found)
        if cursor is None or clock.monotonic_seconds() >= until:
            return count, cursor is None


async def start_bulk_action(
    hub: TaskHub,
    body: BulkActionBody,
    wanted: Wanted,
    *,
    matched: int,
    now: datetime,
    by: str | None,
    action_id: str | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Start a bulk action and return its id.

    Args:
        wanted: Its filter; None for a selection.
        action_id: The id, with which it starts once; None for a new one.
        more: Options that no body has.
    """
    given = BulkInput(
        action_id=action_id or f"bulk-{uuid.uuid4().hex}",
        action=body.what,
        filter=None if wanted is None else wanted.to_json(),
        rate_per_second=body.rate_per_second,
        matched=matched,
        created_at=now,
        note=body.note,
        by=by,
        options={name: value for name, value in body.options.items() if name != "note"} | {**more},
        ids=body.selection,
        progress=BulkProgress(proof=body.proof(now)),
    )
    await note_created(BULK_ACTION, given.action_id, to_rfc3339(now))
    await hub.start_instance(BULK_ACTION, given.action_id, given.to_json(), again=False)
    return given.action_id


class BulkActionStatusError(Exception):
    """The status of a bulk action does not allow what is asked; the text is a clause that says so."""


_ALLOWED: Final = {
    CANCEL_BULK_EVENT: {BulkState.RUNNING, BulkState.STOPPED},
    RESUME_BULK_EVENT: {BulkState.STOPPED},
}
_FOLLOWING: Final[Mapping[str, Mapping[str, Any]]] = {
    CANCEL_BULK_EVENT: {"status": BulkState.CANCELLED},
    RESUME_BULK_EVENT: {"status": BulkState.RUNNING, "reason": None, "stopped_at": None},
}


async def signal_bulk_action(hub: TaskHub, document: BulkActionDocument, event: str) -> BulkActionDocument:
    """Cancel what `document` shows, or let it go on where it is stopped; return it as it will be.

    A cancel leaves what was done, and the batch under way ends first. What is resumed proves itself again.

    Raises:
        BulkActionStatusError: It has ended; or it is not stopped, or was for too long.
    """
    if document.status not in _ALLOWED[event]:
        raise BulkActionStatusError(f"the bulk action is {document.status}")
    # A resume that comes twice must not end a later stop.
    stop = {"stopped_at": optional_to_rfc3339(document.stopped_at)}
    try:
        await hub.raise_event(document.action_id, event, stop)
    except InstanceEndedError:
        raise BulkActionStatusError("the bulk action has ended meanwhile") from None
    return document.model_copy(update=_FOLLOWING[event])


async def list_bulk_actions(hub: TaskHub, limit: int, cursor: str | None) -> Page[BulkActionDocument]:
    found, following = await list_created(hub, BULK_ACTION, _action_of_instance, limit=limit, cursor=cursor)
    return Page[BulkActionDocument](items=tuple(found), next_cursor=following)


async def find_bulk_action(hub: TaskHub, action_id: str) -> BulkActionDocument | None:
    """Return a bulk action's document; None when no instance of this id exists (never started, or purged)."""
    instance = await hub.read_instance(action_id) if _ID.fullmatch(action_id) else None
    return None if instance is None else _action_of_instance(instance)


def _action_of_instance(instance: Instance) -> BulkActionDocument:
    return read_or(partial(_read_action, instance), partial(_unreadable_action, instance))


def _read_action(instance: Instance) -> BulkActionDocument:
    if instance.unreadable is not None:
        raise ValueError(instance.unreadable)
    given = BulkInput.from_json(instance.input)
    shown = instance.custom_status if instance.output is None else instance.output
    progress = given.progress if shown is None else BulkProgress.from_json(shown)
    if _is_terminated(instance):
        progress = replace(progress, status=BulkState.CANCELLED)
    return BulkActionDocument.of(given, progress, error=instance.failure)


def _unreadable_action(instance: Instance, reason: str) -> BulkActionDocument:
    unknown = BulkInput(
        action_id=instance.instance_id,
        action=BulkAction.REPLAY,
        rate_per_second=0,
        matched=0,
        created_at=instance.created_at,
    )
    given = read_or(lambda: BulkInput.from_json(instance.input), lambda _: unknown)
    status = BulkState.CANCELLED if _is_terminated(instance) else BulkState.RUNNING
    if instance.runtime_status is OrchestrationStatus.COMPLETED:
        status = BulkState.COMPLETED
    return BulkActionDocument.of(given, BulkProgress(status=status), unreadable=reason)


def _is_terminated(instance: Instance) -> bool:
    """Whether the platform ended it: `upkeep.failures` starts one anew that failed."""
    is_given_up = restarts_of(instance) >= MOST_RESTARTS
    return instance.runtime_status in ENDED_BADLY and (
        is_given_up or instance.runtime_status is OrchestrationStatus.TERMINATED
    )


async def bulk_page(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Look up the dead letters or operations to act on next: an activity.

    Args:
        request: `action`, `filter`, `limit` and `cursor`. Pages of operations are of whatever size.

    Returns:
        `ids`, and `cursor`: None at the end.
    """
    if BulkAction(request["action"]).is_of_dead_letters:
        wanted = DeadLetterFilter.from_json(request["filter"])
        page = await list_dead_letters(wanted, limit=request["limit"], cursor=request["cursor"])
        return {"ids": [record.id for record in page.records], "cursor": page.cursor}
    unfinished = UnfinishedFilter.from_json(request["filter"])
    ids, following = await unfinished_page(hub, unfinished, request["cursor"])
    return {"ids": ids, "cursor": following}


async def unfinished_page(
    hub: TaskHub, wanted: UnfinishedFilter, cursor: str | None
) -> tuple[list[str], str | None]:
    """Return the matching operations on the next page of the task hub, and the cursor of the one after it."""
    selection = Selection(
        runtime_statuses=NOT_ENDED, created_after=wanted.created_after, created_before=wanted.created_before
    )
    instances, following = await hub.instance_page(selection, cursor)
    return await _ids_of_matching(hub, wanted, instances), following


async def _ids_of_matching(hub: TaskHub, wanted: UnfinishedFilter, instances: Sequence[Any]) -> list[str]:
    found = []
    for preview in map(preview_of, instances):
        dependency, names = preview.dependency, preview.turn_names
        if (wanted.dependency and dependency is None) or (wanted.turn_names and names is None):
            document = await find_status(hub, preview.operation_id)
            if document is None:
                continue
            dependency, names = document["dependency"], turn_names_of(document)
        is_meant = is_of(wanted.dependency, dependency) and wanted.status in (None, preview.status)
        if is_meant and wanted.fits_names(names or {}):
            found.append(preview.operation_id)
    return found


async def with_batch(hub: TaskHub, body: BulkActionBody) -> BulkActionBody:
    """Return the body with the dead letters of its batch as its selection; as it is without a batch.

    InvalidInputError where there is no such batch, or no operation of it is an open dead letter.
    """
    if body.batch_id is None:
        return body
    find = of_feature("workflows", "durable_retry.features.workflows.batches:find_batch")
    batch = None if find is None else await find(body.batch_id, OperationState.DEAD_LETTERED)
    if batch is None:
        raise InvalidInputError([Problem("/batch_id", "there is no batch of this id")])
    operation_ids = [item.operation_id for item in batch.items if item.operation_id]
    found = await map_bounded(partial(_open_dead_letter, hub), operation_ids, _READS_AT_ONCE)
    if not (ids := [each for each in found if each is not None]):
        raise InvalidInputError([Problem("/batch_id", "no operation of this batch is an open dead letter")])
    return body.model_copy(update={"ids": ids})


async def _open_dead_letter(hub: TaskHub, operation_id: str) -> str | None:
    """Return the dead letter of an operation; None when a replay has succeeded or is under way."""
    document = await find_status(hub, operation_id)
    if document is None or document["status"] != OperationState.DEAD_LETTERED:
        return None
    found: str | None = document["dead_letter"]["id"]
    return found
