"""HTTP: find anything by one question."""

from typing import Final

import azure.functions as func
from pydantic import BaseModel

from durable_retry.services.search import FoundType, Question, search
from durable_retry.triggers.http.answers import page_answer
from durable_retry.triggers.http.documents import UtcInstant
from durable_retry.triggers.http.operations import (
    BAD_CURSOR,
    CORRELATION_ID,
    DEPENDENCY,
    HANDLER,
    KEY,
    SOURCE,
)
from durable_retry.triggers.http.parameters import CREATED_AFTER, CREATED_BEFORE, CURSOR, LIMIT, one_of, text
from durable_retry.triggers.http.routes import AWAY, OK, Query, RouteAnswer, Routes
from durable_retry.triggers.http.submissions import tenant_of

routes = Routes("search", BAD_CURSOR)

WORDS: Final = text(
    "q",
    "Each word stands in a name, an id or the error of an item, as a part of it and in whatever case. What "
    "has exactly this key, correlation id or id is read at once and is on the first page.",
)
TYPE: Final = one_of("type", FoundType)
STATUS: Final = text("status", "Only of this status, in the words of the item's type.")


class FoundItem(BaseModel):
    """Something that was found: what every type has, null where it has none."""

    type: FoundType
    id: str
    name: str | None
    status: str
    key: str | None
    dependency: str | None
    handler: str | None
    source: str | None
    correlation_id: str | None
    operation_id: str | None
    error: str | None
    attempt_count: int | None
    next_attempt_at: UtcInstant | None
    dead_letter_id: str | None
    created_at: UtcInstant


class FoundPage(BaseModel):
    """A page of what was found, the newest first."""

    items: list[FoundItem]
    next_cursor: str | None


@routes.get(
    "search",
    parameters=(
        *(WORDS, TYPE, STATUS, DEPENDENCY, HANDLER, SOURCE, KEY, CORRELATION_ID),
        *(CREATED_AFTER, CREATED_BEFORE, LIMIT, CURSOR),
    ),
    answers=(
        RouteAnswer(
            OK,
            "A page, the newest first. It looks at a bounded number of each type, so it may be short or "
            "empty while `next_cursor`, which looks further, is not null.",
            FoundPage,
        ),
    ),
    errors=(AWAY,),
)
async def search_everything(req: func.HttpRequest, query: Query, hub: str) -> func.HttpResponse:
    """Find operations, dead letters, outbox events, batches, sagas and bulk replays."""
    question = Question(
        words=query[WORDS],
        kind=query[TYPE],
        status=query[STATUS],
        dependency=query[DEPENDENCY],
        handler=query[HANDLER],
        source=query[SOURCE],
        key=query[KEY],
        correlation_id=query[CORRELATION_ID],
        created_after=query[CREATED_AFTER],
        created_before=query[CREATED_BEFORE],
    )
    found = await search(hub, question, tenant=tenant_of(req), limit=query[LIMIT], cursor=query[CURSOR])
    return page_answer(found.items, found.cursor)
