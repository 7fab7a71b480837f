import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import override

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from onebox.http.connections import ConnectionLimits, JoinedWrites, Protocol
from onebox.http.server import WebServer, bind


class Sent(asyncio.Transport):
    """A connection that keeps what it was given, a piece per write."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        pieces = list(list_of_data)
        assert all(pieces), "asyncio tries to send an empty piece for ever"
        self.write(b"".join(pieces))

    @override
    def close(self) -> None:
        self.pieces.append(b"closed")


async def test_the_head_of_an_answer_is_sent_with_its_body() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    for _ in range(2):
        joined.write(b"head ")
        joined.write(b"body")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head body"] * 2


async def test_an_empty_body_adds_nothing() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    joined.write(b"head")
    joined.write(b"")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head"]


async def test_the_head_does_not_wait_for_a_body_that_comes_later() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    joined.write(b"head")
    await asyncio.sleep(0)
    joined.write(b"body")
    joined.close()
    await asyncio.sleep(0)
    assert sent.pieces == [b"head", b"body", b"closed"]


SERVED = PlainTextResponse("served")


@asynccontextmanager
async def served(limits: ConnectionLimits, application: ASGIApp = SERVED) -> AsyncIterator[int]:
    """A server that answers "served" to everything; yields its port."""
    with bind("127.0.0.1", 0) as listener:
        server = WebServer(application, listener, 1, limits)
        listener.listen()  # connections wait until it serves
        serving = asyncio.create_task(server.serve())
        yield listener.getsockname()[1]
        server.stop()
        await serving


async def answer_to(port: int, *pieces: bytes) -> bytes:
    """What a client hears until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:  # it was closed while we still sent
        return b""
    finally:
        writer.close()


PLENTY = ConnectionLimits(100, head_seconds=600, idle_seconds=600)
LINE = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
LAST = LINE + b"Connection: close\r\n"


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body, once it is there."""
    try:
        answer = PlainTextResponse(f"{len(await Request(scope, receive).body())} bytes")
    except ClientDisconnect:
        return
    await answer(scope, receive, send)


UPLOAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"


@pytest.mark.parametrize("head", [b"GET /" + b"a" * 40_960, LINE + b"X-Long: " + b"a" * 40_960])
async def test_a_head_that_does_not_end_is_431(head: bytes) -> None:
    async with served(PLENTY) as port:
        assert (await answer_to(port, head)).startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def head_of(length: int) -> bytes:
    """A whole head of a length, which fits one read."""
    empty = LAST + b"X-Long: \r\n\r\n"
    return LAST + b"X-Long: " + b"a" * (length - len(empty)) + b"\r\n\r\n"


@pytest.mark.parametrize(("length", "status"), [(40_960, b"200"), (40_961, b"431"), (60_000, b"431")])
async def test_a_head_that_comes_whole_is_held_to_the_limit_too(length: int, status: bytes) -> None:
    async with served(PLENTY) as port:
        assert (await answer_to(port, head_of(length))).startswith(b"HTTP/1.1 " + status)


async def test_a_head_behind_a_body_in_one_read_is_held_to_the_limit_too() -> None:
    async with served(PLENTY, reading) as port:
        upload = UPLOAD.replace(b"Connection: close\r\n", b"")
        heard = await answer_to(port, upload + b"abc" + head_of(90_000))
        assert heard.count(b"HTTP/1.1 200") <= 1
        assert not heard.endswith(b"0 bytes")


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX-Trailer: " + b"a" * 60_000, b"0\r\n" + b"X-Trailer: a\r\n" * 5_000, b"1;" + b"a" * 60_000],
)
@pytest.mark.parametrize("application", [reading, SERVED])
async def test_trailers_and_the_rest_around_a_body_are_bounded(endless: bytes, application: ASGIApp) -> None:
    async with served(PLENTY, application) as port:
        heard = await answer_to(port, CHUNKED, endless)
        assert b" 431 " in heard or heard.endswith(b"served")


async def test_a_body_in_small_chunks_is_no_frame_without_end() -> None:
    async with served(PLENTY, reading) as port:
        heard = await answer_to(port, CHUNKED, b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n")
        assert heard.endswith(b"20000 bytes")


async def headers_read(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a header."""
    request = Request(scope, receive)
    await request.body()
    await PlainTextResponse(request.headers.get("x-functions-key", "none"))(scope, receive, send)


