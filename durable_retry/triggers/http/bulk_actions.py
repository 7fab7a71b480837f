"""HTTP: replay, archive, cancel or retry now many; see how far it got, and cancel it."""

from functools import partial
from typing import Any

import azure.functions as func
from pydantic import BaseModel

from durable_retry import clock
from durable_retry.engine.dead_letters.bulk_replay import (
    BulkAction,
    BulkActionBody,
    ReplayState,
)
from durable_retry.services.bulk_actions import count_matches, find_bulk_action, items_page, start_bulk_action
from durable_retry.stores.task_hub import InstanceEndedError
from durable_retry.stores.workflows import BULK_ACTION, list_created
from durable_retry.triggers.http.answers import ConflictError, json_answer, page_answer, required
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.parameters import CURSOR, LIMIT
from durable_retry.triggers.http.replays import BulkItemPage, cancelled_answer, started_answer
from durable_retry.triggers.http.routes import (
    AWAY,
    CONFLICT,
    MISSING,
    OK,
    PAGING,
    Query,
    RouteAnswer,
    Routes,
    accepted,
    page,
    shown,
)

routes = Routes(
    "bulk actions", {InstanceEndedError: lambda _: ConflictError("The bulk action has ended meanwhile.")}
)


class BulkMatches(BaseModel):
    """How many an action would meet; `complete` is false when there are more than were looked at."""

    matched: int
    complete: bool


class StartedBulkAction(BaseModel):
    """A bulk action that was started."""

    action_id: str
    matched: int
    status_url: str


class FailedOne(BaseModel):
    """One that the action could not be done to."""

    id: str
    detail: str


class BulkActionDocument(BaseModel):
    """How far a bulk action got."""

    action_id: str
    action: BulkAction
    status: ReplayState
    filter: dict[str, Any]
    selected: int
    rate_per_second: float
    note: str | None
    by: str | None
    matched: int
    done: int
    skipped: int
    failed: int
    failures: list[FailedOne]
    remaining: int
    waiting_until: UtcInstant | None
    created_at: UtcInstant


class BulkActionPage(BaseModel):
    """A page of bulk actions, the newest first."""

    items: list[BulkActionDocument]
    next_cursor: str | None


@routes.post(
    "bulk-actions",
    body=BulkActionBody,
    answers=(
        RouteAnswer(OK, "The count of a dry run.", BulkMatches),
        *accepted(StartedBulkAction, "It was started.", "Location", "Retry-After"),
    ),
    errors=(AWAY,),
)
async def start_action_on_many(
    req: func.HttpRequest, body: BulkActionBody, who: Caller, hub: str
) -> func.HttpResponse:
    """Replay or archive many dead letters, cancel or retry now many operations, or count them."""
    now = clock.now()
    wanted = body.wanted(now)
    matched, complete = await count_matches(hub, body, wanted)
    if body.dry_run:
        return json_answer({"matched": matched, "complete": complete})
    action_id = await start_bulk_action(hub, body, wanted, matched=matched, now=now, by=who.known_name)
    return started_answer(req, action_id, {"action_id": action_id, "matched": matched})


@routes.get("bulk-actions", parameters=PAGING, answers=page(BulkActionPage), errors=(AWAY,))
async def list_actions_on_many(query: Query, hub: str) -> func.HttpResponse:
    """List bulk actions, bulk replays among them, the newest first."""
    items, following = await list_created(
        BULK_ACTION, partial(find_bulk_action, hub), limit=query[LIMIT], cursor=query[CURSOR]
    )
    return page_answer(items, following)


@routes.get("bulk-actions/{action_id}", answers=shown(BulkActionDocument), errors=(MISSING, AWAY))
async def get_action_on_many(action_id: str, hub: str) -> func.HttpResponse:
    """Show how far a bulk action got."""
    return json_answer(await _find(hub, action_id))


@routes.get(
    "bulk-actions/{action_id}/items",
    parameters=PAGING,
    answers=page(BulkItemPage),
    errors=(MISSING, AWAY),
)
async def list_items_of_action(action_id: str, query: Query, hub: str) -> func.HttpResponse:
    """List what became of each item of a bulk action, the latest first.

    `status` is that of the operation now. One whose turn has not come is not listed.
    """
    await _find(hub, action_id)
    return page_answer(*await items_page(hub, action_id, limit=query[LIMIT], cursor=query[CURSOR]))


@routes.delete(
    "bulk-actions/{action_id}",
    answers=accepted(BulkActionDocument, "It was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_action_on_many(action_id: str, hub: str) -> func.HttpResponse:
    """Cancel a bulk action; what was done stays done.

    The batch under way ends first.
    """
    return await cancelled_answer(hub, action_id, await _find(hub, action_id), "bulk action")


async def _find(hub: str, action_id: str) -> dict[str, Any]:
    return required(await find_bulk_action(hub, action_id), "bulk action of this id")
