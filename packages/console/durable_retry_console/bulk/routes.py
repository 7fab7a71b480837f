"""HTTP: replay, archive, cancel, retry now, pause or resume many; see how far it got, and cancel it.

A bulk replay is a bulk action too; its own routes show it in the words of dead letters.
"""

from http import HTTPStatus
from typing import Final

import azure.functions as func

from durable_retry import clock
from durable_retry.engine.base.answers import Answer, Page
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.facts import TargetType
from durable_retry.http.answers import ConflictError, json_answer, required, sentence
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import CURSOR, LIMIT
from durable_retry.http.refusals import Refusals
from durable_retry.http.routes import (
    OK,
    PAGING,
    Declaration,
    Query,
    RouteAnswer,
    Routes,
    accepted,
    page,
    shown,
    url_of,
)
from durable_retry.runtime.binding import TaskHub
from durable_retry.triggers.http.dead_letters import REFUSALS
from durable_retry_console.bulk.actions import (
    BulkActionEndedError,
    cancel_bulk,
    count_matches,
    find_bulk_action,
    find_bulk_replay,
    list_bulk_actions,
    list_bulk_replays,
    start_bulk_action,
)
from durable_retry_console.bulk.batches import with_batch
from durable_retry_console.bulk.bodies import BulkActionBody, BulkBody, BulkReplayBody
from durable_retry_console.bulk.document import (
    BulkActionDocument,
    BulkItemDocument,
    BulkMatches,
    BulkReplayDocument,
    MatchedDeadLetters,
)
from durable_retry_console.bulk.ends import items_page
from durable_retry_console.bulk.replay import preview_patch

_ENDED: Final[Refusals] = {BulkActionEndedError: lambda error: ConflictError(sentence(error))}

replay_routes = Routes("dead letters", {**REFUSALS, **_ENDED})
action_routes = Routes("bulk actions", _ENDED)

_POLL_SECONDS: Final = 2


class StartedBulkAction(Answer):
    """A bulk action that was started."""

    action_id: str
    matched: int
    status_url: str


class StartedBulkReplay(Answer):
    """A bulk replay that was started, and how many open dead letters its filter found."""

    replay_id: str
    matched: int
    status_url: str


def _answers_to_start(started: type[Answer], counted: type[Answer]) -> tuple[RouteAnswer, ...]:
    dry = RouteAnswer(OK, "The count of a dry run.", counted)
    return (dry, *accepted(started, "It was started.", "Location", "Retry-After"))


def _started_answer(started: StartedBulkAction | StartedBulkReplay) -> func.HttpResponse:
    headers = {"Location": started.status_url, "Retry-After": str(_POLL_SECONDS)}
    return json_answer(started, HTTPStatus.ACCEPTED, headers)


def _begun(body: BulkBody) -> str:
    verb = "change and replay" if body.patch else body.what.value.replace("_", " ")
    return f"began to {verb} many {'dead letters' if body.what.is_of_dead_letters else 'operations'}"


_ITEMS: Final[Declaration] = {"parameters": PAGING, "answers": page(Page[BulkItemDocument])}


async def _items_answer(hub: TaskHub, action_id: str, query: Query) -> func.HttpResponse:
    return json_answer(await items_page(hub, action_id, limit=query[LIMIT], cursor=query[CURSOR]))


