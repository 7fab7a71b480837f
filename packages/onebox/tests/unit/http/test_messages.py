from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.types import Message

from onebox import CannotStartError
from onebox.environment import AppSettings
from onebox.http.messages import (
    BodyTooLargeError,
    body_limit_bytes,
    bounded,
    declares_more,
    read_body,
    trace_of,
)
from onebox.worker.runner import Trace


def request_of(*pieces: bytes, **headers: str) -> Request:
    """A request whose body comes in pieces."""

    def messages() -> Iterator[Message]:
        for piece in pieces:
            yield {"type": "http.request", "body": piece, "more_body": True}
        yield {"type": "http.request", "body": b""}

    coming = messages()

    async def receive() -> Message:
        return next(coming)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": named}, receive)


def within(request: Request, limit_bytes: int) -> Request:
    return Request(request.scope, bounded(request.receive, limit_bytes))


async def test_a_body_is_put_together_from_its_pieces() -> None:
    assert await read_body(within(request_of(b"one", b"", b"two"), 6)) == b"onetwo"
    assert await read_body(request_of()) == b""


async def test_a_body_that_turns_out_too_large_is_read_no_further() -> None:
    request = request_of(b"one", b"two", b"never asked for")
    with pytest.raises(BodyTooLargeError):
        await read_body(within(request, 5))
    assert (await request.receive())["body"] == b"never asked for"


def test_a_body_that_is_declared_too_large_need_not_be_read() -> None:
    assert declares_more(request_of(content_length="6"), 5)
    assert not declares_more(request_of(content_length="5"), 5)
    assert not declares_more(request_of(), 5)


def test_the_largest_body_is_100_mib_unless_an_app_setting_says_otherwise() -> None:
    assert body_limit_bytes(AppSettings({})) == 100 * 1024 * 1024
    assert body_limit_bytes(AppSettings({"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "5"})) == 5


@pytest.mark.parametrize("text", ["0", "-1", "100 MB", "٣", "1_000"])
def test_a_limit_that_is_no_number_of_bytes_keeps_it_from_starting(text: str) -> None:
    with pytest.raises(CannotStartError, match="FUNCTIONS_REQUEST_BODY_SIZE_LIMIT must be a number of bytes"):
        body_limit_bytes(AppSettings({"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": text}))


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_callers_trace_is_passed_on() -> None:
    assert trace_of(request_of(traceparent=PARENT, tracestate="a=1")) == Trace(PARENT, "a=1")
    assert trace_of(request_of()) == Trace()


@pytest.mark.parametrize(
    "malformed",
    [
        PARENT.upper(),
        PARENT + "-x",
        "ff" + PARENT[2:],
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
    ],
)
def test_a_malformed_trace_is_none(malformed: str) -> None:
    assert trace_of(request_of(traceparent=malformed, tracestate="a=1")) == Trace()
