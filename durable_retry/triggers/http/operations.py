"""HTTP: list operations, show one, cancel it, end its present wait, and count them by state."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from durable_retry.engine.base.names import CANCEL_EVENT, RETRY_NOW_EVENT, OperationState
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.status import is_finished
from durable_retry.stores.operations import (
    BadCursorError,
    OperationPreview,
    find_status,
    operation_summary,
    runtimes_of,
    scan_operations,
)
from durable_retry.stores.task_hub import InstanceEndedError, raise_event
from durable_retry.triggers.http.answers import ConflictError, json_answer, page_answer, required
from durable_retry.triggers.http.documents import (
    OperationDocument,
    OperationPage,
    OperationSummary,
    SteeredOperation,
)
from durable_retry.triggers.http.parameters import CREATED_AFTER, CURSOR, LIMIT, one_of, text, whole_number
from durable_retry.triggers.http.routes import AWAY, CONFLICT, MISSING, Query, Routes, accepted, page, shown

routes = Routes(
    "operations", {InstanceEndedError: lambda _: ConflictError("The operation has ended meanwhile.")}
)

STATUS: Final = one_of("status", OperationState)
DEPENDENCY: Final = text("dependency", "Only of this dependency.")
WINDOW: Final = whole_number("window_seconds", 60, 604_800, 900, "How far back.")

_MAX_SCANNED: Final = 10_000
"""Operations looked at for one answer: a filter that matches little answers early, with a cursor."""

_READS_AT_ONCE: Final = 16

_WAITING: Final = frozenset({OperationState.WAITING_RETRY.value, OperationState.WAITING_CIRCUIT.value})


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Which operations to list; None means any."""

    status: OperationState | None
    dependency: str | None

    def may_match(self, preview: OperationPreview) -> bool:
        """Whether an operation may be one of them, as far as its preview shows."""
        return _agree(self.status, preview.status) and _agree(self.dependency, preview.dependency)

    def matches(self, document: dict[str, Any]) -> bool:
        """Whether a status document is one of them."""
        return _agree(self.status, document["status"]) and _agree(self.dependency, document["dependency"])


def _agree(wanted: str | None, found: str | None) -> bool:
    return wanted is None or found is None or wanted == found


@routes.get(
    "operations",
    parameters=(STATUS, DEPENDENCY, CREATED_AFTER, LIMIT, CURSOR),
    answers=page(OperationPage),
    errors=(AWAY,),
)
async def list_operations(query: Query, hub: str) -> func.HttpResponse:
    """List the operations that the task hub still has."""
    wanted = OperationFilter(query[STATUS], query[DEPENDENCY])
    try:
        return await _page(hub, wanted, query[CREATED_AFTER], query[LIMIT], query[CURSOR])
    except BadCursorError as error:
        raise InvalidInputError([Problem("/cursor", str(error))]) from error


async def _page(
    hub: str, wanted: OperationFilter, created_after: datetime | None, limit: int, cursor: str | None
) -> func.HttpResponse:
    """Choose by previews, then read the chosen documents; one that has changed meanwhile is left out."""
    found: list[str] = []
    looked_at, following = 0, None
    runtimes = runtimes_of(wanted.status)
    async for preview in scan_operations(
        hub, runtime_statuses=runtimes, created_after=created_after, cursor=cursor
    ):
        looked_at += 1
        if wanted.may_match(preview):
            found.append(preview.operation_id)
        if len(found) == limit or looked_at == _MAX_SCANNED:
            following = preview.cursor_after
            break
    documents = await _documents(hub, found)
    return page_answer([one for one in documents if wanted.matches(one)], following)


async def _documents(hub: str, ids: list[str]) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(operation_id: str) -> dict[str, Any] | None:
        async with slots:
            return await find_status(hub, operation_id)

    found = await asyncio.gather(*map(read, ids))
    return [document for document in found if document is not None]


@routes.get("operations/summary", parameters=(WINDOW,), answers=shown(OperationSummary), errors=(AWAY,))
async def summarize_operations(query: Query, hub: str) -> func.HttpResponse:
    """Count operations by state, lately and now."""
    return json_answer(await operation_summary(hub, query[WINDOW]))


@routes.get("operations/{operation_id}", answers=shown(OperationDocument), errors=(MISSING, AWAY))
async def get_operation(operation_id: str, hub: str) -> func.HttpResponse:
    """Show an operation."""
    return json_answer(await _find(hub, operation_id))


@routes.post(
    "operations/{operation_id}/cancel",
    answers=accepted(SteeredOperation, "The operation was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def cancel_operation(operation_id: str, hub: str) -> func.HttpResponse:
    """Cancel an operation; an attempt under way ends first."""
    document = await _find(hub, operation_id)
    if is_finished(document):
        raise _conflict(document, "is finished and cannot be cancelled")
    await raise_event(hub, operation_id, CANCEL_EVENT, {})
    return _accepted(document)


@routes.post(
    "operations/{operation_id}/retry-now",
    answers=accepted(SteeredOperation, "The operation was signalled."),
    errors=(MISSING, CONFLICT, AWAY),
)
async def retry_operation_now(operation_id: str, hub: str) -> func.HttpResponse:
    """End the present wait of an operation."""
    document = await _find(hub, operation_id)
    if document["status"] not in _WAITING:
        raise _conflict(document, "is not waiting")
    # The event names the attempt that it is for: should this wait end first, the next one must not end early.
    await raise_event(hub, operation_id, RETRY_NOW_EVENT, {"attempt": document["attempt_count"] + 1})
    return _accepted(document)


async def _find(hub: str, operation_id: str) -> dict[str, Any]:
    return required(await find_status(hub, operation_id), "operation of this id")


def _accepted(document: dict[str, Any]) -> func.HttpResponse:
    body = {"operation_id": document["operation_id"], "status": document["status"]}
    return json_answer(body, HTTPStatus.ACCEPTED)


def _conflict(document: dict[str, Any], what: str) -> ConflictError:
    return ConflictError(f"The operation {what}: its status is {document['status']}.")
