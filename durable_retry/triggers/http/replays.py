"""HTTP: replay one dead letter, or many; see how far a bulk replay got, and cancel it."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

import azure.functions as func
from pydantic import BaseModel, Field

from durable_retry import clock
from durable_retry.engine.base.names import CANCEL_REPLAY_EVENT, Category, DeadLetterReason, OperationState
from durable_retry.engine.dead_letters.bulk_replay import (
    FINISHED_REPLAY,
    BulkReplayBody,
    ItemOutcome,
    ReplayState,
)
from durable_retry.engine.dead_letters.record import Status
from durable_retry.engine.dead_letters.replay import ReplayBody
from durable_retry.engine.outbox import EventState
from durable_retry.services.bulk_actions import find_bulk_replay, items_page, start_bulk_replay
from durable_retry.services.replay import replay_dead_letter
from durable_retry.stores.dead_letters.list import count_dead_letters
from durable_retry.stores.task_hub import InstanceEndedError, raise_event
from durable_retry.stores.workflows import REPLAY, list_created
from durable_retry.triggers.http.answers import ConflictError, json_answer, page_answer, required
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.dead_letters import REFUSALS
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.parameters import CURSOR, LIMIT
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
    url_of,
)

routes = Routes(
    "dead letters",
    {**REFUSALS, InstanceEndedError: lambda _: ConflictError("The bulk replay has ended meanwhile.")},
)

_POLL_SECONDS: Final = 2


class StartedReplay(BaseModel):
    """The operation that replays a dead letter."""

    operation_id: str


class StartedBulkReplay(BaseModel):
    """A bulk replay that was started, and how many open dead letters its filter found."""

    replay_id: str
    matched: int
    status_url: str


class MatchedDeadLetters(BaseModel):
    """How many open dead letters a filter finds."""

    matched: int


class FailedReplay(BaseModel):
    """A dead letter that could not be replayed and stays open."""

    id: str
    detail: str


class BulkReplayFilter(BaseModel):
    """Which dead letters; null means any."""

    status: Status | None
    reason: DeadLetterReason | None
    category: Category | None
    dependency: str | None
    group: str | None
    created_after: UtcInstant | None
    created_before: UtcInstant | None


class BulkReplayDocument(BaseModel):
    """How far a bulk replay got."""

    replay_id: str
    status: ReplayState
    filter: BulkReplayFilter
    rate_per_second: float
    note: str | None
    matched: int
    replayed: int
    skipped: int
    failed: int
    failures: list[FailedReplay]
    remaining: int
    waiting_until: UtcInstant | None
    created_at: UtcInstant


class BulkReplayPage(BaseModel):
    """A page of bulk replays, the newest first."""

    items: list[BulkReplayDocument]
    next_cursor: str | None


class BulkItemDocument(BaseModel):
    """What a bulk replay or a bulk action did to one, and what became of it."""

    id: Annotated[str, Field(description="Of the dead letter or the operation.")]
    outcome: ItemOutcome
    detail: Annotated[str | None, Field(description="Why it was skipped or failed; null otherwise.")]
    operation_id: Annotated[str | None, Field(description="Replays the dead letter, or was acted on.")]
    event_id: Annotated[str | None, Field(description="The event that was sent again.")]
    at: Annotated[UtcInstant | None, Field(description="When its turn came.")]
    status: Annotated[
        OperationState | EventState | None,
        Field(description="Of the operation or the event now; null when there is none, or none any more."),
    ]
    failed_again: Annotated[str | None, Field(description="The dead letter that the replay ended as.")]


class BulkItemPage(BaseModel):
    """A page of the items of a bulk replay or a bulk action, the latest first."""

    items: list[BulkItemDocument]
    next_cursor: str | None


@routes.post(
    "dead-letters/{dead_letter_id}/replay",
    body=ReplayBody,
    body_required=False,
    answers=accepted(StartedReplay, "It was started."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def replay_one_dead_letter(
    dead_letter_id: str, body: ReplayBody, who: Caller, hub: str
) -> func.HttpResponse:
    """Start the operation of a dead letter again, as it was or edited.

    Its id and its key stay. The key that the dependency gets stays too, unless the call or the input is
    edited; `downstream_key` chooses.
    """
    operation_id = await replay_dead_letter(hub, dead_letter_id, body, clock.now(), by=who.known_name)
    return json_answer({"operation_id": operation_id}, HTTPStatus.ACCEPTED)


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
    req: func.HttpRequest, body: BulkReplayBody, who: Caller, hub: str
) -> func.HttpResponse:
    """Replay every open dead letter that a filter finds, or count them."""
    now = clock.now()
    wanted = body.filter.wanted(now)
    matched = await count_dead_letters(wanted)
    if body.dry_run:
        return json_answer({"matched": matched})
    replay_id = await start_bulk_replay(
        hub,
        wanted,
        rate_per_second=body.rate_per_second,
        matched=matched,
        note=body.note,
        now=now,
        by=who.known_name,
    )
    return started_answer(req, replay_id, {"replay_id": replay_id, "matched": matched})


@routes.get("dead-letters/replays", parameters=PAGING, answers=page(BulkReplayPage), errors=(AWAY,))
async def list_replays_of_many(query: Query, hub: str) -> func.HttpResponse:
    """List bulk replays, the newest first."""
    items, following = await list_created(
        REPLAY, partial(find_bulk_replay, hub), limit=query[LIMIT], cursor=query[CURSOR]
    )
    return page_answer(items, following)


@routes.get("dead-letters/replays/{replay_id}", answers=shown(BulkReplayDocument), errors=(MISSING, AWAY))
async def get_replay_of_many(replay_id: str, hub: str) -> func.HttpResponse:
    """Show how far a bulk replay got."""
    return json_answer(await _find(hub, replay_id))


@routes.get(
    "dead-letters/replays/{replay_id}/items",
    parameters=PAGING,
    answers=page(BulkItemPage),
    errors=(MISSING, AWAY),
)
async def list_items_of_replay(replay_id: str, query: Query, hub: str) -> func.HttpResponse:
    """List what became of each dead letter of a bulk replay, the latest first.

    `status` is that of its operation now. One whose turn has not come is not listed.
    """
    await _find(hub, replay_id)
    return page_answer(*await items_page(hub, replay_id, limit=query[LIMIT], cursor=query[CURSOR]))


@routes.delete(
    "dead-letters/replays/{replay_id}",
    answers=accepted(BulkReplayDocument, "It was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_replay_of_many(replay_id: str, hub: str) -> func.HttpResponse:
    """Cancel a bulk replay; what was replayed stays so.

    The batch under way ends first.
    """
    return await cancelled_answer(hub, replay_id, await _find(hub, replay_id), "bulk replay")


def started_answer(request: func.HttpRequest, action_id: str, started: dict[str, Any]) -> func.HttpResponse:
    """Return 202 for what acts on many, with the URL of its progress."""
    url = f"{url_of(request)}/{action_id}"
    headers = {"Location": url, "Retry-After": str(_POLL_SECONDS)}
    return json_answer(started | {"status_url": url}, HTTPStatus.ACCEPTED, headers)


async def cancelled_answer(
    hub: str, action_id: str, document: dict[str, Any], what: str
) -> func.HttpResponse:
    """Signal what acts on many that it is cancelled, and return 202 with its document.

    Raises:
        ConflictError: It has ended.
        TaskHubUnavailableError: The task hub did not answer.
    """
    if ReplayState(document["status"]) in FINISHED_REPLAY:
        raise ConflictError(f"The {what} is {document['status']}.")
    await raise_event(hub, action_id, CANCEL_REPLAY_EVENT, {})
    return json_answer(document, HTTPStatus.ACCEPTED)


async def _find(hub: str, replay_id: str) -> dict[str, Any]:
    return required(await find_bulk_replay(hub, replay_id), "bulk replay of this id")
