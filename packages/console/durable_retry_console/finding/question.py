"""A question to the lists of operations, dead letters, events, workflows, bulk actions and activity.

Each list is of one type of things, the newest first.

A cursor is what a page of its answer gives the next one, as a text that callers do not read.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, cast

from pydantic import Field

from durable_retry.base.answers import UNREADABLE, Answer, Instant, Unreadable
from durable_retry.base.documents import read_json
from durable_retry.base.json_forms import JsonRow, from_rfc3339, is_none, optional_from_rfc3339
from durable_retry.base.names import TURN_NAMES, WAITING, OperationState, Priority, TurnNames
from durable_retry.base.text import mentions
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.index.store import NAMED, OperationEntry
from durable_retry_console.states import is_of, last_error

NAMES: Final = ("dependency", "handler", "source", "key", "correlation_id", *TURN_NAMES)
"""What operations and dead letters are asked by; each the whole of it."""


def names_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document has for each of `NAMES`; a priority that is left out is `normal`."""
    priority = Priority(shown.get("priority") or Priority.NORMAL)
    return {name: shown.get(name) for name in NAMES} | {"priority": priority}


class FoundType(StrEnum):
    """What a search finds."""

    OPERATION = "operation"
    DEAD_LETTER = "dead_letter"
    EVENT = "event"
    BATCH = "batch"
    SAGA = "saga"
    BULK_ACTION = "bulk_action"
    ACTIVITY = "activity"
    """Something that a person did, or that happened: its id is that of its target, its status the kind."""


class FoundItem(Answer):
    """Something that was found: what every type has, null where it has none."""

    type: FoundType
    id: str
    name: str | None = None
    status: str
    key: str | None = None
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None
    correlation_id: str | None = None
    order_key: str | None = None
    priority: Priority | None = None
    limit_key: str | None = None
    debounce_key: str | None = None
    operation_id: str | None = None
    error: str | None = None
    why: str | None = Field(
        default=None, description="Why an operation waits, with the error behind it; else null."
    )
    attempt_count: int | None = None
    next_attempt_at: Instant | None = None
    dead_letter_id: str | None = None
    created_at: Instant
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


def found_operation(document: Mapping[str, Any]) -> FoundItem:
    letter = document["dead_letter"]
    # Why it did not go through, in one line; None while nothing failed, or once it did.
    error = None if document["status"] == OperationState.SUCCEEDED else last_error(document) or None
    return FoundItem(
        type=FoundType.OPERATION,
        id=document["operation_id"],
        status=document["status"],
        **names_of(document),
        operation_id=document["operation_id"],
        error=error if letter is None else f"{letter.get('reason')}: {letter.get('detail')}",
        why=why_waiting(document),
        attempt_count=document["attempt_count"],
        next_attempt_at=optional_from_rfc3339(document["next_attempt_at"]),
        dead_letter_id=(letter or {}).get("id"),
        created_at=from_rfc3339(document["created_at"]),
        unreadable=document.get(UNREADABLE),
    )


def why_waiting(document: Mapping[str, Any]) -> str | None:
    """Return why an operation waits now, by its document as it is shown; None while it does not."""
    status = OperationState(document["status"])
    waits = document.get("waits") if status in {*WAITING, OperationState.PAUSED} else None
    return waits[-1]["delay_reasons"][0] if waits else None


