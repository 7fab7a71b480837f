"""HTTP: list operations that the task hub still has."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import azure.functions as func

from engine.problem import Problem
from engine.vocabulary import OperationState
from stores.operation_scan import BadCursorError, Glimpse, runtimes_of, scan_operations
from stores.status import find_status
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import invalid, json_answer
from triggers.queries import Query

blueprint = HttpBlueprint()

_STATES: Final = frozenset(state.value for state in OperationState)

_MAX_SCANNED: Final = 10_000
"""Operations looked at for one answer: a filter that matches little answers early, with a cursor."""

_READS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Filter:
    """What a caller wants to see; None means anything."""

    status: OperationState | None
    dependency: str | None

    def may_match(self, seen: Glimpse) -> bool:
        """Tell whether an operation may be wanted, as far as a glimpse tells."""
        return _agree(self.status, seen.status) and _agree(self.dependency, seen.dependency)

    def matches(self, document: dict[str, Any]) -> bool:
        """Tell whether a status document is wanted."""
        return _agree(self.status, document["status"]) and _agree(self.dependency, document["dependency"])


def _agree(wanted: str | None, found: str | None) -> bool:
    return wanted is None or found is None or wanted == found


@blueprint.route(route="operations", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def list_operations(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """List status documents, filtered, a page at a time."""
    query = Query(req.params)
    status, dependency = query.one_of("status", _STATES), query.text("dependency")
    created_after, limit, cursor = query.instant("created_after"), query.limit(), query.text("cursor")
    query.check()
    wanted = Filter(None if status is None else OperationState(status), dependency)
    try:
        return json_answer(await _page(hub, wanted, created_after, limit, cursor))
    except BadCursorError as error:
        return invalid([Problem("/cursor", str(error))])


async def _page(
    hub: str, wanted: Filter, created_after: datetime | None, limit: int, cursor: str | None
) -> dict[str, Any]:
    """Choose by glimpses, then read the chosen ones; one that moved on meanwhile is left out."""
    found: list[str] = []
    looked_at, following = 0, None
    runtimes = runtimes_of(wanted.status)
    async for seen in scan_operations(
        hub, runtime_statuses=runtimes, created_after=created_after, cursor=cursor
    ):
        looked_at += 1
        if wanted.may_match(seen):
            found.append(seen.operation_id)
        if len(found) == limit or looked_at == _MAX_SCANNED:
            following = seen.cursor_after
            break
    documents = await _documents(hub, found)
    return {"items": [one for one in documents if wanted.matches(one)], "next_cursor": following}


async def _documents(hub: str, ids: list[str]) -> list[dict[str, Any]]:
    gate = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(operation_id: str) -> dict[str, Any] | None:
        async with gate:
            return await find_status(hub, operation_id)

    found = await asyncio.gather(*map(read, ids))
    return [document for document in found if document is not None]
