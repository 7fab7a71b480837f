"""A pool of connections to one origin, as an httpx transport, and the egress proxy where one is needed.

`HTTPS_PROXY` and `NO_PROXY` count for dependencies with https: the proxy gets a CONNECT with a host and a
port, and what follows is encrypted from end to end, so it sees no path, header or secret. A dependency with
http is never sent through a proxy, which would see all of it: `HTTP_PROXY` is ignored.

Requests through a proxy are sent by httpcore, since the pool's own transport has no tunnels.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, override
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined] # typeshed has one of them on some platforms

import httpx
from aiohappyeyeballs import start_connection

from durable_retry.attempt.http_connection import HttpConnection
from durable_retry.runtime.concurrency import time_limit

PROGRESS: Final = "durable_retry.send_progress"
"""Name of the request extension that holds a `SendProgress`."""


_PORTS: Final = {"http": 80, "https": 443}


# RFC 8305, section 5: wait before the next address is tried beside the first.
_HAPPY_EYEBALLS_SECONDS: Final = 0.25


# Scheme, host and port: requests to the same origin share connections.
type _Origin = tuple[str, str, int]


@dataclass(slots=True)
class SendProgress:
    """How far one request got.

    Attributes:
        connecting: Whether a connection was being made; False while none was free in the pool.
        sent: Whether any byte of the request can have reached the dependency.
    """

    connecting: bool = False
    sent: bool = False

    def precise_names(self, error: BaseException) -> list[str]:
        """Return the exception name that is more precise than the error itself, if there is one.

        The time limit of a whole attempt ends it at any point, and a lost connection does not say whether the
        request was sent.
        """
        if self.sent or not isinstance(error, TimeoutError | httpx.ReadError | httpx.RemoteProtocolError):
            return []
        return ["ConnectTimeout"] if self.connecting else ["PoolTimeout"]


class PooledTransport(httpx.AsyncBaseTransport):
    """Sends requests over HTTP/1.1 connections that are kept alive, for one event loop.

    Attributes:
        max_connections: Per transport; a request waits for a free one.
        max_idle: Connections that are kept for later; the others are closed after use.
        idle_seconds: An idle connection is closed after this. Many servers close after 5 s, and a request
            that crosses the close is lost.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        max_connections: int = 100,
        max_idle: int = 20,
        idle_seconds: float = 4.5,
    ) -> None:
        self.tls = tls
        self.max_idle = max_idle
        self.idle_seconds = idle_seconds
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: dict[_Origin, deque[HttpConnection]] = {}
        self._busy: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its response holds a connection until it is closed.

        Raises:
            httpx.TransportError: The subclasses that httpx's own transport raises.
        """
        origin = _origin_of_url(request.url)
        limits = request.extensions.get("timeout", {})
        progress = request.extensions.get(PROGRESS) or SendProgress()
        async with time_limit(limits.get("pool"), httpx.PoolTimeout):
            await self._slots.acquire()
        connection: HttpConnection | None = None
        try:
            connection = self._take_idle(origin)
            if connection is None:
                progress.connecting = True
                connection = await self._connect_to(origin, limits.get("connect"))
            self._busy.add(connection)
            progress.sent = True
            response = await connection.send(request)
        except BaseException as error:
            progress.sent = progress.sent and not isinstance(error, httpx.LocalProtocolError)
            self.release(origin, connection)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - made by `send`
        response.stream = _Returning(response.stream, self, origin, connection)
        return response

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in (*self._busy, *chain.from_iterable(self._idle.values())):
            connection.close()
        self._idle.clear()

    def _take_idle(self, origin: _Origin) -> HttpConnection | None:
        idle = self._idle.get(origin)
        oldest_allowed = asyncio.get_running_loop().time() - self.idle_seconds
        while idle:
            # The one used last: it is the least likely to be closed by the peer just now.
            connection = idle.pop()
            if connection.is_open and connection.idle_since >= oldest_allowed:
                return connection
            connection.close()
        return None

    async def _connect_to(self, origin: _Origin, seconds: float | None) -> HttpConnection:
        scheme, host, port = origin
        options: dict[str, Any] = (
            {"ssl": self._required_tls(), "server_hostname": host} if scheme == "https" else {}
        )
        try:
            async with time_limit(seconds, httpx.ConnectTimeout):
                loop = asyncio.get_running_loop()
                addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                # Not the loop's `happy_eyeballs_delay`: uvloop, on which the Azure worker runs, has none.
                connected = await start_connection(addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS)
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self._forget_connection), sock=connected, **options
                )
        except (OSError, UnicodeError) as error:  # an SSLError is an OSError
            raise httpx.ConnectError(f"{host}:{port}: {str(error) or type(error).__name__}") from error
        return connection

    def _required_tls(self) -> ssl.SSLContext:
        if self.tls is None:
            raise httpx.UnsupportedProtocol("this client has no TLS context")
        return self.tls

    def release(self, origin: _Origin, connection: HttpConnection | None) -> None:
        """Take a connection back after its exchange; None when none was made."""
        self._slots.release()
        if connection is None:
            return
        self._busy.discard(connection)
        idle = self._idle.setdefault(origin, deque())
        if connection.is_open and not self._is_closed and len(idle) < self.max_idle:
            idle.append(connection)
            self._sweep_later()
        else:
            connection.close()

    def _forget_connection(self, connection: HttpConnection) -> None:
        # Idle ones only: a busy one is released by its request.
        for idle in self._idle.values():
            if connection in idle:
                idle.remove(connection)

    def _sweep_later(self) -> None:
        # One timer for all.
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self.idle_seconds, self._close_expired)

    def _close_expired(self) -> None:
        self._sweep = None
        oldest_allowed = asyncio.get_running_loop().time() - self.idle_seconds
        for idle in self._idle.values():
            while idle and idle[0].idle_since <= oldest_allowed:
                idle.popleft().close()
        if any(self._idle.values()):
            self._sweep_later()


class _Returning(httpx.AsyncByteStream):
    """A response body that gives its connection back to the pool when it is closed."""

    def __init__(
        self,
        body: httpx.AsyncByteStream,
        transport: PooledTransport,
        origin: _Origin,
        connection: HttpConnection,
    ) -> None:
        self._body = body
        self._transport = transport
        self._origin = origin
        self._connection: HttpConnection | None = connection

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._body)

    @override
    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._body.aclose()
            self._transport.release(self._origin, connection)


def _origin_of_url(url: httpx.URL) -> _Origin:
    if url.scheme not in _PORTS:
        raise httpx.UnsupportedProtocol(f"neither http nor https: {url.scheme!r}")
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]


# As `PooledTransport`.
_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.5)


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for a base URL; None when it is reached directly."""
    parts = urlsplit(url)
    if parts.scheme != "https" or proxy_bypass_environment(parts.netloc.rpartition("@")[2]):
        return None
    proxy = getproxies_environment().get("https")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class ProxiedTransport(httpx.AsyncBaseTransport):
    """Sends requests through tunnels of a proxy."""

    def __init__(self, proxy: str, tls: ssl.SSLContext) -> None:
        self._inner = httpx.AsyncHTTPTransport(proxy=proxy, verify=tls, trust_env=False, limits=_LIMITS)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            httpx.ProxyError: The proxy refused the tunnel; nothing was sent to the dependency.
            httpx.TransportError: The exchange failed.
        """
        progress: SendProgress = request.extensions.get(PROGRESS) or SendProgress()
        request.extensions["trace"] = partial(_note_progress, progress)
        return await self._inner.handle_async_request(request)

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


async def _note_progress(progress: SendProgress, event: str, info: dict[str, Any]) -> None:
    """Note how far a request is, by httpcore's events; the CONNECT to the proxy is no part of it."""
    if event.startswith("connection.connect_tcp.started"):
        progress.connecting = True
    elif event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
        progress.sent = True
