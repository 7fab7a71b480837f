"""Find anything by one question: operations, dead letters, outbox events, batches, sagas and bulk replays.

Each kind has a list of its own, the newest first, that reads a bounded number of rows per page. A page of
the search takes a page of every list that can answer, and shows the newest that match. Its cursor has the
page of each list, and behind which item it continues there. A list that found nothing yet continues on the
next page; what it finds then can be newer than what was shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.text import mentions
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status
from durable_retry.engine.operations.status import last_error
from durable_retry.engine.outbox import EventState
from durable_retry.services.bulk_actions import find_bulk_replay
from durable_retry.services.operation_search import (
    BadCursorError,
    OperationFilter,
    cursor_content,
    cursor_text,
    find_operations,
    named_ids,
)
from durable_retry.stores.dead_letters.list import DeadLetterSearch, list_dead_letters
from durable_retry.stores.outbox import find_event, list_pending
from durable_retry.stores.outbox_index import list_ended
from durable_retry.stores.workflows import find_saga, list_batches, list_created

_EVENTS_READ, _WORKFLOWS_READ = 200, 50
"""Rows of one page of a list that has no index of names."""


class FoundType(StrEnum):
    """What a search finds."""

    OPERATION = "operation"
    DEAD_LETTER = "dead_letter"
    EVENT = "event"
    BATCH = "batch"
    SAGA = "saga"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is looked for; None means any.

    Attributes:
        words: Each must stand in a name, an id or the error of an item.
        kind: Only these.
        status: Its state, in the words of its kind.
        dependency: Name of the dependency.
        handler: Name of the handler.
        source: Where it came from: `http`, `queue`, ...
        key: The whole key.
        correlation_id: The whole correlation id.
        created_after: Created at this instant or later.
        created_before: Created before this instant.
    """

    words: str | None = None
    kind: FoundType | None = None
    status: str | None = None
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def matches(self, item: Mapping[str, Any]) -> bool:
        """Return whether an item is what is looked for, its words aside."""
        created_at = from_rfc3339(item["created_at"])
        return (
            all(getattr(self, name) in (None, item[name]) for name in _EXACT)
            and (self.created_after is None or created_at >= self.created_after)
            and (self.created_before is None or created_at < self.created_before)
        )


