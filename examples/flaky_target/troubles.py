"""The kinds of trouble: each takes the request and answers it badly."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

type Trouble = Callable[[Request], Awaitable[Response]]

PIECES_OF_A_SLOW_ANSWER = 10
CHUNK_BYTES = 65_536


class BadInstructionError(ValueError):
    """The path or the query asks for something that the target cannot do."""


def number_in_query(request: Request, name: str, default: float) -> float:
    """Returns the query's number `name`, or the default.

    Raises:
        BadInstructionError: It is not a number, or it is negative.
    """
    text = request.query_params.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        raise BadInstructionError(f"{name} must be a number, got {text!r}") from None
    if value < 0:
        raise BadInstructionError(f"{name} must not be negative, got {text!r}")
    return value


def retry_after_headers(seconds: float, form: str) -> dict[str, str]:
    """Returns the headers that ask a client to wait.

    Args:
        seconds: How long to wait, at least 0.
        form: `seconds`, `date`, `ms` or `ratelimit`; see `app`.

    Raises:
        BadInstructionError: The form is none of these.
    """
    match form:
        case "seconds":
            return {"retry-after": f"{seconds:g}"}
        case "date":
            return {
                "retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
            }
        case "ms":
            return {"retry-after-ms": f"{seconds * 1000:g}"}
        case "ratelimit":
            return {"ratelimit": f'"default";r=0;t={seconds:g}', "ratelimit-policy": '"default";q=10;w=60'}
        case _:
            raise BadInstructionError(f"form must be seconds, date, ms or ratelimit, got {form!r}")


def refusal(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a problem document with this status."""
    if status in {204, 304}:  # These have no body by definition.
        return Response(status_code=status, headers=headers)
    body = {"title": "The flaky target was asked to answer so", "status": status}
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


async def answer_status(request: Request, status: int) -> Response:
    """Answers with a status and, if the query has `retry_after`, with the hint to wait."""
    await request.body()
    if "retry_after" not in request.query_params:
        return refusal(status)
    seconds = number_in_query(request, "retry_after", 1)
    return refusal(status, retry_after_headers(seconds, request.query_params.get("form", "seconds")))


async def fail(request: Request) -> Response:
    """Answers with the query's `status`, 503 by default."""
    return await answer_status(request, int(number_in_query(request, "status", 503)))


async def throttle(request: Request) -> Response:
    """Answers 429 with a Retry-After."""
    await request.body()
    seconds = number_in_query(request, "retry_after", 1)
    return refusal(429, retry_after_headers(seconds, request.query_params.get("form", "seconds")))


async def hang(request: Request) -> Response:
    """Answers with the echo after `seconds`, or never if the client leaves first."""
    response = await echo(request)
    gone = asyncio.create_task(_client_left(request))
    try:
        await asyncio.wait({gone}, timeout=number_in_query(request, "seconds", 30))
    finally:
        gone.cancel()
    return response


async def drop(request: Request) -> Response:
    """Resets the connection at the point that the query's `when` names."""
    match when := request.query_params.get("when", "after_body"):
        case "before_body":
            await cut(request)
        case "after_body":
            await request.body()
            await cut(request)
        case "mid_response":
            await request.body()
            return StreamingResponse(_half_an_answer(request), headers={"content-length": "1000"})
        case _:
            raise BadInstructionError(f"when must be before_body, after_body or mid_response, got {when!r}")
    return Response()  # Nobody is left to read it.


class CuttableProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which also gives each request its `request.state.transport`, for `cut`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base class
        """Remembers the transport for the requests of this connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


async def cut(request: Request) -> None:
    """Resets the client's connection and returns once the server has noticed."""
    transport: asyncio.Transport = request.state.transport
    transport.abort()
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def slow(request: Request) -> Response:
    """Answers with the echo in pieces, spread over `seconds`."""
    answer = bytes((await echo(request)).body)
    pause_seconds = number_in_query(request, "seconds", 5) / PIECES_OF_A_SLOW_ANSWER
    return StreamingResponse(_drip(answer, pause_seconds), media_type="application/json")


async def huge(request: Request) -> Response:
    """Answers with a JSON string of `bytes` bytes."""
    await request.body()
    size = int(number_in_query(request, "bytes", 10_000_000))
    return StreamingResponse(_long_string(size), media_type="application/json")


async def redirect(request: Request) -> Response:
    """Redirects to the query's `to`."""
    await request.body()
    status = int(number_in_query(request, "status", 307))
    return RedirectResponse(request.query_params.get("to", "/echo"), status_code=status)


async def garbled(request: Request) -> Response:
    """Answers 200 with a body that is not the JSON it claims to be."""
    await request.body()
    return Response(b'{"id": "ch_1', media_type="application/json")


async def echo(request: Request) -> JSONResponse:
    """Answers 200 with what was received: method, path, idempotency key, the try's number, the body."""
    body = await request.body()
    try:
        parsed = json.loads(body) if body else None
    except ValueError:
        parsed = body.decode("utf-8", "replace")
    return JSONResponse(
        {
            "ok": True,
            "method": request.method,
            "path": request.url.path,
            "key": request.headers.get("idempotency-key"),
            "try": request.state.arrived.number,
            "received": parsed,
        }
    )


async def token(_request: Request) -> JSONResponse:
    """Answers as the token endpoint of OAuth."""
    return JSONResponse({"access_token": secrets.token_hex(16), "token_type": "Bearer", "expires_in": 60})


TROUBLES: Mapping[str, Trouble] = {
    "fail": fail,
    "throttle": throttle,
    "hang": hang,
    "drop": drop,
    "slow": slow,
    "huge": huge,
    "redirect": redirect,
    "garbled": garbled,
}


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _half_an_answer(request: Request) -> AsyncIterator[bytes]:
    yield b'{"half": "'
    await cut(request)


async def _drip(answer: bytes, pause_seconds: float) -> AsyncIterator[bytes]:
    step = max(1, -(-len(answer) // PIECES_OF_A_SLOW_ANSWER))
    for start in range(0, len(answer), step):
        await asyncio.sleep(pause_seconds)
        yield answer[start : start + step]


async def _long_string(size: int) -> AsyncIterator[bytes]:
    yield b'"'
    for start in range(0, max(0, size - 2), CHUNK_BYTES):
        yield b"x" * min(CHUNK_BYTES, size - 2 - start)
    yield b'"'
