"""The transport of attempts against servers that behave as written here, byte by byte."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from durable_retry.attempt.http_client import Request, close_clients, send
from durable_retry.attempt.http_pool import PROGRESS, PooledTransport, SendProgress
from durable_retry.rules.config.dependency import Dependency
from tests.support.certificates import make_self_signed
from tests.support.polling import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

type Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server on loopback, and what reached it.

    Attributes:
        port: Where it listens.
        connections: How many were made.
        requests: Heads and bodies, in their order.
        closed: How many connections the client has closed.
    """

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    closed: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@asynccontextmanager
async def serving(answer: bytes | Answering, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve; the answer's bytes are sent for each request, b"" closes instead."""
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [
                    line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length" in line
                ]
                body = await reader.readexactly(int(length[0])) if length else b""
                server.requests.append(head + body)
                if callable(answer):
                    await answer(reader, writer)
                elif answer == b"":
                    break
                else:
                    writer.write(answer)
                    await writer.drain()
        server.closed += 1
        writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for writer in server.writers:
            writer.transport.abort()


@asynccontextmanager
async def using(transport: PooledTransport | None = None) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=transport or PooledTransport(), timeout=5, trust_env=False
    ) as client:
        yield client


async def failing(answer: bytes, **request: object) -> tuple[type[BaseException], SendProgress, Server]:
    """Send one request that fails, and return with what."""
    sending = SendProgress()
    async with serving(answer) as server, using() as client:
        with pytest.raises(httpx.TransportError) as failure:
            await client.request("POST", server.url, extensions={PROGRESS: sending}, **request)  # type: ignore[arg-type]
        return type(failure.value), sending, server


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            201,
            b"abcde",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, 200, b"ok"),
    ],
)
async def test_a_response_is_read_and_its_connection_used_again(
    answer: bytes, status: int, body: bytes
) -> None:
    async with serving(answer) as server, using() as client:
        for _ in range(3):
            response = await client.post(server.url, content=b"question")
            assert (response.status_code, response.content) == (status, body)
            assert "link" not in response.headers
    assert server.connections == 1
    assert all(request.endswith(b"\r\n\r\nquestion") for request in server.requests)


async def test_each_address_of_a_host_is_tried() -> None:
    # localhost is ::1 as well on most machines, and the server listens on one of them.
    async with serving(OK) as server, using() as client:
        response = await client.get(f"http://localhost:{server.port}/")
        assert response.status_code == 200


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def say_and_close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        writer.close()

    async with serving(say_and_close) as server, using() as client:
        assert [(await client.get(server.url)).content for _ in range(2)] == [b"all of it"] * 2
    assert server.connections == 2


async def test_the_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n") as server, using() as client:
        for _ in range(2):
            response = await client.head(server.url)
            assert (response.headers["content-length"], response.content) == ("500", b"")