_EXACT: Final = ("status", "dependency", "handler", "source", "key", "correlation_id")


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of items; `cursor` continues behind it, None at the end."""

    items: list[dict[str, Any]]
    cursor: str | None


type _Items = tuple[list[dict[str, Any]], str | None]
"""Items and the cursor of the next page."""

type _List = Callable[[int, str | None], Awaitable[_Items]]
"""Takes the most items and a cursor."""


@dataclass(frozen=True, slots=True)
class _ListCursor:
    """Where a list continues.

    Attributes:
        page: The list's own cursor of the page to read; None for the first page.
        behind: Position of the last item of that page that was shown; None when none was.
    """

    page: str | None = None
    behind: tuple[str, str] | None = None


async def search(hub: str, question: Question, *, tenant: str, limit: int, cursor: str | None) -> SearchPage:
    """Return a page of what matches a question, the newest first.

    Args:
        hub: Configuration of the durable client.
        question: What is looked for.
        tenant: Of the caller, whose keys are looked up at once.
        limit: Most items; a shorter page may have a cursor.
        cursor: Of the page before; None for the first.

    Raises:
        BadCursorError: The cursor was not given out here.
        TaskHubUnavailableError: The task hub did not answer.
    """
    lists = _lists(hub, question, tenant)
    places = dict.fromkeys(lists, _ListCursor()) if cursor is None else _places(cursor, lists)
    items: list[dict[str, Any]] = []
    while places and len(items) < limit:
        found, places = await _read_pages(lists, places, question, limit, limit - len(items))
        if not found:
            break
        items += found
    items.sort(key=_position, reverse=True)
    return SearchPage(items, _cursor(places) if places else None)


async def _read_pages(
    lists: Mapping[str, _List], places: Mapping[str, _ListCursor], question: Question, size: int, most: int
) -> tuple[list[dict[str, Any]], dict[str, _ListCursor]]:
    """Read one page of each list; return the newest that match, and where each list continues.

    Args:
        lists: By name.
        places: Of those that have more.
        question: What is looked for.
        size: Of the pages; the same each time, since a page is read again until all of it was shown.
        most: Items to return.
    """
    pages = await asyncio.gather(*(lists[name](size, place.page) for name, place in places.items()))
    left: dict[str, list[dict[str, Any]]] = {}
    # A list that has more may have it right behind its page: what is older than that has to wait.
    horizon = ("", "")
    for (name, place), (items, after) in zip(places.items(), pages, strict=True):
        sorted_ = sorted(filter(question.matches, items), key=_position, reverse=True)
        left[name] = [item for item in sorted_ if place.behind is None or _position(item) < place.behind]
        if after is not None and left[name]:
            horizon = max(horizon, _position(left[name][-1]))
    every = sorted(((_position(item), name) for name in left for item in left[name]), reverse=True)[:most]
    newest = [name for position, name in every if position >= horizon]
    following = {}
    for (name, place), (_, after) in zip(places.items(), pages, strict=True):
        count = newest.count(name)
        if count < len(left[name]):
            behind = _position(left[name][count - 1]) if count else place.behind
            following[name] = _ListCursor(place.page, behind)
        elif after is not None:
            following[name] = _ListCursor(after)
    return [item for name in left for item in left[name][: newest.count(name)]], following


def _position(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["created_at"], item["id"]


def _places(cursor: str, lists: Iterable[str]) -> dict[str, _ListCursor]:
    try:
        places = {
            "" + name: _ListCursor(after, None if behind is None else ("" + behind[0], "" + behind[1]))
            for name, (after, behind) in cursor_content(cursor).items()
        }
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise BadCursorError(_NOT_OURS) from error
    if not places or not places.keys() <= set(lists):
        raise BadCursorError(_NOT_OURS)
    return places


_NOT_OURS: Final = "this cursor was not given out here, or for another question"


def _cursor(places: Mapping[str, _ListCursor]) -> str:
    return cursor_text({name: (place.page, place.behind) for name, place in places.items()})


def _lists(hub: str, question: Question, tenant: str) -> dict[str, _List]:
    """Return the lists that can answer a question, by name."""
    operations = partial(_operations, hub, question, tenant)
    lists: dict[str, tuple[FoundType, type[StrEnum] | None, frozenset[str], _List]] = {
        "operations": (FoundType.OPERATION, OperationState, _NAMED, operations),
        "dead_letters": (FoundType.DEAD_LETTER, Status, _NAMED, partial(_dead_letters, question)),
    }
    for state in EventState:
        ours = partial(_events, question, state, frozenset(named_ids(question.words or "", tenant)))
        lists[f"{state.value}_events"] = (FoundType.EVENT, EventState, frozenset({"dependency"}), ours)
    lists |= {
        "batches": (FoundType.BATCH, None, frozenset(), partial(_batches, question)),
        "sagas": (FoundType.SAGA, None, frozenset(), partial(_sagas, hub, question)),
        "replays": (FoundType.REPLAY, None, frozenset({"dependency"}), partial(_replays, hub, question)),
    }
    asked = {name for name in _EXACT if name != "status" and getattr(question, name) is not None}
    return {
        name: read
        for name, (kind, states, known, read) in lists.items()
        if question.kind in (None, kind)
        and asked <= known
        and (question.status is None or states is None or question.status in set(states))
    }


_NAMED: Final = frozenset({"dependency", "handler", "source", "key", "correlation_id"})
"""What operations and dead letters are asked by."""


async def _operations(hub: str, question: Question, tenant: str, limit: int, cursor: str | None) -> _Items:
    wanted = OperationFilter(
        status=None if question.status is None else OperationState(question.status),
        dependency=question.dependency,
        handler=question.handler,
        source=question.source,
        key=question.key,
        correlation_id=question.correlation_id,
        words=question.words,
        created_after=question.created_after,
        created_before=question.created_before,
    )
    page = await find_operations(hub, wanted, tenant=tenant, limit=limit, cursor=cursor)
    return [_of_operation(document) for document in page.documents], page.cursor


async def _dead_letters(question: Question, limit: int, cursor: str | None) -> _Items:
    wanted = DeadLetterFilter(
        status=None if question.status is None else Status(question.status),
        dependency=question.dependency,
        created_after=question.created_after,
        created_before=question.created_before,
    )
    more = DeadLetterSearch(key=question.key, correlation_id=question.correlation_id, words=question.words)
    page = await list_dead_letters(wanted, limit=limit, cursor=cursor, search=more)
    return [_of_dead_letter(record) for record in page.records], page.cursor


async def _events(
    question: Question, state: EventState, operation_ids: frozenset[str], limit: int, cursor: str | None
) -> _Items:
    rows = limit if question.words is None else max(limit, _EVENTS_READ)
    if state is EventState.PENDING:
        documents, following = await list_pending(rows, cursor)
    else:
        documents, following = await list_ended(state, rows, cursor)
    if question.words is not None and cursor is None and (named := await find_event(question.words)):
        if named.event.state is state:
            documents = [named.event.to_json()]
        return [_of_event(document) for document in documents if document["event_id"] == question.words], None
    names = ("event_id", "operation_id", "type", "queue", "dependency", "path", "detail")
    return [
        _of_event(document)
        for document in documents
        if document["operation_id"] in operation_ids or _says(question, *(document[name] for name in names))
    ], following


async def _batches(question: Question, limit: int, cursor: str | None) -> _Items:
    documents, following = await list_batches(min(limit, _WORKFLOWS_READ), cursor)
    items = [_item(FoundType.BATCH, each["batch_id"], each) for each in documents]
    return [item for item in items if _says(question, item["id"], item["status"])], following


async def _sagas(hub: str, question: Question, limit: int, cursor: str | None) -> _Items:
    documents, following = await _created(FoundType.SAGA, partial(find_saga, hub), limit, cursor)
    return [
        _item(FoundType.SAGA, each["saga_id"], each, error=_saga_error(each))
        for each in documents
        if _says(question, each["saga_id"], each["status"], *_saga_names(each))
    ], following


async def _replays(hub: str, question: Question, limit: int, cursor: str | None) -> _Items:
    documents, following = await _created(FoundType.REPLAY, partial(find_bulk_replay, hub), limit, cursor)
    items = [
        _item(
            FoundType.REPLAY,
            each["replay_id"],
            each,
            dependency=each["filter"]["dependency"],
            error="\n".join(failure["detail"] for failure in each["failures"]) or None,
        )
        for each in documents
    ]
    notes = {each["replay_id"]: (each["note"], *each["filter"].values()) for each in documents}
    return [
        item
        for item in items
        if _says(question, item["id"], item["status"], item["error"], *notes[item["id"]])
    ], following


async def _created(
    kind: str, find: Callable[[str], Awaitable[dict[str, Any] | None]], limit: int, cursor: str | None
) -> _Items:
    limit = min(limit, _WORKFLOWS_READ)
    return await list_created(kind, find, limit=limit, cursor=cursor)


def _says(question: Question, *texts: object) -> bool:
    return question.words is None or mentions(
        question.words, *(text for text in texts if isinstance(text, str))
    )


def _saga_names(document: Mapping[str, Any]) -> list[str | None]:
    parts = [part for step in document["steps"] for part in (step, step["compensation"]) if part is not None]
    return [
        *(step["name"] for step in document["steps"]),
        *(part[name] for part in parts for name in ("key", "operation_id", "error")),
    ]


def _saga_error(document: Mapping[str, Any]) -> str | None:
    parts = [part for step in document["steps"] for part in (step["compensation"], step) if part is not None]
    return next((part["error"] for part in parts if part["error"]), None)


def _of_operation(document: Mapping[str, Any]) -> dict[str, Any]:
    return _item(
        FoundType.OPERATION,
        document["operation_id"],
        document,
        **{name: document.get(name) for name in _NAMED},
        operation_id=document["operation_id"],
        error=_error_of(document),
        attempt_count=document["attempt_count"],
        next_attempt_at=document["next_attempt_at"],
        dead_letter_id=(document["dead_letter"] or {}).get("id"),
    )


def _error_of(document: Mapping[str, Any]) -> str | None:
    """Return in one line why an operation did not go through; None while nothing failed, or once it did."""
    dead_letter = document["dead_letter"]
    if dead_letter is not None:
        return f"{dead_letter['reason']}: {dead_letter['detail']}"
    return None if document["status"] == OperationState.SUCCEEDED else last_error(document) or None


def _of_dead_letter(record: DeadLetterRecord) -> dict[str, Any]:
    return _item(
        FoundType.DEAD_LETTER,
        record.id,
        {"status": record.status.value, "created_at": to_rfc3339(record.created_at)},
        **{name: getattr(record, name) for name in _NAMED if name != "handler"},
        handler=(record.operation or {}).get("handler"),
        operation_id=record.operation_id,
        error=f"{record.reason.value}: {record.detail}",
        dead_letter_id=record.id,
    )


def _of_event(document: Mapping[str, Any]) -> dict[str, Any]:
    return _item(
        FoundType.EVENT,
        document["event_id"],
        {**document, "status": document["state"]},
        name=document["type"],
        dependency=document["dependency"],
        operation_id=document["operation_id"],
        error=document["detail"],
    )


def _item(kind: FoundType, id_: str, document: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return an item: what every kind has, null where it has none."""
    item: dict[str, Any] = {
        "type": kind.value,
        "id": id_,
        "name": None,
        "status": document["status"],
        **dict.fromkeys(("key", "dependency", "handler", "source", "correlation_id", "operation_id")),
        **dict.fromkeys(("error", "attempt_count", "next_attempt_at", "dead_letter_id")),
        "created_at": document["created_at"],
    }
    return item | more
