"""Find anything by one question: operations, dead letters, events, batches, sagas, bulk actions, activity.

Each kind has a list of its own, the newest first, that reads a bounded number of rows per page. A page of
the search takes a page of every list that can answer, and shows the newest that match. Its cursor has the
page of each list, and behind which item it continues there. A list that found nothing yet continues on the
next page; what it finds then can be newer than what was shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import JsonShape, to_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter, DeadLetterSearch
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import named_ids
from durable_retry.rules.dead_letters.record import Status
from durable_retry.rules.facts import TargetType
from durable_retry_console.activity.find import find_activity
from durable_retry_console.activity.shapes import ActivityFilter, ActivityKind
from durable_retry_console.bulk.actions import list_bulk_actions
from durable_retry_console.bulk.shapes import BulkState
from durable_retry_console.finding.operations import find_operations
from durable_retry_console.finding.question import (
    INSTANCES_READ,
    NAMES,
    ROWS_READ,
    BadCursorError,
    FoundItem,
    FoundList,
    FoundType,
    Items,
    Question,
    cursor_content,
    cursor_text,
    found_operation,
)
from durable_retry_console.optional import of_features

_OF_FEATURES: Final = {
    "outbox": "durable_retry_console.finding.events:LISTS",
    "workflows": "durable_retry_console.finding.workflows:LISTS",
}


@dataclass(frozen=True, slots=True)
class _ListCursor(JsonShape):
    """Where a list continues."""

    page: str | None = None
    # Position of the last item of that page that was shown; None when none was.
    behind: tuple[str, ...] | None = None


async def search(hub: TaskHub, question: Question, *, limit: int, cursor: str | None) -> Page[FoundItem]:
    """Return a page of what matches a question, the newest first.

    Args:
        limit: Most items; a shorter page may have a cursor.

    Raises:
        BadCursorError: The cursor was not given out here.
        InvalidInputError: Nothing of the question's kind is ever in its status.
    """
    every: dict[str, FoundList] = _LISTS.copy()
    for lists_of_feature in of_features(_OF_FEATURES).values():
        every |= lists_of_feature
    _check_status(question, every.values())
    lists = {
        name: partial(each.read, hub, question) for name, each in every.items() if each.can_answer(question)
    }
    places = dict.fromkeys(lists, _ListCursor())
    if cursor is not None:
        try:
            places = {name: _ListCursor.from_json(place) for name, place in cursor_content(cursor).items()}
        except (ValueError, AttributeError) as error:
            raise BadCursorError("to this question") from error
        if not places or not places.keys() <= lists.keys():
            raise BadCursorError("to this question")
    items: list[FoundItem] = []
    while places and len(items) < limit:
        found, places = await _read_pages(lists, places, question, limit, limit - len(items))
        if not found:
            break
        items += found
    items.sort(key=_item_position, reverse=True)
    positions = {name: place.to_json() for name, place in places.items()}
    return Page[FoundItem](items=tuple(items), next_cursor=cursor_text(positions) if places else None)


def _check_status(question: Question, lists: Iterable[FoundList]) -> None:
    known = {state for each in lists if question.kind in (None, each.kind) for state in each.states}
    # An app without a feature has no things of its type, in whatever status.
    if known and question.status not in {None, *known}:
        raise InvalidInputError([Problem("/status", f"must be one of {', '.join(sorted(known))}")])


async def _read_pages(
    lists: Mapping[str, Callable[[int, str | None], Awaitable[Items]]],
    places: Mapping[str, _ListCursor],
    question: Question,
    size: int,
    most: int,
) -> tuple[list[FoundItem], dict[str, _ListCursor]]:
    """Read one page of each list; return the newest that match, and where each list continues.

    Args:
        size: The size of the pages; the same each time, since a page is read again until all of it was shown.
    """
    pages = await asyncio.gather(*(lists[name](size, place.page) for name, place in places.items()))
    left: dict[str, list[FoundItem]] = {}
    # A list that has more may have it right behind its page: what is older than that has to wait.
    horizon = ("", "")
    for (name, place), (items, after) in zip(places.items(), pages, strict=True):
        sorted_ = sorted(filter(question.matches, items), key=_item_position, reverse=True)
        left[name] = [item for item in sorted_ if place.behind is None or _item_position(item) < place.behind]
        if after is not None and left[name]:
            horizon = max(horizon, _item_position(left[name][-1]))
    every = sorted(((_item_position(item), name) for name in left for item in left[name]), reverse=True)[
        :most
    ]
    newest = [name for position, name in every if position >= horizon]
    following = {}
    for (name, place), (_, after) in zip(places.items(), pages, strict=True):
        count = newest.count(name)
        if count < len(left[name]):
            behind = _item_position(left[name][count - 1]) if count else place.behind
            following[name] = _ListCursor(place.page, behind)
        elif after is not None:
            following[name] = _ListCursor(after)
    return [item for name in left for item in left[name][: newest.count(name)]], following


def _item_position(item: FoundItem) -> tuple[str, str]:
    return to_rfc3339(item.created_at), item.id


async def _read_operations(hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    documents, following = await find_operations(hub, question, limit=limit, cursor=cursor)
    return [*map(found_operation, documents)], following


async def _read_dead_letters(_hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    status = None if question.status is None else Status(question.status)
    wanted, more = question.into(DeadLetterFilter, status=status), question.into(DeadLetterSearch)
    page = await list_dead_letters(wanted, limit=limit, cursor=cursor, search=more)
    return [
        FoundItem.taken_from(
            record,
            type=FoundType.DEAD_LETTER,
            error=f"{record.reason.value}: {record.detail}",
            dead_letter_id=record.id,
        )
        for record in page.records
    ], page.cursor


async def _read_bulk_actions(hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    page = await list_bulk_actions(hub, min(limit, INSTANCES_READ), cursor)
    items = []
    for action in page.items:
        error = "\n".join(failure.detail for failure in action.failures) or None
        chosen = action.filter or {}
        names = (action.action_id, action.action, action.status, action.note, *chosen.values())
        if question.has_words(error, *names):
            more = {"id": action.action_id, "dependency": chosen.get("dependency"), "error": error}
            items.append(FoundItem.taken_from(action, type=FoundType.BULK_ACTION, **more))
    return items, page.next_cursor


async def _read_activity(_hub: TaskHub, question: Question, limit: int, cursor: str | None) -> Items:
    wanted = ActivityFilter(
        kind=None if question.status is None else ActivityKind(question.status),
        dependency=question.dependency,
        after=question.created_after,
        before=question.created_before,
    )
    page = await find_activity(wanted, limit if question.words is None else max(limit, ROWS_READ), cursor)
    # With the key of an operation one finds who cancelled it, too.
    operation_ids = named_ids(question.words or "")
    return [
        FoundItem(
            type=FoundType.ACTIVITY,
            id=item.target.id,
            name=item.what if item.who is None else f"{item.who} {item.what}",
            status=item.kind,
            dependency=item.dependency,
            operation_id=item.target.id if item.target.type is TargetType.OPERATION else None,
            error=item.reason,
            created_at=item.at,
        )
        for item in page.items
        if item.target.id in operation_ids
        or question.has_words(item.who, item.what, item.reason, item.target.id, item.dependency)
    ], page.next_cursor


_LISTS: Final = {
    "operations": FoundList(FoundType.OPERATION, OperationState, NAMES, _read_operations),
    "dead_letters": FoundList(FoundType.DEAD_LETTER, Status, NAMES, _read_dead_letters),
    "bulk_actions": FoundList(FoundType.BULK_ACTION, BulkState, ("dependency",), _read_bulk_actions),
    "activity": FoundList(FoundType.ACTIVITY, ActivityKind, ("dependency",), _read_activity),
}
