"""HTTP: replay many dead letters; see how far a bulk replay got, and cancel it."""

from http import HTTPStatus
from typing import Final

import azure.functions as func

from durable_retry import clock
from durable_retry.binding import TaskHub
from durable_retry.console.bulk.actions import (
    BulkActionEndedError,
    cancel_bulk,
    count_matches,
    find_bulk_replay,
    list_bulk_replays,
    start_bulk_replay,
)
from durable_retry.console.bulk.document import BulkItemDocument, BulkReplayDocument
from durable_retry.console.bulk.ends import items_page
from durable_retry.console.bulk.shapes import BulkReplayBody
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
from durable_retry.triggers.http.dead_letters import REFUSALS

routes = Routes(
    "dead letters",
    {**REFUSALS, BulkActionEndedError: lambda error: ConflictError(sentence(error))},
)

_POLL_SECONDS: Final = 2


class StartedBulkReplay(Answer):
    """A bulk replay that was started, and how many open dead letters its filter found."""

    replay_id: str
    matched: int
    status_url: str


class MatchedDeadLetters(Answer):
    """How many open dead letters a filter finds."""

    matched: int


@routes.post(
    "dead-letters/replays",
    body=BulkReplayBody,
    answers=(
        RouteAnswer(OK, "The count of a dry run.", MatchedDeadLetters),
        *accepted(StartedBulkReplay, "It was started.", "Location", "Retry-After"),
    ),
    errors=(AWAY,),
)
async def start_replay_of_many(
    req: func.HttpRequest, body: BulkReplayBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Replay every open dead letter that a filter finds, or count them."""
    now = clock.now()
    wanted = body.filter.wanted(now)
    matched, _ = await count_matches(hub, wanted)
    if body.dry_run:
        return json_answer(MatchedDeadLetters(matched=matched))
    replay_id = await start_bulk_replay(
        hub,
        wanted,
        rate_per_second=body.rate_per_second,
        matched=matched,
        note=body.note,
        now=now,
        by=who.known_name,
    )
    started = StartedBulkReplay(replay_id=replay_id, matched=matched, status_url=f"{url_of(req)}/{replay_id}")
    return started_answer(started, started.status_url)


@routes.get("dead-letters/replays", parameters=PAGING, answers=page(Page[BulkReplayDocument]), errors=(AWAY,))
async def list_replays_of_many(query: Query, hub: TaskHub) -> func.HttpResponse:
    """List bulk replays, the newest first."""
    return json_answer(await list_bulk_replays(hub, query[LIMIT], query[CURSOR]))


@routes.get("dead-letters/replays/{replay_id}", answers=shown(BulkReplayDocument), errors=(MISSING, AWAY))
async def get_replay_of_many(replay_id: str, hub: TaskHub) -> func.HttpResponse:
    """Show how far a bulk replay got."""
    return json_answer(await _required_bulk_replay(hub, replay_id))


@routes.get(
    "dead-letters/replays/{replay_id}/items",
    parameters=PAGING,
    answers=page(Page[BulkItemDocument]),
    errors=(MISSING, AWAY),
)
async def list_items_of_replay(replay_id: str, query: Query, hub: TaskHub) -> func.HttpResponse:
    """List what became of each dead letter of a bulk replay, the latest first.

    `status` is that of its operation now. One whose turn has not come is not listed.
    """
    await _required_bulk_replay(hub, replay_id)
    return json_answer(await items_page(hub, replay_id, limit=query[LIMIT], cursor=query[CURSOR]))


@routes.delete(
    "dead-letters/replays/{replay_id}",
    answers=accepted(BulkReplayDocument, "It was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_replay_of_many(replay_id: str, hub: TaskHub) -> func.HttpResponse:
    """Cancel a bulk replay; what was replayed stays so.

    The batch under way ends first.
    """
    document = await _required_bulk_replay(hub, replay_id)
    await cancel_bulk(hub, replay_id, document, "bulk replay")
    return json_answer(document, HTTPStatus.ACCEPTED)


def started_answer(started: Answer, url: str) -> func.HttpResponse:
    """Return 202 for what acts on many; `url` is that of its progress."""
    headers = {"Location": url, "Retry-After": str(_POLL_SECONDS)}
    return json_answer(started, HTTPStatus.ACCEPTED, headers)


async def _required_bulk_replay(hub: TaskHub, replay_id: str) -> BulkReplayDocument:
    return required(await find_bulk_replay(hub, replay_id), "bulk replay of this id")
