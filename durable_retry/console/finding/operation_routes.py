"""HTTP: the list of operations."""

from typing import Final

import azure.functions as func

from durable_retry.binding import TaskHub
from durable_retry.console.finding.cursors import BadCursorError
from durable_retry.console.finding.operations import MAX_READ, OperationFilter, find_operations
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.document import ListedOperation
from durable_retry.http.answers import json_answer
from durable_retry.http.parameters import CREATED_AFTER, CREATED_BEFORE, CURSOR, LIMIT, one_of, text
from durable_retry.http.routes import AWAY, OK, Query, Refusals, RouteAnswer, Routes, tenant_of

BAD_CURSOR: Final[Refusals] = {
    BadCursorError: lambda error: InvalidInputError([Problem("/cursor", str(error))])
}
"""How a cursor that was not given out here is answered."""

routes = Routes("operations", BAD_CURSOR)

STATUS: Final = one_of("status", OperationState)
DEPENDENCY: Final = text("dependency", "Only of this dependency.")
HANDLER: Final = text("handler", "Only of this handler.")
SOURCE: Final = text("source", "Only of this source: `http`, `queue`, `batch`, ...")
KEY: Final = text(
    "key",
    "Only of this key, the whole of it; read at once, whatever else there is. A tenant sends its header.",
)
CORRELATION_ID: Final = text("correlation_id", "Only of this correlation id, the whole of it.")
WORDS: Final = text(
    "q",
    "Each word stands in the key, the correlation id, the operation id or the last error, as a part of it "
    "and in whatever case. The operation of exactly this key or id is read at once and is on the first page.",
)


@routes.get(
    "operations",
    parameters=(
        *(STATUS, DEPENDENCY, HANDLER, SOURCE, KEY, CORRELATION_ID, WORDS),
        *(CREATED_AFTER, CREATED_BEFORE, LIMIT, CURSOR),
    ),
    answers=(
        RouteAnswer(
            OK,
            f"A page, the newest first. It looks at about {MAX_READ:,} "
            "operations, so it may be short or empty while `next_cursor`, which looks further, is not null.",
            Page[ListedOperation],
        ),
    ),
    errors=(AWAY,),
)
async def list_operations(req: func.HttpRequest, query: Query, hub: TaskHub) -> func.HttpResponse:
    """List operations, the newest first."""
    wanted = OperationFilter(
        status=query[STATUS],
        dependency=query[DEPENDENCY],
        handler=query[HANDLER],
        source=query[SOURCE],
        key=query[KEY],
        correlation_id=query[CORRELATION_ID],
        words=query[WORDS],
        created_after=query[CREATED_AFTER],
        created_before=query[CREATED_BEFORE],
    )
    found = await find_operations(
        hub, wanted, tenant=tenant_of(req), limit=query[LIMIT], cursor=query[CURSOR]
    )
    items = tuple(map(ListedOperation.read, found.documents))
    return json_answer(Page[ListedOperation](items=items, next_cursor=found.cursor))
