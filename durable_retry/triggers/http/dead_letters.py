"""HTTP: dead letters in lists, groups and numbers and one by one; archive, restore and annotate one."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, Self

import azure.functions as func
from pydantic import BaseModel, Field, model_validator

from durable_retry import clock
from durable_retry.engine.base.json_forms import optional_to_rfc3339, to_rfc3339
from durable_retry.engine.base.names import Category, DeadLetterReason
from durable_retry.engine.base.validation import Strict, refuse
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import (
    DeadLetterRecord,
    FullError,
    Status,
    WrongStatusError,
    archived,
    noted,
    restored,
)
from durable_retry.engine.dead_letters.replay import NoteText
from durable_retry.services.replay import KeyTakenError, StillRunningError
from durable_retry.settings.configuration import masking_of
from durable_retry.stores.dead_letters.index import Group, OpenCount, read_groups, read_summary
from durable_retry.stores.dead_letters.list import DeadLetterSearch, list_dead_letters
from durable_retry.stores.dead_letters.records import (
    ContendedError,
    NoSuchDeadLetterError,
    change_dead_letter,
    find_dead_letter,
    move_dead_letter,
)
from durable_retry.stores.outbox import NoSuchEventError
from durable_retry.stores.tables import StorageRefusedError
from durable_retry.triggers.http.answers import (
    ConflictError,
    NotFoundError,
    etag_of,
    json_answer,
    page_answer,
    required,
)
from durable_retry.triggers.http.callers import Caller
from durable_retry.triggers.http.documents import Attempt, UtcInstant
from durable_retry.triggers.http.parameters import CREATED_AFTER, CREATED_BEFORE, LIMIT, cursor, one_of, text
from durable_retry.triggers.http.routes import (
    AWAY,
    CONFLICT,
    MISSING,
    OK,
    Query,
    RouteAnswer,
    Routes,
    page,
    shown,
)

_DEAD_LETTER: Final = "dead letter of this id"

REFUSALS: Final[Mapping[type[Exception], Callable[[Any], Exception]]] = {
    NoSuchDeadLetterError: lambda _: NotFoundError(_DEAD_LETTER),
    WrongStatusError: lambda error: ConflictError(f"The dead letter is {error.status.value}."),
    FullError: lambda error: ConflictError(f"The dead letter takes no more: {error}."),
    StillRunningError: lambda _: ConflictError("The operation of the dead letter is running."),
    KeyTakenError: lambda _: ConflictError("The key of the dead letter belongs to another request by now."),
    NoSuchEventError: lambda _: ConflictError("The event of the dead letter was removed."),
    StorageRefusedError: lambda error: ConflictError(f"The dead letter takes no more: {error}."),
    ContendedError: lambda _: ConflictError("Others are changing the dead letter at this moment; try again."),
}

routes = Routes("dead letters", REFUSALS)

WITHOUT_DEPENDENCY: Final = "(none)"
"""Stands for a dependency where a message names none that is configured."""

MOVING: Final = frozenset({"oldest_age_seconds"})
"""Fields of the numbers that the entity tag leaves out: they change with the time of the request."""

_CURSOR: Final = re.compile(r"[0-9]{17}dl-[0-9a-f]{32}")
_GROUP_CURSOR: Final = re.compile(r"([0-9]{1,9})\|(g-[0-9a-f]{16})")


def _list_cursor(text: str) -> str:
    if not _CURSOR.fullmatch(text):
        raise ValueError(text)
    return text


def _group_cursor(text: str) -> tuple[int, str]:
    found = _GROUP_CURSOR.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return -int(found[1]), found[2]


STATUS: Final = one_of("status", Status)
REASON: Final = one_of("reason", DeadLetterReason)
CATEGORY: Final = one_of("category", Category)
DEPENDENCY: Final = text("dependency", "Only of this dependency; `(none)` for messages that name none.")
GROUP: Final = text("group", "Only of this root cause.")
KEY: Final = text("key", "Only of this key, the whole of it.")
CORRELATION_ID: Final = text("correlation_id", "Only of this correlation id, the whole of it.")
WORDS: Final = text(
    "q",
    "Each word stands in the key, the correlation id, the id, the operation id, the reason or the first 300 "
    "characters of the detail, as a part of it and in whatever case.",
)
LIST_CURSOR: Final = cursor(_list_cursor)
GROUP_CURSOR: Final = cursor(_group_cursor)


class EditedPlace(BaseModel):
    """What an edit changed; a side that had nothing there lacks its key."""

    pointer: str
    before: Any = None
    after: Any = None


class ReplayNote(BaseModel):
    """One replay of a dead letter."""

    operation_id: str
    requested_at: UtcInstant
    note: str | None
    changes: list[EditedPlace]
    replay_id: str | None
    dead_letter_id: str | None
    by: str | None


class Note(BaseModel):
    """What a person wrote."""

    text: str
    at: UtcInstant
    by: str | None


class DeadLetterDocument(BaseModel):
    """What will not succeed without a person: has `request`, `handler` and `input`, or `message`."""

    id: str
    operation_id: str | None
    key: str
    source: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str
    group: str
    attempts: list[Attempt]
    request: dict[str, Any] | None = None
    handler: str | None = None
    input: Any = None
    message: str | None = None
    message_chars: Annotated[
        int | None,
        Field(description="Length of the whole message, of which `message` holds the first 100,000."),
    ] = None
    correlation_id: str | None
    first_failed_at: UtcInstant
    created_at: UtcInstant
    status: Status
    archived_at: UtcInstant | None
    archived_by: str | None
    replay_of: str | None
    replays: list[ReplayNote]
    notes: list[Note]


class DeadLetterPage(BaseModel):
    """A page of dead letters, the newest first."""

    items: list[DeadLetterDocument]
    next_cursor: str | None


class DeadLetterSample(BaseModel):
    """One dead letter of a group."""

    id: str
    dependency: str | None
    category: Category
    reason: DeadLetterReason
    detail: str


class DeadLetterGroup(BaseModel):
    """Open dead letters of one root cause."""

    group: str
    count: int
    first_seen_at: UtcInstant
    last_seen_at: UtcInstant
    sample: DeadLetterSample


class DeadLetterGroupPage(BaseModel):
    """A page of groups, the largest first."""

    items: list[DeadLetterGroup]
    next_cursor: str | None


class OpenDeadLetters(BaseModel):
    """Open dead letters of one kind."""

    open: int
    oldest_at: UtcInstant | None
    oldest_age_seconds: float | None


class DeadLetterSummary(OpenDeadLetters):
    """Open dead letters, in all and by kind."""

    by_reason: dict[str, OpenDeadLetters]
    by_dependency: dict[str, OpenDeadLetters]


class NoteBody(Strict):
    """The body of a note: its text, called `text` or, as with a replay, `note`."""

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


@routes.get(
    "dead-letters",
    parameters=(
        *(STATUS, REASON, CATEGORY, DEPENDENCY, GROUP, KEY, CORRELATION_ID, WORDS),
        *(CREATED_AFTER, CREATED_BEFORE, LIMIT, LIST_CURSOR),
    ),
    answers=page(DeadLetterPage),
    errors=(AWAY,),
)
async def get_dead_letters(query: Query) -> func.HttpResponse:
    """List dead letters, the newest first."""
    dependency = query[DEPENDENCY]
    wanted = DeadLetterFilter(
        status=query[STATUS],
        reason=query[REASON],
        category=query[CATEGORY],
        dependency="" if dependency == WITHOUT_DEPENDENCY else dependency,
        group=query[GROUP],
        created_after=query[CREATED_AFTER],
        created_before=query[CREATED_BEFORE],
    )
    search = DeadLetterSearch(key=query[KEY], correlation_id=query[CORRELATION_ID], words=query[WORDS])
    found = await list_dead_letters(wanted, limit=query[LIMIT], cursor=query[LIST_CURSOR], search=search)
    return page_answer([document_of(record) for record in found.records], found.cursor)


@routes.get(
    "dead-letters/groups",
    parameters=(LIMIT, GROUP_CURSOR),
    answers=page(DeadLetterGroupPage),
    errors=(AWAY,),
)
async def get_dead_letter_groups(query: Query) -> func.HttpResponse:
    """List the root causes of open dead letters, the one with the most of them first.

    A cause whose count changes between two pages may be on both of them, or on none.
    """
    limit, after = query[LIMIT], query[GROUP_CURSOR]
    ordered = sorted(await read_groups(), key=_position)
    groups = [group for group in ordered if after is None or _position(group) > after]
    shown_groups = groups[:limit]
    following = _cursor_of(shown_groups[-1]) if len(groups) > limit else None
    return page_answer([shown_group(group) for group in shown_groups], following)


@routes.get(
    "dead-letters/summary", answers=(RouteAnswer(OK, "The numbers.", DeadLetterSummary),), errors=(AWAY,)
)
async def get_dead_letter_summary() -> func.HttpResponse:
    """Count open dead letters and give the age of the oldest."""
    document = await summary_document()
    return json_answer(document, headers={"ETag": etag_of(document, MOVING)})


async def summary_document() -> dict[str, Any]:
    """Return the numbers of open dead letters."""
    summary, now = await read_summary(), clock.now()
    by_dependency = {
        name or WITHOUT_DEPENDENCY: _shown_count(count, now) for name, count in summary.by_dependency.items()
    }
    by_reason = {name: _shown_count(count, now) for name, count in summary.by_reason.items()}
    total = _shown_count(summary.total, now)
    return {**total, "by_reason": by_reason, "by_dependency": by_dependency}


@routes.get("dead-letters/{dead_letter_id}", answers=shown(DeadLetterDocument), errors=(MISSING, AWAY))
async def get_dead_letter(dead_letter_id: str) -> func.HttpResponse:
    """Show a dead letter."""
    return _document(required(await find_dead_letter(dead_letter_id), _DEAD_LETTER))


_CHANGED: Final = (RouteAnswer(HTTPStatus.OK, "The dead letter after the change.", DeadLetterDocument),)


@routes.post(
    "dead-letters/{dead_letter_id}/archive",
    body=NoBody,
    body_required=False,
    answers=_CHANGED,
    errors=(MISSING, CONFLICT, AWAY),
)
async def archive_dead_letter(dead_letter_id: str, body: NoBody, who: Caller) -> func.HttpResponse:  # noqa: ARG001 - checked
    """Put a dead letter away.

    It is removed for good after the time that the settings give it.
    """
    now = clock.now()
    by = who.known_name
    return _document(await move_dead_letter(dead_letter_id, lambda record: archived(record, now, by)))


@routes.post(
    "dead-letters/{dead_letter_id}/restore",
    body=NoBody,
    body_required=False,
    answers=_CHANGED,
    errors=(MISSING, CONFLICT, AWAY),
)
async def restore_dead_letter(dead_letter_id: str, body: NoBody) -> func.HttpResponse:  # noqa: ARG001 - checked
    """Bring an archived dead letter back."""
    return _document(await move_dead_letter(dead_letter_id, restored))


@routes.post(
    "dead-letters/{dead_letter_id}/notes",
    body=NoteBody,
    answers=_CHANGED,
    errors=(MISSING, CONFLICT, AWAY),
)
async def note_dead_letter(dead_letter_id: str, body: NoteBody, who: Caller) -> func.HttpResponse:
    """Add a note to a dead letter."""
    text, now, by = body.words, clock.now(), who.known_name
    return _document(await change_dead_letter(dead_letter_id, lambda record: noted(record, text, now, by)))


def _document(record: DeadLetterRecord) -> func.HttpResponse:
    return json_answer(document_of(record))


def document_of(record: DeadLetterRecord) -> dict[str, Any]:
    """Return the document of a dead letter, masked by the rules of its dependency."""
    return record.shown(masking_of(record.dependency))


def _shown_count(count: OpenCount, now: datetime) -> dict[str, Any]:
    oldest_at = count.oldest_at
    age_seconds = None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())
    return {
        "open": count.count,
        "oldest_at": optional_to_rfc3339(oldest_at),
        "oldest_age_seconds": age_seconds,
    }


def shown_group(group: Group) -> dict[str, Any]:
    """Return the document of a group."""
    return {
        "group": group.group,
        "count": group.count,
        "first_seen_at": to_rfc3339(group.first_seen_at),
        "last_seen_at": to_rfc3339(group.last_seen_at),
        "sample": dict(group.sample),
    }


def _position(group: Group) -> tuple[int, str]:
    return -group.count, group.group


def _cursor_of(group: Group) -> str:
    return f"{group.count}|{group.group}"
