"""HTTP: list operations, show one, cancel it, end its present wait, and count them by state."""

from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.base.names import CANCEL_EVENT, RETRY_NOW_EVENT, OperationState
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.status import STEPS_RUN, is_finished
from durable_retry.services.operation_search import (
    MAX_READ,
    BadCursorError,
    OperationFilter,
    find_operations,
)
from durable_retry.services.overview import operation_summary
from durable_retry.services.replay import replays_of
from durable_retry.stores.operation_notes import note_steered
from durable_retry.stores.operations import find_status
from durable_retry.stores.task_hub import InstanceEndedError, raise_event
from durable_retry.triggers.http.answers import ConflictError, etag_of, json_answer, page_answer, required
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.documents import (
    OperationDocument,
    OperationPage,
    OperationSummary,
    SteeredOperation,
)
from durable_retry.triggers.http.parameters import (
    CREATED_AFTER,
    CREATED_BEFORE,
    CURSOR,
    LIMIT,
    one_of,
    text,
    whole_number,
)
from durable_retry.triggers.http.routes import (
    AWAY,
    CONFLICT,
    MISSING,
    OK,
    Query,
    Refusals,
    RouteAnswer,
    Routes,
    accepted,
    shown,
)
from durable_retry.triggers.http.submissions import tenant_of

BAD_CURSOR: Final[Refusals] = {
    BadCursorError: lambda error: InvalidInputError([Problem("/cursor", str(error))])
}
"""How a cursor that was not given out here is answered."""

routes = Routes(
    "operations",
    {
        **BAD_CURSOR,
        InstanceEndedError: lambda _: ConflictError("The operation has ended meanwhile."),
    },
)

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
WINDOW: Final = whole_number("window_seconds", 60, 604_800, 900, "How far back.")

MOVING: Final = frozenset({"counted_at", "from", "to"})
"""Fields of a summary that change with the time of asking alone."""

_WAITING: Final = frozenset({OperationState.WAITING_RETRY.value, OperationState.WAITING_CIRCUIT.value})


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
            OperationPage,
        ),
    ),
    errors=(AWAY,),
)
async def list_operations(req: func.HttpRequest, query: Query, hub: str) -> func.HttpResponse:
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
    items = [_without_content(document) for document in found.documents]
    return page_answer(items, found.cursor)


_CONTENT: Final = frozenset({"request", "input", "steps", STEPS_RUN})


def _without_content(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out what can have 64 KiB each."""
    return {name: value for name, value in document.items() if name not in _CONTENT}


@routes.get("operations/summary", parameters=(WINDOW,), answers=shown(OperationSummary), errors=(AWAY,))
async def summarize_operations(query: Query, hub: str) -> func.HttpResponse:
    """Count operations by state, lately and now."""
    document = await operation_summary(hub, query[WINDOW])
    return json_answer(document, headers={"ETag": etag_of(document, MOVING)})


@routes.get("operations/{operation_id}", answers=shown(OperationDocument), errors=(MISSING, AWAY))
async def get_operation(operation_id: str, hub: str) -> func.HttpResponse:
    """Show an operation."""
    document = await _find(hub, operation_id)
    replays = await replays_of(document)
    return json_answer(document | ({"replays": replays} if replays else {}))


@routes.post(
    "operations/{operation_id}/cancel",
    answers=accepted(SteeredOperation, "The operation was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_operation(operation_id: str, hub: str, who: Caller) -> func.HttpResponse:
    """Cancel an operation; an attempt under way ends first."""
    document = await _find(hub, operation_id)
    if is_finished(document):
        raise _conflict(document, "is finished and cannot be cancelled")
    await raise_event(hub, operation_id, CANCEL_EVENT, {"by": who.known_name})
    note_steered(document)
    return _accepted(document)


@routes.post(
    "operations/{operation_id}/retry-now",
    answers=accepted(SteeredOperation, "The operation was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def retry_operation_now(operation_id: str, hub: str, who: Caller) -> func.HttpResponse:
    """End the present wait of an operation."""
    document = await _find(hub, operation_id)
    if document["status"] not in _WAITING:
        raise _conflict(document, "is not waiting")
    # The event names the attempt that it is for: should this wait end first, the next one must not end early.
    attempt = document["attempt_count"] + 1
    await raise_event(hub, operation_id, RETRY_NOW_EVENT, {"attempt": attempt, "by": who.known_name})
    return _accepted(document)


async def _find(hub: str, operation_id: str) -> dict[str, Any]:
    return required(await find_status(hub, operation_id), "operation of this id")


def _accepted(document: dict[str, Any]) -> func.HttpResponse:
    body = {"operation_id": document["operation_id"], "status": document["status"]}
    return json_answer(body, HTTPStatus.ACCEPTED)


def _conflict(document: dict[str, Any], what: str) -> ConflictError:
    return ConflictError(f"The operation {what}: its status is {document['status']}.")
