"""HTTP: replay, archive, cancel, retry now, pause or resume many; see how far it is; cancel or resume it."""

from http import HTTPStatus
from typing import Final

import azure.functions as func

from durable_retry.base.answers import Page
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.http.answers import ConflictError, Refusals, json_answer, required, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import LIMIT, row_cursor
from durable_retry.http.routes import OK, Query, RouteAnswer, Routes, accepted, url_of
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.facts import TargetType
from durable_retry.runtime import clock
from durable_retry_console.bulk import actions
from durable_retry_console.bulk.bodies import BulkActionBody
from durable_retry_console.bulk.document import BulkActionDocument, BulkItem, BulkMatches, StartedBulkAction
from durable_retry_console.bulk.ends import items_page
from durable_retry_console.bulk.names import CANCEL_BULK_EVENT, RESUME_BULK_EVENT
from durable_retry_console.bulk.replay import preview_replay
from durable_retry_console.bulk.shapes import BulkAction

_REFUSALS: Final[Refusals] = {actions.BulkActionStatusError: lambda error: ConflictError(sentence(error))}

routes = Routes("bulk actions", _REFUSALS)

_POLL_SECONDS: Final = 2

CURSOR: Final = row_cursor(r"[0-9]{17}-bulk-.+")
ITEM_CURSOR: Final = row_cursor(r"[0-9]{17}-[0-9]{2}")


_VERBS: Final = {BulkAction.RETRY_NOW: "retry now", BulkAction.LOOKUP: "look up"}


def _begun(body: BulkActionBody) -> str:
    verb = "change and replay" if body.patch else _VERBS.get(body.what) or body.what.value
    return f"began to {verb} many {'dead letters' if body.what.is_of_dead_letters else 'operations'}"


@routes.post(
    "bulk-actions",
    act=Act(_begun, TargetType.BULK_ACTION, "action_id"),
    body=BulkActionBody,
    answers=(
        RouteAnswer(OK, "The count of a dry run.", BulkMatches),
        *accepted(StartedBulkAction, "It was started.", "Location", "Retry-After"),
    ),
)
async def start_action_on_many(
    req: func.HttpRequest, body: BulkActionBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Act on many dead letters or operations, or count them.

    Dead letters are replayed, archived or restored; operations are cancelled, retried now, paused or resumed.
    """
    now = clock.now()
    wanted = body.wanted(now)
    body = await actions.with_batch(hub, body)
    matched, complete = await actions.count_matches(hub, wanted, body.selection)
    if body.dry_run:
        of_letters = wanted if isinstance(wanted, DeadLetterFilter) else None
        is_replay = body.what is BulkAction.REPLAY
        preview = await preview_replay(of_letters, body.selection, body) if is_replay else None
        return json_answer(BulkMatches(matched=matched, complete=complete, preview=preview))
    action_id = await actions.start_bulk_action(
        hub, body, wanted, matched=matched, now=now, by=who.known_name
    )
    url = f"{url_of(req)}/{action_id}"
    started = StartedBulkAction(action_id=action_id, matched=matched, status_url=url)
    headers = {"Location": url, "Retry-After": str(_POLL_SECONDS)}
    return json_answer(started, HTTPStatus.ACCEPTED, headers)


@routes.get("bulk-actions", parameters=(LIMIT, CURSOR))
async def list_actions_on_many(query: Query, hub: TaskHub) -> Page[BulkActionDocument]:
    """List bulk actions, the newest first."""
    return await actions.list_bulk_actions(hub, query[LIMIT], query[CURSOR])


@routes.get("bulk-actions/{action_id}")
async def get_action_on_many(action_id: str, hub: TaskHub) -> BulkActionDocument:
    """Show how far a bulk action is."""
    return await _required_action(hub, action_id)


@routes.get("bulk-actions/{action_id}/items", parameters=(LIMIT, ITEM_CURSOR))
async def list_items_of_action(action_id: str, query: Query, hub: TaskHub) -> Page[BulkItem]:
    """List what became of each item of a bulk action, the latest first.

    One whose turn has not come is not listed.
    """
    action = (await _required_action(hub, action_id)).action
    return await items_page(hub, action_id, action, limit=query[LIMIT], cursor=query[ITEM_CURSOR])


@routes.delete(
    "bulk-actions/{action_id}",
    act=Act("cancelled the bulk action", TargetType.BULK_ACTION),
    answers=accepted(BulkActionDocument, "It was signalled, and will be so."),
)
async def cancel_action_on_many(action_id: str, hub: TaskHub) -> BulkActionDocument:
    """Cancel a bulk action; what was done stays done.

    The batch under way ends first.
    """
    return await _signalled(hub, action_id, CANCEL_BULK_EVENT)


@routes.post(
    "bulk-actions/{action_id}/resume",
    act=Act("resumed the bulk action", TargetType.BULK_ACTION),
    answers=accepted(BulkActionDocument, "It was signalled, and will be so."),
)
async def resume_action_on_many(action_id: str, hub: TaskHub) -> BulkActionDocument:
    """Let a stopped bulk action go on with what is left; it proves itself again."""
    return await _signalled(hub, action_id, RESUME_BULK_EVENT)


async def _signalled(hub: TaskHub, action_id: str, event: str) -> BulkActionDocument:
    return await actions.signal_bulk_action(hub, await _required_action(hub, action_id), event)


async def _required_action(hub: TaskHub, action_id: str) -> BulkActionDocument:
    return required(await actions.find_bulk_action(hub, action_id), "bulk action of this id")
