"""Query parameters: each is declared once, reads its value, and describes itself in OpenAPI."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.text import plain_number

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter[T]:
    """A query parameter, or the description of a request header.

    Attributes:
        read: Turns the text into the value; raises ValueError where it cannot.
        mistake: What is said of a value that `read` refuses.
    """

    name: str
    schema: Mapping[str, Any]
    description: str
    read: Callable[[str], T]
    default: T
    mistake: str = ""
    place: Literal["query", "header"] = "query"


def text(name: str, description: str) -> Parameter[str | None]:
    """Declare a parameter that takes any text."""
    return Parameter(name=name, schema={"type": "string"}, description=description, read=str, default=None)


def instant(name: str, description: str) -> Parameter[datetime | None]:
    """Declare a parameter that takes an RFC 3339 instant."""
    return Parameter(
        name=name,
        schema={"type": "string", "format": "date-time"},
        description=description,
        read=from_rfc3339,
        default=None,
        mistake="must be an RFC 3339 instant such as 2026-11-21T09:30:00Z",
    )


def one_of[E: StrEnum](name: str, choices: type[E], description: str) -> Parameter[E | None]:
    """Declare a parameter that takes one of a few words."""
    return _words(name, [choice.value for choice in choices], description, choices)


def flag(name: str, description: str) -> Parameter[bool | None]:
    """Declare a parameter that takes `true` or `false`."""
    values = {"true": True, "false": False}

    def read(word: str) -> bool:
        if word not in values:
            raise ValueError(word)
        return values[word]

    return _words(name, [*values], description, read)


def _words[T](name: str, words: list[str], description: str, read: Callable[[str], T]) -> Parameter[T | None]:
    return Parameter(
        name=name,
        schema={"type": "string", "enum": words},
        description=description,
        read=read,
        default=None,
        mistake=f"must be one of {', '.join(sorted(words))}",
    )


def whole_number(name: str, least: int, most: int, default: int, description: str) -> Parameter[int]:
    """Declare a parameter that takes a whole number in a range."""

    def read(value: str) -> int:
        number = plain_number(value)
        if not least <= number <= most:
            raise ValueError(value)
        return number

    return Parameter(
        name=name,
        schema={"type": "integer", "minimum": least, "maximum": most, "default": default},
        description=description,
        read=read,
        default=default,
        mistake=f"must be a number from {least} to {most}",
    )


def cursor[T](read: Callable[[str], T]) -> Parameter[T | None]:
    """Declare the cursor of a list.

    Args:
        read: Raises ValueError for a cursor that this list did not give out.
    """
    return Parameter(
        name="cursor",
        schema={"type": "string"},
        description="`next_cursor` of the page before.",
        read=read,
        default=None,
        mistake="the cursor is not from an answer of this list",
    )


def row_cursor(form: str) -> Parameter[str | None]:
    """Declare the cursor of a list in the order of its row keys; `form` is a pattern of a whole key.

    Storage goes on behind any text: a cursor of another list would leave items out, or repeat them.
    """
    pattern = re.compile(form)

    def read(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return cursor(read)


LIMIT: Final = whole_number("limit", 1, MAX_LIMIT, DEFAULT_LIMIT, "The most items of one page.")
CURSOR: Final = cursor(str)
CORRELATION_ID: Final = text("correlation_id", "Only of this correlation id, the whole of it.")
ORDER_KEY: Final = text("order_key", "Only of this order key, the whole of it.")
LIMIT_KEY: Final = text("limit_key", "Only of this limit key, the whole of it.")
DEBOUNCE_KEY: Final = text("debounce_key", "Only of this debounce key, the whole of it.")
CREATED_AFTER: Final = instant("created_after", "Created at this instant or later.")
CREATED_BEFORE: Final = instant("created_before", "Created before this instant.")


def _header_parameter(name: str, description: str) -> Parameter[str | None]:
    return replace(text(name, description), place="header")


KEY: Final = _header_parameter(
    "Idempotency-Key",
    "An RFC 8941 string, or bare: 1 to 255 visible ASCII characters. The same key is the same work. "
    "Put `a,a` in quotes: hosts make that of `a` sent twice, which is refused.",
)
LIMIT_KEY_HEADER: Final = _header_parameter(
    "Limit-Key",
    "Whose share of the dependency's limits it uses: 1 to 255 characters, as `limit_key` in the body.",
)
IF_NONE_MATCH: Final = _header_parameter(
    "If-None-Match", "`ETag` of an earlier answer: 304 without a body while the document says the same."
)
PREFER: Final = _header_parameter(
    "Prefer",
    "`wait=N`: answer with the end when it comes within N seconds, at most 30. `Preference-Applied` says the "
    "wait that was granted; it is missing when the end did not come in time. A wait that cannot be read "
    "(`wait=abc`) is ignored, and the answer has a `Warning`.",
)
