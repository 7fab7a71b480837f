"""HTTP: replay, archive, cancel or retry now many; see how far it got, and cancel it."""

from http import HTTPStatus

import azure.functions as func

from durable_retry import clock
from durable_retry.binding import TaskHub
from durable_retry.console.bulk.actions import (
    BulkActionEndedError,
    cancel_bulk,
    count_matches,
    find_bulk_action,
    list_bulk_actions,
    start_bulk_action,
)
from durable_retry.console.bulk.document import BulkActionDocument, BulkItemDocument
from durable_retry.console.bulk.ends import items_page
from durable_retry.console.bulk.replay_routes import started_answer
from durable_retry.console.bulk.shapes import BulkActionBody
from durable_retry.engine.base.answers import Answer, Page
from durable_retry.http.answers import ConflictError, json_answer, required, sentence
from durable_retry.http.callers import Caller
from durable_retry.http.parameters import CURSOR, LIMIT
from durable_retry.http.routes import (
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
    url_of,
)

routes = Routes("bulk actions", {BulkActionEndedError: lambda error: ConflictError(sentence(error))})


class BulkMatches(Answer):
    """How many an action would meet; `complete` is false when there are more than were looked at."""

    matched: int
    complete: bool


class StartedBulkAction(Answer):
    """A bulk action that was started."""

    action_id: str
    matched: int
    status_url: str


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
    req: func.HttpRequest, body: BulkActionBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Replay or archive many dead letters, cancel or retry now many operations, or count them."""
    now = clock.now()
    wanted = body.wanted(now)
    matched, complete = await count_matches(hub, wanted, body.ids or ())
    if body.dry_run:
        return json_answer(BulkMatches(matched=matched, complete=complete))
    action_id = await start_bulk_action(hub, body, wanted, matched=matched, now=now, by=who.known_name)
    started = StartedBulkAction(action_id=action_id, matched=matched, status_url=f"{url_of(req)}/{action_id}")
    return started_answer(started, started.status_url)


@routes.get("bulk-actions", parameters=PAGING, answers=page(Page[BulkActionDocument]), errors=(AWAY,))
async def list_actions_on_many(query: Query, hub: TaskHub) -> func.HttpResponse:
    """List bulk actions, bulk replays among them, the newest first."""
    return json_answer(await list_bulk_actions(hub, query[LIMIT], query[CURSOR]))


@routes.get("bulk-actions/{action_id}", answers=shown(BulkActionDocument), errors=(MISSING, AWAY))
async def get_action_on_many(action_id: str, hub: TaskHub) -> func.HttpResponse:
    """Show how far a bulk action got."""
    return json_answer(await _required_bulk_action(hub, action_id))


@routes.get(
    "bulk-actions/{action_id}/items",
    parameters=PAGING,
    answers=page(Page[BulkItemDocument]),
    errors=(MISSING, AWAY),
)
async def list_items_of_action(action_id: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """List what became of each item of a bulk action, the latest first.

    `status` is that of the operation now. One whose turn has not come is not listed.
    """
    await _required_bulk_action(hub, action_id)
    return json_answer(await items_page(hub, action_id, limit=query[LIMIT], cursor=query[CURSOR]))


@routes.delete(
    "bulk-actions/{action_id}",
    answers=accepted(BulkActionDocument, "It was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_action_on_many(action_id: str, hub: TaskHub) -> func.HttpResponse:
    """Cancel a bulk action; what was done stays done.

    The batch under way ends first.
    """
    document = await _required_bulk_action(hub, action_id)
    await cancel_bulk(hub, action_id, document, "bulk action")
    return json_answer(document, HTTPStatus.ACCEPTED)


async def _required_bulk_action(hub: TaskHub, action_id: str) -> BulkActionDocument:
    return required(await find_bulk_action(hub, action_id), "bulk action of this id")
