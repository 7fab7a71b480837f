"""HTTP: the list of operations, and finding anything by one question."""

from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.names import OperationState, Priority
from durable_retry.http import parameters
from durable_retry.http.routes import Query, Routes, page
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.operations.status import ListedOperation
from durable_retry_console.finding.operations import MAX_READ, find_operations
from durable_retry_console.finding.question import FoundItem, FoundType, Question
from durable_retry_console.finding.search import search

operation_routes = Routes("operations")
routes = Routes("search")

DEPENDENCY: Final = parameters.text("dependency", "Only of this dependency.")
HANDLER: Final = parameters.text("handler", "Only of this handler.")
SOURCE: Final = parameters.text("source", "Only of this source: `http`, `queue`, `batch`, ...")
KEY: Final = parameters.text(
    "key", "Only of this key, the whole of it; read at once, whatever else there is."
)
PRIORITY: Final = parameters.one_of(
    "priority", Priority, "Only of this priority; without one it is `normal`."
)

STATE: Final = parameters.one_of("status", OperationState, "Only operations with this status.")
OPERATION_WORDS: Final = parameters.text(
    "q",
    "Each word stands in the key, the correlation id, the order key, the limit key, the debounce key, the "
    "operation id or the last error, as a part of it and in whatever case. The operation of exactly this key "
    "or id is read at once and is on the first page.",
)

WORDS: Final = parameters.text(
    "q",
    "Each word stands in a name, an id or the error of an item, as a part of it and in whatever case. What "
    "has exactly this id, key, correlation id, order key, limit key or debounce key is read at once and is "
    "on the first page.",
)
TYPE: Final = parameters.one_of("type", FoundType, "Only things of this type.")
STATUS: Final = parameters.text("status", "Only of this status, in the words of the item's type.")

_NAMED: Final = (
    *(DEPENDENCY, HANDLER, SOURCE, KEY, parameters.CORRELATION_ID),
    *(parameters.ORDER_KEY, PRIORITY, parameters.LIMIT_KEY, parameters.DEBOUNCE_KEY),
)
_PLACED: Final = (parameters.CREATED_AFTER, parameters.CREATED_BEFORE, parameters.LIMIT, parameters.CURSOR)


@operation_routes.get(
    "operations",
    parameters=(STATE, *_NAMED, OPERATION_WORDS, *_PLACED),
    answers=page(Page[ListedOperation], f"about {MAX_READ:,} operations"),
)
async def list_operations(query: Query, hub: TaskHub) -> Page[ListedOperation]:
    """List operations, the newest first."""
    question = query.into(Question, words=query[OPERATION_WORDS])
    documents, following = await find_operations(
        hub, question, limit=query[parameters.LIMIT], cursor=query[parameters.CURSOR]
    )
    items = tuple(map(ListedOperation.read, documents))
    return Page[ListedOperation](items=items, next_cursor=following)


@routes.get(
    "search",
    parameters=(WORDS, TYPE, STATUS, *_NAMED, *_PLACED),
    answers=page(Page[FoundItem], "a bounded number of each type"),
)
async def search_everything(query: Query, hub: TaskHub) -> Page[FoundItem]:
    """Find operations, dead letters, outbox events, batches, sagas, bulk actions and activity."""
    question = query.into(Question, words=query[WORDS], kind=query[TYPE])
    return await search(hub, question, limit=query[parameters.LIMIT], cursor=query[parameters.CURSOR])
