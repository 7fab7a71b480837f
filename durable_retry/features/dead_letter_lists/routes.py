"""HTTP: dead letters in lists and in numbers."""

from dataclasses import replace
from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.names import Category, DeadLetterReason, Priority
from durable_retry.dead_letters.routes import REFUSALS
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import count_dead_letters, list_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter, DeadLetterSearch
from durable_retry.features.dead_letter_lists.rules.numbers import (
    WITHOUT_DEPENDENCY,
    DeadLetterCount,
    DeadLetterSummary,
)
from durable_retry.http.parameters import (
    CORRELATION_ID,
    CREATED_AFTER,
    CREATED_BEFORE,
    DEBOUNCE_KEY,
    LIMIT,
    LIMIT_KEY,
    ORDER_KEY,
    one_of,
    row_cursor,
    text,
)
from durable_retry.http.routes import OK, Query, RouteAnswer, Routes
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import Status
from durable_retry.runtime import clock

routes = Routes("dead letters", REFUSALS)

MOVING: Final = frozenset({"oldest_age_seconds"})
"""Fields of the numbers that the entity tag leaves out: they change with the time of the request."""

STATUS: Final = one_of("status", Status, "Only those with this status.")
REASON: Final = one_of("reason", DeadLetterReason, "Only those with this reason.")
CATEGORY: Final = one_of("category", Category, "Only those whose last attempt failed with this category.")
DEPENDENCY: Final = replace(
    text("dependency", "Only of this dependency; `(none)` for messages that name none."),
    read=lambda name: "" if name == WITHOUT_DEPENDENCY else name,
)
GROUP: Final = text("group", "Only of this root cause.")
KEY: Final = text("key", "Only of this key, the whole of it.")
APP_VERSION: Final = text("app_version", "Only of this version of the app, the whole of it.")
PRIORITY: Final = one_of("priority", Priority, "Only of operations of this priority.")
WORDS: Final = text(
    "q",
    "Each word stands in the key, the correlation id, the order key, the debounce key, the id, the operation "
    "id, the reason or the first 300 characters of the detail, as a part of it and in whatever case.",
)
LIST_CURSOR: Final = row_cursor(r"[0-9]{17}dl-[0-9a-f]{32}")

_FILTERS: Final = (
    *(STATUS, REASON, CATEGORY, DEPENDENCY, GROUP, ORDER_KEY, PRIORITY, LIMIT_KEY, DEBOUNCE_KEY),
    *(CREATED_AFTER, CREATED_BEFORE, APP_VERSION),
)


@routes.get("dead-letters", parameters=(*_FILTERS, KEY, CORRELATION_ID, WORDS, LIMIT, LIST_CURSOR))
async def get_dead_letters(query: Query) -> Page[DeadLetterDocument]:
    """List dead letters, the newest first."""
    return await list_letters(
        query.into(DeadLetterFilter),
        limit=query[LIMIT],
        cursor=query[LIST_CURSOR],
        search=query.into(DeadLetterSearch, words=query[WORDS]),
    )


@routes.get("dead-letters/count", parameters=_FILTERS)
async def count_dead_letters_that_match(query: Query) -> DeadLetterCount:
    """Count dead letters that match a filter, all of them.

    About 1,000 with each request to storage.
    """
    return DeadLetterCount(count=await count_dead_letters(query.into(DeadLetterFilter)))


@routes.get(
    "dead-letters/summary", answers=(RouteAnswer(OK, "The numbers.", DeadLetterSummary),), moving=MOVING
)
async def get_dead_letter_summary() -> DeadLetterSummary:
    """Count open dead letters and give the age of the oldest."""
    return await read_summary(clock.now())
