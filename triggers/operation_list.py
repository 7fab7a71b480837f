"""HTTP: list operations that the task hub still has."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import azure.functions as func

from engine.problem import InvalidInputError, Problem
from engine.vocabulary import OperationState
from stores.status import document_of, with_event_states
from stores.task_hub import BadCursorError, scan_operations
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import invalid, json_answer
from triggers.queries import Query

blueprint = HttpBlueprint()

_STATES: Final = frozenset(state.value for state in OperationState)

_MAX_SCANNED: Final = 2_000
"""Instances looked at for one answer: a filter that matches little answers early, with a cursor."""


_QUERIES_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Filter:
    """What a caller wants to see; None means anything."""

    status: str | None
    dependency: str | None

    def matches(self, document: dict[str, Any]) -> bool:
        """Tell whether a status document is wanted."""
        return self.status in {None, document["status"]} and self.dependency in {None, document["dependency"]}


@blueprint.route(route="operations", methods=["GET"])
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def list_operations(req: func.HttpRequest, hub: str) -> func.HttpResponse:
    """List status documents, filtered, a page at a time."""
    query = Query(req.params)
    wanted = Filter(query.one_of("status", _STATES), query.text("dependency"))
    created_after, limit, cursor = query.instant("created_after"), query.limit(), query.text("cursor")
    try:
        query.check()
        return json_answer(await _page(hub, wanted, created_after, limit, cursor))
    except InvalidInputError as error:
        return invalid(error.problems)
    except BadCursorError as error:
        return invalid([Problem("/cursor", str(error))])


async def _page(
    hub: str, wanted: Filter, created_after: datetime | None, limit: int, cursor: str | None
) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    scanned = 0
    async for seen in scan_operations(hub, created_after=created_after, cursor=cursor):
        scanned += 1
        document = document_of(seen.instance)
        if wanted.matches(document):
            items.append(document)
        if len(items) == limit or scanned == _MAX_SCANNED:
            return {"items": await _up_to_date(items), "next_cursor": seen.cursor_after}
    return {"items": await _up_to_date(items), "next_cursor": None}


async def _up_to_date(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let the events say where they stand now; costs a query for each operation that has any."""
    gate = asyncio.Semaphore(_QUERIES_AT_ONCE)

    async def look(document: dict[str, Any]) -> dict[str, Any]:
        async with gate:
            return await with_event_states(document)

    return await asyncio.gather(*map(look, documents))
