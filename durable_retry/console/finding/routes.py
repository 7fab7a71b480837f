"""HTTP: find anything by one question."""

from typing import Final

import azure.functions as func

from durable_retry.binding import TaskHub
from durable_retry.console.finding.found import FoundItem, FoundType
from durable_retry.console.finding.operation_routes import (
    BAD_CURSOR,
    CORRELATION_ID,
    DEPENDENCY,
    HANDLER,
    KEY,
    SOURCE,
)
from durable_retry.console.finding.search import Question, search
from durable_retry.engine.base.answers import Page
from durable_retry.http.answers import json_answer
from durable_retry.http.parameters import CREATED_AFTER, CREATED_BEFORE, CURSOR, LIMIT, one_of, text
from durable_retry.http.routes import AWAY, OK, Query, RouteAnswer, Routes, tenant_of

routes = Routes("search", BAD_CURSOR)

WORDS: Final = text(
    "q",
    "Each word stands in a name, an id or the error of an item, as a part of it and in whatever case. What "
    "has exactly this key, correlation id or id is read at once and is on the first page.",
)
TYPE: Final = one_of("type", FoundType)
STATUS: Final = text("status", "Only of this status, in the words of the item's type.")


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
            Page[FoundItem],
        ),
    ),
    errors=(AWAY,),
)
async def search_everything(req: func.HttpRequest, query: Query, hub: TaskHub) -> func.HttpResponse:
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
    return json_answer(found)