async def test_a_trailer_is_no_header() -> None:
    async with served(PLENTY, headers_read) as port:
        heard = await answer_to(port, CHUNKED + b"1\r\na\r\n0\r\nx-functions-key: k\r\n\r\n")
        assert heard.endswith(b"none")


async def test_a_head_within_the_limit_is_served_also_in_pieces_and_after_a_body() -> None:
    async with served(PLENTY) as port:
        long = b"X-Long: " + b"a" * 30_000 + b"\r\n"
        body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n"
        heard = await answer_to(port, body, b"b" * 50_000, LAST, long, b"\r\n")
        assert heard.count(b"HTTP/1.1 200 OK") == 2
        heard = await answer_to(port, LINE, long, b"\r\n" + LAST, b"\r\n")
        assert heard.count(b"HTTP/1.1 200 OK") == 2


async def test_a_head_that_comes_too_slowly_is_408() -> None:
    async with served(ConnectionLimits(100, head_seconds=0.01, idle_seconds=600)) as port:
        assert (await answer_to(port, LINE)).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_a_body_that_comes_too_slowly_is_408() -> None:
    limits = ConnectionLimits(100, body_bytes_per_second=1e6, body_grace_seconds=0.01)
    async with served(limits, reading) as port:
        assert (await answer_to(port, UPLOAD)).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert (await answer_to(port, UPLOAD, b"a")).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_a_body_that_comes_quickly_enough_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: asyncio.Queue[None] = asyncio.Queue()
    look = Protocol._look_at_body

    def counted(protocol: Protocol) -> None:
        look(protocol)
        looks.put_nowait(None)

    monkeypatch.setattr(Protocol, "_look_at_body", counted)
    limits = ConnectionLimits(100, body_bytes_per_second=0.1, body_grace_seconds=0.01)
    async with served(limits, reading) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(UPLOAD + b"a")
        async with asyncio.timeout(30):
            for _ in range(2):
                await looks.get()
        writer.write(b"aa")
        assert (await reader.read()).endswith(b"3 bytes")
        writer.close()


async def test_a_slow_body_whose_answer_is_sent_closes_the_connection_without_another() -> None:
    limits = ConnectionLimits(100, body_bytes_per_second=1e6, body_grace_seconds=0.01)
    async with served(limits) as port:
        lasting = UPLOAD.replace(b"Connection: close\r\n", b"")
        assert (await answer_to(port, lasting)).count(b"HTTP/1.1") == 1


async def test_a_client_that_says_nothing_is_closed() -> None:
    async with served(ConnectionLimits(100, idle_seconds=0.01)) as port:
        assert await answer_to(port) == b""


async def test_a_client_too_many_is_503_and_those_before_are_served() -> None:
    async with served(ConnectionLimits(2, head_seconds=600, idle_seconds=600)) as port:
        first = await asyncio.open_connection("127.0.0.1", port)
        second = await asyncio.open_connection("127.0.0.1", port)
        second[1].write(LINE + b"\r\n")
        assert await second[0].readuntil(b"served"), "both are there"
        assert (await answer_to(port)).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        first[1].write(LAST + b"\r\n")
        assert (await first[0].read()).endswith(b"served")
        assert (await answer_to(port, LAST + b"\r\n")).endswith(b"served"), "there is room again"
        first[1].close()
        second[1].close()


def test_the_limit_leaves_room_for_other_files() -> None:
    assert ConnectionLimits.of_this_process().connections >= 64
