"""HTTP: dead letters in lists, numbers and one by one; archive, restore, annotate."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Self

import azure.functions as func
from pydantic import model_validator

from durable_retry.base.answers import Answer, Page
from durable_retry.base.errors import (
    ContendedError,
    KeyTakenError,
    NoSuchDeadLetterError,
    NothingToReplayError,
    StillRunningError,
    StorageRefusedError,
    UnreadableDeadLetterError,
)
from durable_retry.base.names import Category, DeadLetterReason, Priority
from durable_retry.base.validation import Strict, refuse, with_example
from durable_retry.dead_letters.actions import (
    annotate,
    archive,
    count_letters,
    find_letter,
    list_letters,
    restore,
    summarize,
)
from durable_retry.http.answers import ConflictError, NotFoundError, json_answer
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import (
    CORRELATION_ID,
    CREATED_AFTER,
    CREATED_BEFORE,
    DEBOUNCE_KEY,
    LIMIT,
    LIMIT_KEY,
    ORDER_KEY,
    cursor,
    one_of,
    text,
)
from durable_retry.http.routes import OK, Declaration, Query, RouteAnswer, Routes, page, shown
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.dead_letters.document import (
    WITHOUT_DEPENDENCY,
    DeadLetterCount,
    DeadLetterDocument,
    DeadLetterSummary,
)
from durable_retry.rules.dead_letters.filters import DeadLetterFilter, DeadLetterSearch
from durable_retry.rules.dead_letters.record import FullError, Status, WrongStatusError
from durable_retry.rules.dead_letters.replay import NoteText
from durable_retry.rules.facts import TargetType

type Refusal = Callable[[Any], Exception]


def refused_changes(of: str) -> dict[type[Exception], Refusal]:
    return {
        FullError: lambda error: ConflictError(f"The {of} takes no more: {error}."),
        StorageRefusedError: lambda error: ConflictError(f"The {of} takes no more: {error}."),
        ContendedError: lambda _: ConflictError(f"Others are changing the {of} at this moment; try again."),
    }


REFUSALS: Final[Mapping[type[Exception], Refusal]] = {
    NoSuchDeadLetterError: lambda _: NotFoundError("dead letter of this id"),
    WrongStatusError: lambda error: ConflictError(f"The dead letter is {error.status.value}."),
    StillRunningError: lambda _: ConflictError("The operation of the dead letter is running."),
    KeyTakenError: lambda _: ConflictError("The key of the dead letter belongs to another request by now."),
    NothingToReplayError: lambda _: ConflictError("The event of the dead letter was removed."),
    UnreadableDeadLetterError: lambda error: ConflictError(f"The dead letter cannot be read: {error}."),
    **refused_changes("dead letter"),
}
routes = Routes("dead letters", REFUSALS)

MOVING: Final = frozenset({"oldest_age_seconds"})
"""Fields of the numbers that the entity tag leaves out: they change with the time of the request."""

_CURSOR: Final = re.compile(r"[0-9]{17}dl-[0-9a-f]{32}")


def _list_cursor(text: str) -> str:
    if not _CURSOR.fullmatch(text):
        raise ValueError(text)
    return text


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
LIST_CURSOR: Final = cursor(_list_cursor)


class NoteBody(Strict):
    """The body of a note: its text, called `text` or, as with a replay, `note`."""

    model_config = with_example(text="The supplier was told.")

    text: NoteText | None = None
    note: NoteText | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.text is None) == (self.note is None):
            raise refuse("needs a text")
        return self

    @property
    def words(self) -> str:
        """The text, whichever field it came in."""
        return self.text or self.note or ""


class NoBody(Strict):
    """The empty body of a change that takes no arguments."""


_FILTERS: Final = (
    *(STATUS, REASON, CATEGORY, DEPENDENCY, GROUP, ORDER_KEY, PRIORITY, LIMIT_KEY, DEBOUNCE_KEY),
    *(CREATED_AFTER, CREATED_BEFORE, APP_VERSION),
)


@routes.get(
    "dead-letters",
    parameters=(*_FILTERS, KEY, CORRELATION_ID, WORDS, LIMIT, LIST_CURSOR),
    answers=page(Page[DeadLetterDocument]),
)
async def get_dead_letters(query: Query) -> func.HttpResponse:
    """List dead letters, the newest first."""
    letters = await list_letters(
        query.into(DeadLetterFilter),
        limit=query[LIMIT],
        cursor=query[LIST_CURSOR],
        search=query.into(DeadLetterSearch, words=query[WORDS]),
    )
    return json_answer(letters)


@routes.get("dead-letters/count", parameters=_FILTERS, answers=shown(DeadLetterCount))
async def count_dead_letters_that_match(query: Query) -> func.HttpResponse:
    """Count dead letters that match a filter, all of them.

    About 1,000 with each request to storage.
    """
    return json_answer(DeadLetterCount(count=await count_letters(query.into(DeadLetterFilter))))


@routes.get("dead-letters/summary", answers=(RouteAnswer(OK, "The numbers.", DeadLetterSummary),))
async def get_dead_letter_summary() -> func.HttpResponse:
    """Count open dead letters and give the age of the oldest."""
    return json_answer(await summarize(), moving=MOVING)


@routes.get("dead-letters/{dead_letter_id}", answers=shown(DeadLetterDocument))
async def get_dead_letter(dead_letter_id: str) -> func.HttpResponse:
    """Show a dead letter."""
    return json_answer(await find_letter(dead_letter_id))


def changed(
    what: str,
    body: type[Strict],
    *,
    body_required: bool = False,
    target: TargetType = TargetType.DEAD_LETTER,
    model: type[Answer] = DeadLetterDocument,
) -> Declaration:
    """Declare a route that changes a dead letter, or another target, and answers with it."""
    noun = target.value.replace("_", " ")
    return {
        "act": Act(f"{what} the {noun}", target),
        "body": body,
        "body_required": body_required,
        "answers": (RouteAnswer(OK, f"The {noun} after the change.", model),),
    }


@routes.post("dead-letters/{dead_letter_id}/archive", **changed("archived", NoBody))
async def archive_dead_letter(
    dead_letter_id: str,
    body: NoBody,  # noqa: ARG001 - checked
    who: Caller,
    hub: TaskHub,
) -> func.HttpResponse:
    """Put a dead letter away; what waits behind it in its order goes on.

    It is removed for good after the time that the settings give it.
    """
    return json_answer(await archive(hub, dead_letter_id, who.known_name))


@routes.post("dead-letters/{dead_letter_id}/restore", **changed("restored", NoBody))
async def restore_dead_letter(dead_letter_id: str, body: NoBody) -> func.HttpResponse:  # noqa: ARG001 - checked
    """Bring an archived dead letter back."""
    return json_answer(await restore(dead_letter_id))


@routes.post(
    "dead-letters/{dead_letter_id}/notes",
    **changed("noted something on", NoteBody, body_required=True),
)
async def note_dead_letter(dead_letter_id: str, body: NoteBody, who: Caller) -> func.HttpResponse:
    """Add a note to a dead letter."""
    return json_answer(await annotate(dead_letter_id, body.words, who.known_name))
