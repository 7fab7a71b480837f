"""Reading what HTTP callers send: bodies within their limit, keys, preferences, whose tenant."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import azure.functions as func

from engine.json_text import read_json
from engine.trace_context import TRACEPARENT, TRACESTATE, TraceContext
from stores.settings import app_settings
from triggers.problems import TOO_LARGE, problem

MAX_WAIT_SECONDS: Final = 30

_WAIT_PREFERENCE: Final = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*\"?(\d{1,6})\"?", re.IGNORECASE)


class BodyTooLargeError(Exception):
    """A body over the limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body is larger than {limit_bytes} bytes.")


def read_body(request: func.HttpRequest, *, limit_bytes: int | None = None) -> Any:
    """Return a JSON body.

    Args:
        request: The request.
        limit_bytes: The largest body; None means that of an operation.

    Raises:
        BodyTooLargeError: It is over the limit.
        engine.problem.InvalidInputError: It is not JSON.
    """
    limit = app_settings().max_body_bytes if limit_bytes is None else limit_bytes
    body = request.get_body()
    if len(body) > limit:
        raise BodyTooLargeError(limit)
    return read_json(body)


def too_large(error: BodyTooLargeError) -> func.HttpResponse:
    """Return 413."""
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), type_=TOO_LARGE)


def preferred_wait_seconds(request: func.HttpRequest) -> float:
    """Return how many seconds the caller would wait for the end (RFC 7240 `Prefer: wait=N`), at most 30."""
    found = _WAIT_PREFERENCE.search(header(request, "Prefer") or "")
    return 0.0 if found is None else float(min(int(found[1]), MAX_WAIT_SECONDS))


def tenant_of(request: func.HttpRequest) -> str:
    """Return the caller's tenant from the header that the app settings name; "" when there is one tenant."""
    name = app_settings().tenant_header
    return "" if name is None else (header(request, name) or "")


def header(request: func.HttpRequest, name: str) -> str | None:
    """Return a header, or None."""
    get: Callable[[str], str | None] = request.headers.get
    return get(name)


def trace_of(request: func.HttpRequest) -> TraceContext | None:
    """Return where in a trace the caller stands, from its headers; None when nobody traces it."""
    return TraceContext.read(header(request, TRACEPARENT), header(request, TRACESTATE))


def url_of(request: func.HttpRequest) -> str:
    """Return a request's own URL without query, and without a slash at the end."""
    parts = urlsplit(request.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