@replay_routes.post(
    "dead-letters/replays",
    act=Act(_begun, TargetType.BULK_ACTION, "replay_id"),
    body=BulkReplayBody,
    answers=_answers_to_start(StartedBulkReplay, MatchedDeadLetters),
)
async def start_replay_of_many(
    req: func.HttpRequest, body: BulkReplayBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Replay every open dead letter that a filter finds, or count them."""
    now = clock.now()
    wanted = body.filter.wanted(now)
    matched, _ = await count_matches(hub, wanted, body.selection)
    if body.dry_run:
        preview = await preview_patch(wanted, body.selection, body)
        return json_answer(MatchedDeadLetters(matched=matched, preview=preview))
    replay_id = await start_bulk_action(hub, body, wanted, matched=matched, now=now, by=who.known_name)
    url = f"{url_of(req)}/{replay_id}"
    return _started_answer(StartedBulkReplay(replay_id=replay_id, matched=matched, status_url=url))


@replay_routes.get("dead-letters/replays", parameters=PAGING, answers=page(Page[BulkReplayDocument]))
async def list_replays_of_many(query: Query, hub: TaskHub) -> func.HttpResponse:
    """List bulk replays, the newest first."""
    return json_answer(await list_bulk_replays(hub, query[LIMIT], query[CURSOR]))


@replay_routes.get("dead-letters/replays/{replay_id}", answers=shown(BulkReplayDocument))
async def get_replay_of_many(replay_id: str, hub: TaskHub) -> func.HttpResponse:
    """Show how far a bulk replay got."""
    return json_answer(await _required_bulk_replay(hub, replay_id))


@replay_routes.get("dead-letters/replays/{replay_id}/items", **_ITEMS)
async def list_items_of_replay(replay_id: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """List what became of each dead letter of a bulk replay, the latest first.

    `status` is that of its operation now. One whose turn has not come is not listed.
    """
    await _required_bulk_replay(hub, replay_id)
    return await _items_answer(hub, replay_id, query)


@replay_routes.delete(
    "dead-letters/replays/{replay_id}",
    act=Act("cancelled the bulk replay", TargetType.BULK_ACTION),
    answers=accepted(BulkReplayDocument, "It was signalled."),
)
async def cancel_replay_of_many(replay_id: str, hub: TaskHub) -> func.HttpResponse:
    """Cancel a bulk replay; what was replayed stays so.

    The batch under way ends first.
    """
    document = await _required_bulk_replay(hub, replay_id)
    await cancel_bulk(hub, replay_id, document, "bulk replay")
    return json_answer(document, HTTPStatus.ACCEPTED)


async def _required_bulk_replay(hub: TaskHub, replay_id: str) -> BulkReplayDocument:
    return required(await find_bulk_replay(hub, replay_id), "bulk replay of this id")


@action_routes.post(
    "bulk-actions",
    act=Act(_begun, TargetType.BULK_ACTION, "action_id"),
    body=BulkActionBody,
    answers=_answers_to_start(StartedBulkAction, BulkMatches),
)
async def start_action_on_many(
    req: func.HttpRequest, body: BulkActionBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Act on many dead letters or operations, or count them.

    Dead letters are replayed or archived; operations are cancelled, retried now, paused or resumed.
    """
    now = clock.now()
    wanted = body.wanted(now)
    body = await with_batch(hub, body)
    matched, complete = await count_matches(hub, wanted, body.selection)
    if body.dry_run:
        of_letters = wanted if isinstance(wanted, DeadLetterFilter) else None
        preview = await preview_patch(of_letters, body.selection, body)
        return json_answer(BulkMatches(matched=matched, complete=complete, preview=preview))
    action_id = await start_bulk_action(hub, body, wanted, matched=matched, now=now, by=who.known_name)
    url = f"{url_of(req)}/{action_id}"
    return _started_answer(StartedBulkAction(action_id=action_id, matched=matched, status_url=url))


@action_routes.get("bulk-actions", parameters=PAGING, answers=page(Page[BulkActionDocument]))
async def list_actions_on_many(query: Query, hub: TaskHub) -> func.HttpResponse:
    """List bulk actions, bulk replays among them, the newest first."""
    return json_answer(await list_bulk_actions(hub, query[LIMIT], query[CURSOR]))


@action_routes.get("bulk-actions/{action_id}", answers=shown(BulkActionDocument))
async def get_action_on_many(action_id: str, hub: TaskHub) -> func.HttpResponse:
    """Show how far a bulk action got."""
    return json_answer(await _required_bulk_action(hub, action_id))


@action_routes.get("bulk-actions/{action_id}/items", **_ITEMS)
async def list_items_of_action(action_id: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """List what became of each item of a bulk action, the latest first.

    `status` is that of the operation now. One whose turn has not come is not listed.
    """
    await _required_bulk_action(hub, action_id)
    return await _items_answer(hub, action_id, query)


@action_routes.delete(
    "bulk-actions/{action_id}",
    act=Act("cancelled the bulk action", TargetType.BULK_ACTION),
    answers=accepted(BulkActionDocument, "It was signalled."),
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