async def test_connection_close_is_honoured() -> None:
    async with (
        serving(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as server,
        using() as client,
    ):
        for _ in range(2):
            await client.get(server.url)
        assert server.connections == 2


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    async with serving(OK) as server, using() as client:
        await client.get(server.url)
        server.writers[0].close()
        await until(lambda: server.closed == 1)
        assert (await client.get(server.url)).status_code == 200
        assert server.connections == 2


async def test_a_connection_on_which_something_came_unasked_is_not_used() -> None:
    async with serving(OK) as server, using() as client:
        await client.get(server.url)
        server.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        await until(lambda: server.closed == 1)
        assert (await client.get(server.url)).content == b"ok"


async def test_two_answers_to_one_request_are_not_taken_for_that_of_the_next() -> None:
    async with serving(OK + OK.replace(b"ok", b"no")) as server, using() as client:
        assert [(await client.get(server.url)).content for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 3


async def test_idle_connections_are_closed_after_their_time() -> None:
    async with serving(OK) as server, using(PooledTransport(idle_seconds=0.05)) as client:
        await asyncio.gather(*(client.get(server.url) for _ in range(4)))
        await until(lambda: server.closed == server.connections)


async def test_only_so_many_idle_connections_are_kept() -> None:
    async with serving(OK) as server, using(PooledTransport(max_idle=2)) as client:
        await asyncio.gather(*(client.get(server.url) for _ in range(5)))
        await until(lambda: server.closed == server.connections - 2)


async def test_requests_beyond_the_limit_wait_for_a_connection() -> None:
    sending = SendProgress()
    async with serving(OK) as server, using(PooledTransport(max_connections=1)) as client:
        async with client.stream("GET", server.url):
            with pytest.raises(httpx.PoolTimeout):
                await client.get(
                    server.url, timeout=httpx.Timeout(5, pool=0.05), extensions={PROGRESS: sending}
                )
            waiting = asyncio.create_task(client.get(server.url))
            await asyncio.sleep(0)
            assert not waiting.done()
        assert (await waiting).content == b"ok"
    assert sending.precise_names(TimeoutError()) == ["PoolTimeout"]


async def test_a_cancelled_request_gives_its_connection_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as server, using(PooledTransport(max_connections=1)) as client:
        for count in (1, 2):
            task = asyncio.create_task(client.get(server.url))
            await until(lambda count=count: len(server.requests) == count)  # type: ignore[misc]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: server.closed == 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\nbytes",
    ],
)
async def test_what_is_no_response_fails_as_sent(answer: bytes) -> None:
    error, sending, server = await failing(answer)
    assert error is httpx.RemoteProtocolError
    assert sending.precise_names(error("")) == []
    assert len(server.requests) == 1


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("beginning", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 1_000),
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X-Trailer: 1\r\n"),
        (CHUNKED + b"2\r\nok\r\n0\r\nX-Trailer: ", b"x" * 1_000),
        (CHUNKED + b"2\r\nok\r\n2;extension=", b"x" * 1_000),
    ],
    ids=["interim answers", "headers", "a header", "trailers", "a trailer", "an extension"],
)
async def test_what_comes_without_end_beside_a_body_has_one(beginning: bytes, again: bytes) -> None:
    sent_bytes = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        writer.write(beginning)
        while not writer.is_closing():
            writer.write(again * (10_000 // len(again)))
            sent_bytes += 10_000
            await writer.drain()

    async with serving(answer) as server, using() as client:
        with pytest.raises(httpx.RemoteProtocolError, match="more than 102400 bytes came"):
            await client.get(server.url)
        await until(lambda: server.closed == 1)
    assert sent_bytes < 20_000_000  # what the buffers of two sockets take is lost


async def test_trailers_are_no_headers() -> None:
    answer = CHUNKED + b"2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n"
    async with serving(answer) as server, using() as client:
        for _ in range(2):
            response = await client.get(server.url)
            assert (response.text, "x-trailer" in response.headers) == ("ok", False)
    assert server.connections == 1


async def test_a_response_that_breaks_off_fails_while_it_is_read() -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        writer.close()

    async with serving(half) as server, using() as client, client.stream("GET", server.url) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            await response.aread()


@pytest.mark.parametrize(
    "headers",
    [
        *({"X-A": "1\r\nX-B: 2"}, {"X-A": "1\x00"}, {"X A": "1"}, {"": "1"}),
        *({"X-A: 1": "2"}, {"X-A\x00B": "1"}),  # they would be `X-A`
    ],
)
async def test_no_header_becomes_another(headers: dict[str, str]) -> None:
    error, sending, server = await failing(OK, headers=headers)
    assert error is httpx.LocalProtocolError
    assert not sending.sent
    assert server.requests == []


async def test_nobody_listening_is_a_failed_connect() -> None:
    async with serving(OK) as server:
        pass
    sending = SendProgress()
    async with using() as client:
        with pytest.raises(httpx.ConnectError, match=f"^{httpx.URL(server.url).netloc.decode()}: "):
            await client.get(server.url, extensions={PROGRESS: sending})
    assert (sending.connecting, sending.sent) == (True, False)


async def test_a_connect_that_takes_too_long_is_a_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("durable_retry.attempt.http_pool.start_connection", never)
    sending = SendProgress()
    async with using() as client:
        with pytest.raises(httpx.ConnectTimeout):
            await client.get(
                "http://127.0.0.1:9/",
                timeout=httpx.Timeout(None, connect=0.01),
                extensions={PROGRESS: sending},
            )
    assert (sending.connecting, sending.sent) == (True, False)


async def test_an_answer_that_does_not_come_is_a_read_timeout() -> None:
    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as server, using() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(server.url, timeout=httpx.Timeout(None, read=0.02))


async def test_a_body_of_unknown_length_goes_in_chunks() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one", b"", b"two"):
            yield part

    async def read_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(read_chunks) as server, using() as client:
        response = await client.post(server.url, content=parts())
    assert response.content == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_an_answer_before_the_body_was_taken_counts() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def much() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 100_000

    async with serving(refuse) as server, using() as client:
        assert (await client.post(server.url, content=much())).status_code == 413


async def test_a_body_that_nobody_reads_is_not_gathered() -> None:
    written = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            written += 65_536

    async def stalled() -> None:
        seen = -1
        while seen != written:
            seen = written
            await asyncio.sleep(0.1)

    async with serving(pour) as server, using() as client:
        async with client.stream("GET", server.url) as response:
            await stalled()
            assert written < 50_000_000  # buffers of the two sockets, and ours
            first = await anext(response.aiter_bytes())
            assert set(first) == {ord("x")}
        await until(lambda: server.closed == 1)


async def test_only_a_certificate_that_is_trusted_will_do(tmp_path: Path) -> None:
    files = make_self_signed(tmp_path)
    serving_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving_tls.load_cert_chain(files.certificate, files.key)
    async with serving(OK, tls=serving_tls) as server:
        url = f"https://127.0.0.1:{server.port}/"
        async with using(PooledTransport(ssl.create_default_context())) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(url)
        trusting = ssl.create_default_context(cafile=files.certificate)
        async with using(PooledTransport(trusting)) as client:
            assert (await client.get(url)).content == b"ok"


async def test_other_schemes_are_refused() -> None:
    async with using() as client:
        for url in ("ftp://127.0.0.1/", "https://127.0.0.1/"):  # the second because it has no TLS context
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.get(url)


async def test_an_answer_that_came_in_time_counts_although_the_event_loop_was_blocked_until_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop finds the answer and the end of the time in one pass."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        pytest.skip("uvloop's clock cannot be moved")
    asked, go, answered = threading.Event(), threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                asked.set()
                go.wait()
                connection.sendall(OK)
                answered.set()
                connection.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        dependency = Dependency(name="slow", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        sending = send(
            dependency,
            Request(method="GET", path="/", headers={}),
            seconds=60,
            limit_bytes=100,
            progress=SendProgress(),
        )
        task = asyncio.create_task(sending)
        await asyncio.to_thread(asked.wait)
        go.set()
        answered.wait()  # The loop reads nothing meanwhile, and the time is up when it goes on.
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + 61)
        response = await task
        await close_clients()
        assert response.body == b"ok"
