"""What callers send: bodies within their limit, headers, and the query, every mistake at once.

A query parameter is declared once, as a `Parameter`: it reads the value and describes itself in OpenAPI.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import azure.functions as func

from durable_retry.engine.base.json_forms import TRACEPARENT, TRACESTATE, TraceContext, from_rfc3339
from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_of, read_json
from durable_retry.engine.operations.idempotency import parse_key
from durable_retry.settings.app import app_settings
from durable_retry.triggers.http.answers import BodyTooLargeError

MAX_WAIT_SECONDS: Final = 30
MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50

_WAIT_PREFERENCE: Final = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*\"?(\d{1,6})\"?", re.IGNORECASE)

_OF_THE_HOST: Final = frozenset({"code", "clientId"})
"""Query parameters in which the Functions host takes its keys."""


def read_body(request: func.HttpRequest, *, limit_bytes: int | None = None) -> Any:
    """Return a JSON body.

    Args:
        request: The request.
        limit_bytes: The largest body; None means that of an operation.

    Raises:
        BodyTooLargeError: It is over the limit.
        InvalidInputError: It is not JSON.
    """
    limit = app_settings().max_body_bytes if limit_bytes is None else limit_bytes
    body = request.get_body()
    if len(body) > limit:
        raise BodyTooLargeError(limit)
    return read_json(body)


def preferred_wait_seconds(request: func.HttpRequest) -> float:
    """Return how long the caller would wait for the end (RFC 7240 `Prefer: wait=N`), at most 30 s."""
    found = _WAIT_PREFERENCE.search(header(request, "Prefer") or "")
    return 0.0 if found is None else float(min(int(found[1]), MAX_WAIT_SECONDS))


def key_of(request: func.HttpRequest) -> str | None:
    """Return the key of the header Idempotency-Key; None without one.

    Raises:
        InvalidInputError: The header cannot be read.
    """
    text = header(request, "Idempotency-Key")
    return None if text is None else parse_key(text)


def tenant_of(request: func.HttpRequest) -> str:
    """Return the caller's tenant from the header that the app settings name; "" when there is one tenant."""
    name = app_settings().tenant_header
    return "" if name is None else (header(request, name) or "")


def header(request: func.HttpRequest, name: str) -> str | None:
    """Return a header, or None."""
    get: Callable[[str], str | None] = request.headers.get
    return get(name)


def trace_of(request: func.HttpRequest) -> TraceContext | None:
    """Return the caller's trace context from its headers; None when the request is not traced."""
    traceparent = header(request, TRACEPARENT)
    return None if traceparent is None else TraceContext.read(traceparent, header(request, TRACESTATE))


def url_of(request: func.HttpRequest) -> str:
    """Return a request's own URL without query, and without a slash at the end."""
    parts = urlsplit(request.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter[T]:
    """A query parameter, or the description of a request header.

    Attributes:
        name: As it is sent.
        schema: JSON schema of its value.
        description: What it does, as a sentence.
        read: Turns the text into the value; raises ValueError where it cannot.
        default: The value of a parameter that is missing or empty.
        mistake: What is said of a value that `read` refuses.
        place: `query` or `header`.
    """

    name: str
    schema: Mapping[str, Any]
    description: str
    read: Callable[[str], T]
    default: T
    mistake: str = ""
    place: Literal["query", "header"] = "query"


class Query:
    """The values of a request's query parameters: `query[LIMIT]`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__[T](self, parameter: Parameter[T]) -> T:
        """Return the value of a parameter that the route declares, or its default."""
        return cast("T", self._values[parameter.name])


def read_query(parameters: Iterable[Parameter[Any]], sent: Mapping[str, str]) -> Query:
    """Read a query by the parameters that its route declares.

    Raises:
        InvalidInputError: With every mistake, unknown parameters included.
    """
    known = {parameter.name: parameter for parameter in parameters if parameter.place == "query"}
    unknown = sorted(sent.keys() - known.keys() - _OF_THE_HOST)
    problems = [Problem(pointer_of(name), "is not a known parameter") for name in unknown]
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        try:
            text = sent.get(name)
            values[name] = parameter.read(text) if text else parameter.default
        except ValueError:
            problems.append(Problem(pointer_of(name), parameter.mistake))
    if problems:
        raise InvalidInputError(problems)
    return Query(values)


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


def one_of[E: StrEnum](name: str, choices: type[E]) -> Parameter[E | None]:
    """Declare a parameter that takes one of a few words."""
    words = [choice.value for choice in choices]
    return Parameter(
        name=name,
        schema={"type": "string", "enum": words},
        description="Only these.",
        read=choices,
        default=None,
        mistake=f"must be one of {', '.join(sorted(words))}",
    )


def whole_number(name: str, least: int, most: int, default: int, description: str) -> Parameter[int]:
    """Declare a parameter that takes a whole number in a range."""

    def read(value: str) -> int:
        number = int(value)
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
        mistake="this cursor was not given out here",
    )


LIMIT: Final = whole_number("limit", 1, MAX_LIMIT, DEFAULT_LIMIT, "The most items of one page.")
CURSOR: Final = cursor(str)
CREATED_AFTER: Final = instant("created_after", "Created at this instant or later.")
CREATED_BEFORE: Final = instant("created_before", "Created before this instant.")


def _header(name: str, description: str) -> Parameter[str | None]:
    return Parameter(
        name=name,
        schema={"type": "string"},
        description=description,
        read=str,
        default=None,
        place="header",
    )


KEY: Final = _header(
    "Idempotency-Key",
    "An RFC 8941 string, or bare: 1 to 255 visible ASCII characters. The same key is the same work.",
)
PREFER: Final = _header("Prefer", "`wait=N`: answer with the end when it comes within N <= 30 s.")