_SEARCHED: Final = ("operation_id", "key", *NAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(TurnNames):
    """What is looked for; None means any."""

    words: str | None = None  # each must stand in a name, an id or the error of an item
    kind: FoundType | None = None
    status: str | None = None  # in the words of the item's kind
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None  # `http`, `queue`, ...
    key: str | None = None
    correlation_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def into[T](self, cls: type[T], **more: Any) -> T:
        """Return a filter, a dataclass: the conditions that it takes, too, and more."""
        names = [each.name for each in fields(cast("Any", cls)) if hasattr(self, each.name)]
        return cls(**{name: getattr(self, name) for name in names} | more)

    def is_in_time(self, created_at: datetime) -> bool:
        """Return whether what was created at an instant can match."""
        is_late = self.created_after is None or created_at >= self.created_after
        return is_late and (self.created_before is None or created_at < self.created_before)

    def has_words(self, *texts: object) -> bool:
        """Return whether the words stand in some texts; what is no text has none."""
        return self.words is None or mentions(self.words, *(text for text in texts if isinstance(text, str)))

    def matches(self, item: FoundItem) -> bool:
        """Return whether an item matches, its words aside."""
        is_of_status = self.status in (None, item.status)
        return is_of_status and self._has_names(dict(item)) and self.is_in_time(item.created_at)

    def matches_operation(self, document: Mapping[str, Any]) -> bool:
        """Return whether the operation of a status document matches, whenever it was created."""
        is_of_status = self.status in (None, document["status"])
        return is_of_status and self._fits_document(document, last_error(document))

    def may_match(self, entry: OperationEntry) -> bool:
        """Return whether an operation may match, as far as the index shows; its time is not looked at."""
        # The index always has these two; a cancelled operation may have ended otherwise before that arrived.
        is_other = self.status in {OperationState.DEAD_LETTERED, OperationState.CANCELLED}
        is_over = entry.status in {OperationState.SUCCEEDED, OperationState.DEAD_LETTERED}
        if self.status not in (None, entry.status) and (is_other or is_over):
            return False
        return self._fits_document(
            {name: getattr(entry, name) for name in (*NAMES, "operation_id")}, entry.error
        )

    def _fits_document(self, shown: Mapping[str, Any], error: str) -> bool:
        return self._has_names(names_of(shown)) and self.has_words(*map(shown.get, _SEARCHED), error)

    def _has_names(self, names: Mapping[str, Any]) -> bool:
        return is_of(self.dependency, names["dependency"]) and all(
            getattr(self, name) in (None, names[name]) for name in NAMES if name != "dependency"
        )


ROWS_READ: Final = 200
INSTANCES_READ: Final = 50
"""Rows, and instances, of one page of a list that has no index of names."""

type Items = tuple[list[FoundItem], str | None]
"""Items and the cursor of the next page."""

type ReadPage = Callable[[TaskHub, Question, int, str | None], Awaitable[Items]]
"""Takes a question, the most items and a cursor."""


@dataclass(frozen=True, slots=True)
class FoundList:
    """A list of things."""

    kind: FoundType
    states: type[StrEnum]
    names: tuple[str, ...]  # what of `NAMES` it can be asked by
    read: ReadPage

    def can_answer(self, question: Question) -> bool:
        """Whether a question may find something in it."""
        asked = {name for name in NAMES if getattr(question, name) is not None}
        has_state = question.status is None or question.status in set(self.states)
        return question.kind in (None, self.kind) and asked <= {*self.names} and has_state


_MICROSECOND: Final = timedelta(microseconds=1)


class BadCursorError(InvalidInputError):
    """A cursor that was not given out here."""

    def __init__(self, given_out: str = "of this list") -> None:
        super().__init__([Problem("/cursor", f"the cursor is not from an answer {given_out}")])


def cursor_text(content: Any) -> str:
    """Return a cursor: JSON in base64, which `cursor_content` reads."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def cursor_content(cursor: str) -> Any:
    """Return the content of a cursor; BadCursorError where it was not given out here."""
    try:
        return read_json(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except ValueError as error:  # of ASCII, base64 or JSON
        raise BadCursorError from error


@dataclass(frozen=True, slots=True)
class IndexCursor(JsonRow):
    """Where a search continues: with what was created before an instant."""

    before: datetime | None = None  # exclusive, but for ids that sort before `last_id`; None for the newest
    last_id: str = ""  # the last operation that was looked at; "" when all of the instant remain
    shown: tuple[str, ...] = ()  # ids that an earlier page showed out of turn

    def text(self) -> str:
        return cursor_text(["index", self.to_json()])

    def is_before(self, created_at: datetime, operation_id: str) -> bool:
        """Return whether an operation has not been looked at yet."""
        return self.before is None or (created_at, operation_id) < (self.before, self.last_id)

    @property
    def first(self) -> datetime | None:
        """The newest instant of which something may be left; None for the newest of all."""
        return self.before if self.before is None or self.last_id else self.before - _MICROSECOND


def read_place(cursor: str) -> IndexCursor | str:
    """Return where a list of operations continues, in the index or, a text, among those that share a name.

    Raises:
        BadCursorError: The cursor was not given out here.
    """
    match cursor_content(cursor):
        case ["name", str(place)]:
            return place
        case ["index", row]:
            with suppress(ValueError):
                return IndexCursor.from_json(row)
    raise BadCursorError
