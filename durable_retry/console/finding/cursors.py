"""Cursors of searches: what a page gives the next one, as a text that callers do not read."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from durable_retry.engine.base.instants import optional_from_rfc3339, optional_to_rfc3339
from durable_retry.engine.base.json_input import read_json

NOT_OURS: Final = "this cursor was not given out here"
INDEX_CURSOR: Final = "index"
MICROSECOND: Final = timedelta(microseconds=1)


class BadCursorError(ValueError):
    """An invalid cursor."""


def cursor_text(content: Any) -> str:
    """Return a cursor: JSON in base64, which `cursor_content` reads."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def cursor_content(cursor: str) -> Any:
    """Return the content of a cursor.

    Raises:
        BadCursorError: It was not given out here.
    """
    try:
        return read_json(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except ValueError as error:  # of ASCII, base64 or JSON
        raise BadCursorError(NOT_OURS) from error


def read_cursor(cursor: str, kind: str) -> Any:
    """Return the place in a cursor of one kind.

    Raises:
        BadCursorError: It is of another kind, or was not given out here.
    """
    match cursor_content(cursor):
        case [found, place] if found == kind:
            return place
    raise BadCursorError(NOT_OURS)


@dataclass(frozen=True, slots=True)
class IndexCursor:
    """Where a search continues: with what was created before an instant.

    Attributes:
        before: Exclusive, but for ids that sort before `last_id`; None for the newest.
        last_id: The last operation that was looked at; "" when all of the instant remain.
        shown: Ids that an earlier page showed out of turn.
    """

    before: datetime | None = None
    last_id: str = ""
    shown: tuple[str, ...] = ()

    @classmethod
    def read(cls, cursor: str) -> Self:
        """Return the place of a cursor.

        Raises:
            BadCursorError: It was not given out here.
        """
        parts = read_cursor(cursor, INDEX_CURSOR)
        try:
            before, last_id, shown = parts
            return cls(
                before=optional_from_rfc3339(before),
                last_id="" + last_id,
                shown=tuple("" + one for one in shown),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise BadCursorError(NOT_OURS) from error

    def text(self) -> str:
        """Return the cursor."""
        before = optional_to_rfc3339(self.before)
        return cursor_text([INDEX_CURSOR, [before, self.last_id, self.shown]])

    def is_before(self, created_at: datetime, operation_id: str) -> bool:
        """Return whether an operation has not been looked at yet."""
        return self.before is None or (created_at, operation_id) < (self.before, self.last_id)

    @property
    def first(self) -> datetime | None:
        """The newest instant of which something may be left; None for the newest of all."""
        return self.before if self.before is None or self.last_id else self.before - MICROSECOND
