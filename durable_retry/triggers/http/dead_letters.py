"""HTTP: dead letters in lists, groups, numbers and one by one; archive, restore, annotate, replay one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, Self

import azure.functions as func
from pydantic import model_validator

from durable_retry import clock
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.errors import (
    ContendedError,
    KeyTakenError,
    NoSuchDeadLetterError,
    NoSuchEventError,
    StillRunningError,
    StorageRefusedError,
    UnreadableDeadLetterError,
)
from durable_retry.engine.base.names import Category, DeadLetterReason, Priority
from durable_retry.engine.base.validation import Strict, refuse, with_example
from durable_retry.engine.dead_letters.document import (
    WITHOUT_DEPENDENCY,
    CauseStatus,
    DeadLetterCount,
    DeadLetterDocument,
    DeadLetterGroup,
    DeadLetterSummary,
    StartedReplay,
)
from durable_retry.engine.dead_letters.filters import DeadLetterFilter, DeadLetterSearch
from durable_retry.engine.dead_letters.record import FullError, Status, WrongStatusError
from durable_retry.engine.dead_letters.replay import NoteText, ReplayBody
from durable_retry.engine.facts import TargetType
from durable_retry.http.answers import ConflictError, NotFoundError, json_answer
from durable_retry.http.callers import Act, Caller
from durable_retry.http.parameters import (
    CORRELATION_ID,
    CREATED_AFTER,
    CREATED_BEFORE,
    DEBOUNCE_KEY,
    LIMIT,
    ORDER_KEY,
    cursor,
    one_of,
    text,
)
from durable_retry.http.routes import OK, Declaration, Query, RouteAnswer, Routes, accepted, page, shown
from durable_retry.runtime.binding import TaskHub
from durable_retry.services.dead_letters.causes import GroupPosition, list_groups
from durable_retry.services.dead_letters.records import (
    annotate,
    archive,
    count_letters,
    find_letter,
    list_letters,
    restore,
    summarize,
)
from durable_retry.services.dead_letters.replay import replay_dead_letter

REFUSALS: Final[Mapping[type[Exception], Callable[[Any], Exception]]] = {
    NoSuchDeadLetterError: lambda _: NotFoundError("dead letter of this id"),
    WrongStatusError: lambda error: ConflictError(f"The dead letter is {error.status.value}."),
    FullError: lambda error: ConflictError(f"The dead letter takes no more: {error}."),
    StillRunningError: lambda _: ConflictError("The operation of the dead letter is running."),
    KeyTakenError: lambda _: ConflictError("The key of the dead letter belongs to another request by now."),
    NoSuchEventError: lambda _: ConflictError("The event of the dead letter was removed."),
    StorageRefusedError: lambda error: ConflictError(f"The dead letter takes no more: {error}."),
    UnreadableDeadLetterError: lambda error: ConflictError(f"The dead letter cannot be read: {error}."),
    ContendedError: lambda _: ConflictError("Others are changing the dead letter at this moment; try again."),
}

routes = Routes("dead letters", REFUSALS)

MOVING: Final = frozenset({"oldest_age_seconds"})
"""Fields of the numbers that the entity tag leaves out: they change with the time of the request."""

_CURSOR: Final = re.compile(r"[0-9]{17}dl-[0-9a-f]{32}")
_GROUP_CURSOR: Final = re.compile(r"([0-9]{1,9})\|([0-9]{1,17})\|(g-[0-9a-f]{16})")


def _list_cursor(text: str) -> str:
    if not _CURSOR.fullmatch(text):
        raise ValueError(text)
    return text


def _group_cursor(text: str) -> GroupPosition:
    match = _GROUP_CURSOR.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return -int(match[1]), int(match[2]), match[3]


STATUS: Final = one_of("status", Status, "Only those with this status.")
REASON: Final = one_of("reason", DeadLetterReason, "Only those with this reason.")
CATEGORY: Final = one_of("category", Category, "Only those whose last attempt failed with this category.")
DEPENDENCY: Final = replace(
    text("dependency", "Only of this dependency; `(none)` for messages that name none."),
    read=lambda name: "" if name == WITHOUT_DEPENDENCY else name,
)
GROUP: Final = text("group", "Only of this root cause.")
KEY: Final = text("key", "Only of this key, the whole of it.")
PRIORITY: Final = one_of("priority", Priority, "Only of operations of this priority.")
WORDS: Final = text(
    "q",
    "Each word stands in the key, the correlation id, the order key, the debounce key, the id, the operation "
    "id, the reason or the first 300 characters of the detail, as a part of it and in whatever case.",
)
LIST_CURSOR: Final = cursor(_list_cursor)
CAUSE_STATUS: Final = one_of("status", CauseStatus, "Only causes with this status.")
GROUP_CURSOR: Final = cursor(_group_cursor)


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
    *(STATUS, REASON, CATEGORY, DEPENDENCY, GROUP, ORDER_KEY, PRIORITY, DEBOUNCE_KEY),
    *(CREATED_AFTER, CREATED_BEFORE),
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


@routes.get(
    "dead-letters/groups",
    parameters=(CAUSE_STATUS, LIMIT, GROUP_CURSOR),
    answers=page(Page[DeadLetterGroup]),
)
async def get_dead_letter_groups(query: Query) -> func.HttpResponse:
    """List the root causes of open dead letters: the one with the most first, of equals the oldest.

    A cause whose count changes between two pages may be on both of them, or on none.
    """
    return json_answer(await list_groups(query[LIMIT], query[GROUP_CURSOR], query[CAUSE_STATUS]))


@routes.get("dead-letters/summary", answers=(RouteAnswer(OK, "The numbers.", DeadLetterSummary),))
async def get_dead_letter_summary() -> func.HttpResponse:
    """Count open dead letters and give the age of the oldest."""
    return json_answer(await summarize(), moving=MOVING)


@routes.get("dead-letters/{dead_letter_id}", answers=shown(DeadLetterDocument))
async def get_dead_letter(dead_letter_id: str) -> func.HttpResponse:
    """Show a dead letter."""
    return json_answer(await find_letter(dead_letter_id))


def _changed(what: str, body: type[Strict], *, body_required: bool = False) -> Declaration:
    return {
        "act": Act(what, TargetType.DEAD_LETTER),
        "body": body,
        "body_required": body_required,
        "answers": (RouteAnswer(OK, "The dead letter after the change.", DeadLetterDocument),),
    }


@routes.post("dead-letters/{dead_letter_id}/archive", **_changed("archived the dead letter", NoBody))
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


@routes.post("dead-letters/{dead_letter_id}/restore", **_changed("restored the dead letter", NoBody))
async def restore_dead_letter(dead_letter_id: str, body: NoBody) -> func.HttpResponse:  # noqa: ARG001 - checked
    """Bring an archived dead letter back."""
    return json_answer(await restore(dead_letter_id))


@routes.post(
    "dead-letters/{dead_letter_id}/notes",
    **_changed("noted something on the dead letter", NoteBody, body_required=True),
)
async def note_dead_letter(dead_letter_id: str, body: NoteBody, who: Caller) -> func.HttpResponse:
    """Add a note to a dead letter."""
    return json_answer(await annotate(dead_letter_id, body.words, who.known_name))


@routes.post(
    "dead-letters/{dead_letter_id}/replay",
    act=Act("replayed the dead letter", TargetType.DEAD_LETTER),
    body=ReplayBody,
    body_required=False,
    answers=accepted(StartedReplay, "It was started."),
)
async def replay_one_dead_letter(
    dead_letter_id: str, body: ReplayBody, who: Caller, hub: TaskHub
) -> func.HttpResponse:
    """Start the operation of a dead letter again, as it was or edited.

    Its id and its key stay. The key that the dependency gets stays too, unless the call or the input is
    edited; `downstream_key` chooses.
    """
    started = await replay_dead_letter(hub, dead_letter_id, body, clock.now(), by=who.known_name)
    return json_answer(started, HTTPStatus.ACCEPTED)
