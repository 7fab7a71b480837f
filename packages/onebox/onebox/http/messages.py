"""HTTP requests and responses in the form that a worker receives and returns."""

import io
import re
from collections.abc import Iterable, Mapping
from http.cookies import SimpleCookie
from typing import Any, Final

from azure_functions_runtime.bindings.datumdef import Datum
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

from onebox import CannotStartError
from onebox.environment import BODY_LIMIT, AppSettings
from onebox.numbers import plain_number
from onebox.worker.runner import Result, Trace, text_datum

_BODILESS = {204, 304}
_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# The server frames the message itself; a function's framing headers could only contradict it.
_FRAMING = {"content-length", "transfer-encoding", "connection"}
_CONTENT_TYPES = {
    "string": "text/plain; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "bytes": "application/octet-stream",
}
# No cache keeps what the host itself refuses, and no browser takes it for another type than it says.
_PROTECTION: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class BodyTooLargeError(Exception):
    """The request's body goes over the limit."""


def body_limit_bytes(settings: AppSettings) -> int:
    """Return the largest body of a request that is taken.

    Raises:
        CannotStartError: The app setting is not a positive whole number.
    """
    text = settings.get(BODY_LIMIT.name) or BODY_LIMIT.default
    if not (limit_bytes := plain_number(text)):
        raise CannotStartError(f"app setting {BODY_LIMIT.name} must be a number of bytes, not {text!r}")
    return limit_bytes


def raw_path(request: Request) -> str:
    """Return the path as it came, still percent-encoded: an encoded slash is no separator."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1")


def url_of(request: Request) -> str:
    """Return the URL as it came, on the origin that the caller used."""
    query = request.scope["query_string"].decode("latin-1")
    origin = f"{request.scope['scheme']}://{request.headers.get('host') or request.url.netloc}"
    return f"{origin}{raw_path(request)}{'?' + query if query else ''}"


def declares_more(request: Request, limit_bytes: int) -> bool:
    """Return whether the declared Content-Length is over the limit."""
    return (plain_number(request.headers.get("content-length", "")) or 0) > limit_bytes


def bounded(receive: Receive, limit_bytes: int) -> Receive:
    """Return what receives a request's body up to the limit; `BodyTooLargeError` says that it has more."""
    room_bytes = limit_bytes

    async def receive_within() -> Message:
        nonlocal room_bytes
        message = await receive()
        room_bytes -= len(message.get("body", b""))
        if room_bytes < 0:
            raise BodyTooLargeError
        return message

    return receive_within


async def read_body(request: Request) -> bytes:
    """Read the whole body.

    Raises:
        BodyTooLargeError: It goes over the limit.
        ClientDisconnect: The client is gone.
    """
    body, more = io.BytesIO(), True  # getvalue() makes no further copy
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body.write(message.get("body", b""))
        more = message.get("more_body", False)
    return body.getvalue()


def request_datum(request: Request, body: bytes, route_parameters: Mapping[str, str]) -> Any:
    """Return the trigger's data for one request."""
    return Datum(
        {
            "method": text_datum(request.method),
            "url": text_datum(url_of(request)),
            "headers": _texts(_joined(request.headers.items())),
            "body": Datum(body, "bytes"),
            "params": _texts(route_parameters),
            "query": _texts(_joined(request.query_params.multi_items())),
        },
        "http",
    )


def trace_of(request: Request) -> Trace:
    """Return the caller's trace context; none when its header is malformed (W3C Trace Context, 3.2)."""
    parent = request.headers.get("traceparent", "").strip()
    if not _TRACE_PARENT.fullmatch(parent):
        return Trace()
    return Trace(parent, ",".join(request.headers.getlist("tracestate")))


def _texts(values: Mapping[str, str]) -> dict[str, Any]:
    return {name: text_datum(value) for name, value in values.items()}


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join repeated names with a comma, as the host does."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def refusal(
    status: int, document: Mapping[str, Any] | None = None, media_type: str | None = None
) -> Response:
    """Return the host's own answer to a request that it does not carry out.

    Args:
        status: 400 or above.
        document: Why, as JSON; None for an empty body.
        media_type: The document's; None means application/json.
    """
    if document is None:
        return Response(status_code=status, headers=_PROTECTION)
    return JSONResponse(document, status, _PROTECTION, media_type)


def response_of(result: Result, output_name: str | None, extra_headers: Mapping[str, str]) -> Response:
    """Turn what a function returned into a response; nothing at all is 204.

    Args:
        result: The function's.
        output_name: The http output binding; "$return", a parameter's name, or None when there is none.
        extra_headers: host.json's customHeaders.
    """
    datum = result.returned if output_name == "$return" else result.outputs.get(output_name or "")
    response = _response(datum)
    for name, value in extra_headers.items():
        response.headers.setdefault(name, value)
    return response


def _response(datum: Any) -> Response:
    if datum is None or datum.value is None:
        return Response(status_code=204)
    if datum.type == "http":
        return _full_response(datum.value)
    return Response(_content(datum), media_type=_CONTENT_TYPES.get(datum.type, "text/plain; charset=utf-8"))


def _full_response(value: Mapping[str, Any]) -> Response:
    status = int(value["status_code"].value)
    headers = {name: text.value for name, text in value["headers"].items() if name.lower() not in _FRAMING}
    content = b"" if status in _BODILESS else _content(value["body"])
    response = Response(content, status_code=status, headers=headers)
    for cookie in _cookie_lines(value.get("cookies") or ()):
        response.raw_headers.append((b"set-cookie", cookie.encode("latin-1")))
    return response


def _cookie_lines(cookies: Iterable[SimpleCookie]) -> Iterable[str]:
    return (morsel.OutputString() for cookie in cookies for morsel in cookie.values())


def _content(datum: Any) -> bytes:
    value = datum.value
    return value if isinstance(value, bytes) else str(value).encode()
