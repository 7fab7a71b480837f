"""One HTTP/1.1 connection as an asyncio protocol; llhttp (httptools) parses what arrives.

    idle --start--> exchange --response complete, keep-alive--> idle
                       └─ anything else: closed

asyncio calls `connection_lost` as soon as the peer closes an idle connection, so a pool never has to test its
idle connections. Not a client for every purpose: no pipelining, no upgrades, no proxies.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import filterfalse
from typing import Any, Final, cast, override

import httptools
import httpx

from durable_retry.runtime.concurrency import time_limit

# llhttp has no limit of its own; h11, the parser of httpx's own transport, has this one. It also holds for
# what comes between two parts of a body: trailers, and extensions of chunks.
_MAX_HEAD_BYTES: Final = 100 * 1024

# Reading pauses while so much of a body waits for its reader.
_MAX_BUFFERED_BYTES: Final = 256 * 1024

# Responses below it (1xx) come before the real one.
_FINAL_STATUS: Final = 200

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# RFC 9110, 5.5: CR, LF and NUL are dangerous; with a line break a value would become a header of its own.
# NUL separates name and value until both are checked: a colon in a name would move where the value begins.
_FIELD: Final = re.compile(_TOKEN.pattern + rb"\x00[^\x00\r\n]*\r\n")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")


class HttpConnection(asyncio.Protocol):
    """One connection.

    Attributes:
        idle_since: Reading of the loop's clock when the last exchange ended.
        is_open: Whether another exchange can begin.
    """

    def __init__(self, on_lost: Callable[["HttpConnection"], None]) -> None:
        self.idle_since = 0.0
        self.is_open = False
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None
        self._writable: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: the transports of uvloop, on which the Azure worker runs, are no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    @override
    def data_received(self, data: bytes) -> None:
        if self._exchange is None:  # Unrequested data could be taken for the next response.
            self.close()
        else:
            self._exchange.feed(data)

    @override
    def eof_received(self) -> bool:
        if self._exchange is not None:
            self._exchange.end_of_stream()
        return False  # asyncio closes the transport

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self.resume_writing()
        if self._exchange is not None:
            self._exchange.fail_reading(exc)
        self._on_lost(self)

    @override
    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    @override
    def resume_writing(self) -> None:
        waiter, self._writable = self._writable, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def close(self) -> None:
        """Close at once; an exchange that is under way fails."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response, whose body is read from the connection.

        Raises:
            httpx.LocalProtocolError: The request is not valid HTTP; nothing was sent.
            httpx.TransportError: The exchange failed after sending began.
        """
        head, is_chunked = request_head(request)
        limits = request.extensions.get("timeout", {})
        exchange = _Exchange(self, is_head=request.method == "HEAD", read_seconds=limits.get("read"))
        self._exchange = exchange
        try:
            await self._write_request(
                head, request.stream, is_chunked=is_chunked, seconds=limits.get("write")
            )
            return await exchange.response(request)
        except BaseException:
            self.finish(reusable=False)
            raise

    async def _write_request(
        self, head: bytes, body: Any, *, is_chunked: bool, seconds: float | None
    ) -> None:
        if isinstance(body, httpx.ByteStream) and not is_chunked:
            await self._write_now(b"".join([head, *body]), seconds)
            return
        pending = head
        async for chunk in body:
            if chunk:
                pending += b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk
            if len(pending) > _MAX_BUFFERED_BYTES:
                await self._write_now(pending, seconds)
                pending = b""
        await self._write_now(pending + b"0\r\n\r\n" if is_chunked else pending, seconds)

    async def _write_now(self, data: bytes, seconds: float | None) -> None:
        # A peer may answer and close before it has read everything: the answer counts, so no error here.
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        if self._writable is not None:
            async with time_limit(seconds, httpx.WriteTimeout):
                await asyncio.shield(self._writable)

    def finish(self, *, reusable: bool) -> None:
        """End the exchange."""
        self._exchange = None
        self.idle_since = self._loop.time()
        if not reusable:
            self.close()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class _Exchange:
    """One request's response as it arrives; httptools calls the `on_` methods."""

    def __init__(self, connection: HttpConnection, *, is_head: bool, read_seconds: float | None) -> None:
        self._connection = connection
        self._is_head = is_head
        self._read_seconds = read_seconds
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._bytes_beside_body = 0  # since the last part of the body
        self._head_read = False
        self._complete = False
        self._has_length = False
        self._keeps_alive = False
        self._error: httpx.TransportError | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._arrived: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Parse data of the connection."""
        if self._complete:  # More than one answer to one request: the connection cannot be trusted.
            self._connection.close()
            return
        self._bytes_beside_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(httpx.RemoteProtocolError(f"{type(error).__name__}: {error}"))
        if self._bytes_beside_body > _MAX_HEAD_BYTES:
            part = "between parts of the body" if self._head_read else "in the head"
            self.fail(httpx.RemoteProtocolError(f"more than {_MAX_HEAD_BYTES} bytes came {part}"))
        if self._buffered > _MAX_BUFFERED_BYTES:
            self._connection.pause()
        self._wake_reader()

    def on_message_begin(self) -> None:
        """Refuse a second message: it could be taken for the response to the next request."""
        if self._complete:
            raise httpx.RemoteProtocolError("more than one response to one request")

    def on_status(self, reason: bytes) -> None:
        """Take a part of the reason phrase."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if not self._head_read:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the end of the head; an interim one (1xx) is dropped, its message has no body."""
        self._status = self._parser.get_status_code()
        if self._status < _FINAL_STATUS:
            return
        self._head_read, self._bytes_beside_body = True, 0
        names = {name.lower() for name, _ in self._headers}
        self._has_length = not names.isdisjoint({b"content-length", b"transfer-encoding"})
        # Read here: llhttp drops the head at the end of the message.
        self._keeps_alive = self._parser.should_keep_alive()
        # The parser waits for the body that a HEAD request's response announces and does not have.
        self._complete = self._is_head

    def on_body(self, chunk: bytes) -> None:
        """Take a part of the body."""
        self._chunks.append(chunk)
        self._buffered += len(chunk)
        self._bytes_beside_body = 0

    def on_message_complete(self) -> None:
        """Take the end of the message."""
        if self._status < _FINAL_STATUS:
            self._reason, self._headers = b"", []
        else:
            self._complete = True

    def end_of_stream(self) -> None:
        """The peer closed: the end of a body without a length, and too early for any other."""
        if self._head_read and not self._has_length:
            self._complete = True
        self._wake_reader()

    def fail_reading(self, error: Exception | None) -> None:
        """The connection is gone."""
        if self._head_read and not self._has_length and error is None:
            self._complete = True
        if self._error is None:
            lost = "the connection was closed before the response was complete"
            self.fail(httpx.RemoteProtocolError(lost) if error is None else httpx.ReadError(str(error)))

    def fail(self, error: httpx.TransportError) -> None:
        """End the exchange with an error, unless the response is complete."""
        if not self._complete:
            self._error = self._error or error
        self._connection.close()
        self._wake_reader()

    async def response(self, request: httpx.Request) -> httpx.Response:
        """Wait for the head."""
        while not self._head_read:
            await self._await_more()
        return httpx.Response(
            self._status,
            headers=self._headers,
            stream=_Body(self),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": self._reason},
        )

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives; asyncio would track an asynchronous generator, at a cost."""
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._complete:
                raise StopAsyncIteration
            self._connection.resume()
            await self._await_more()
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        return chunk

    def close(self) -> None:
        """Give the connection up; it is reusable only when the whole response was read."""
        # After a HEAD request the parser is still waiting for a body.
        self._connection.finish(reusable=self._complete and self._keeps_alive and not self._is_head)
        del self._parser  # it holds our methods: only the garbage collector would free the two

    async def _await_more(self) -> None:
        if self._error is not None:
            raise self._error
        self._arrived = asyncio.get_running_loop().create_future()
        async with time_limit(self._read_seconds, httpx.ReadTimeout):
            await self._arrived

    def _wake_reader(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class _Body(httpx.AsyncByteStream):
    """The body of a response; closing it gives the connection back."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange: _Exchange | None = exchange

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._exchange is None:
            raise httpx.StreamClosed
        return aiter(self._exchange)

    @override
    async def aclose(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()


def request_head(request: httpx.Request) -> tuple[bytes, bool]:
    """Write the head of a request, and say whether its body goes in chunks.

    Raises:
        httpx.LocalProtocolError: A part of it would not be what it seems on the wire.
    """
    method, target = request.method.encode("ascii", "replace"), request.url.raw_path
    if not _TOKEN.fullmatch(method) or method == b"CONNECT" or not _TARGET.fullmatch(target):
        raise httpx.LocalProtocolError(f"illegal request line: {request.method} {target!r}")
    fields = [b"%b\0%b\r\n" % header for header in request.headers.raw]
    if illegal := next(filterfalse(_FIELD.fullmatch, fields), None):
        raise httpx.LocalProtocolError(f"illegal header {illegal.partition(b'\0')[0]!r}")
    head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(fields).replace(b"\0", b": "))
    return head, b"\r\ntransfer-encoding: " in head.lower()
