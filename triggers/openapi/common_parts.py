"""Statuses, parameters and answers that many routes share."""

from collections.abc import Iterable
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel

from triggers.openapi.parts import Answer, Parameter
from triggers.queries import DEFAULT_LIMIT, MAX_LIMIT

OK: Final = HTTPStatus.OK
ACCEPTED: Final = HTTPStatus.ACCEPTED
INVALID: Final = HTTPStatus.BAD_REQUEST
MISSING: Final = HTTPStatus.NOT_FOUND
CONFLICT: Final = HTTPStatus.CONFLICT
TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
KEY_REUSED: Final = HTTPStatus.UNPROCESSABLE_ENTITY
AWAY: Final = HTTPStatus.SERVICE_UNAVAILABLE

_INSTANT: Final = {"type": "string", "format": "date-time"}


def text(name: str, description: str) -> Parameter:
    """Take any text."""
    return Parameter(name, {"type": "string"}, description)


def instant(name: str, description: str) -> Parameter:
    """Take an RFC 3339 instant."""
    return Parameter(name, _INSTANT, description)


def one_of(name: str, choices: Iterable[StrEnum]) -> Parameter:
    """Take one of a few words."""
    return Parameter(name, {"type": "string", "enum": [choice.value for choice in choices]}, "Only these.")


def whole(name: str, least: int, most: int, usual: int, description: str) -> Parameter:
    """Take a whole number in a range."""
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": usual}
    return Parameter(name, schema, description)


KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string"},
    "An RFC 8941 string, or bare: 1 to 255 visible ASCII characters. The same key is the same work.",
    place="header",
)
PREFER: Final = Parameter(
    "Prefer", {"type": "string"}, "`wait=N`: answer with the end when it comes within N <= 30 s.", "header"
)
PAGING: Final = (
    whole("limit", 1, MAX_LIMIT, DEFAULT_LIMIT, "The most items of one page."),
    text("cursor", "`next_cursor` of the page before."),
)
CREATED_AFTER: Final = instant("created_after", "Created at this instant or later.")


def page(model: type[BaseModel]) -> tuple[Answer, ...]:
    """Answer a page of a list."""
    return (Answer(OK, "A page; `next_cursor` is null at the end.", model),)


def shown(model: type[BaseModel]) -> tuple[Answer, ...]:
    """Answer one thing."""
    return (Answer(OK, "It, as it stands.", model),)


def taken_over(model: type[BaseModel]) -> Answer:
    """Answer where what was taken over can be seen."""
    headers = ("Location", "Idempotent-Replayed")
    return Answer(ACCEPTED, "Taken over, now or, with the same key, before.", model, headers)
