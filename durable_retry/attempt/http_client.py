"""One HTTP request to a dependency: one client each, one time limit, and whether anything was sent.

The transport's pool costs the same however many connections are idle. httpx's own pool tests every idle
connection on each request (numbers: docs/decisions/http-transport.md). Here the event loop reports a
connection that the peer closed, so taking one is a `pop`.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final, override

import httpx

from durable_retry.attempt.decoding import decode_here
from durable_retry.attempt.http_pool import (
    PROGRESS,
    PooledTransport,
    ProxiedTransport,
    SendProgress,
    proxy_for,
)
from durable_retry.base.text import Secret, seconds_text
from durable_retry.base.validation import MAX_PATH_CHARS
from durable_retry.plugins import features_of
from durable_retry.rules.config.dependency import Dependency
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.runtime.deferred import imported
from durable_retry.telemetry import spans

_BASE_URLS_KEPT: Final = 256

_LAST_LOOK_SECONDS: Final = 0.01
"""A pass of the event loop, in which it reads its sockets."""

# Methods of requests with a Content-Length also when their body is empty (RFC 9110, section 8.6).
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=[])


@dataclass(frozen=True, slots=True)
class _Pooled:
    """What a loop keeps to call a dependency.

    Attributes:
        made_for: The dependency; another object of the same name is another configuration.
        headers: Name and value of what every request carries, by name in lower case.
        limits: The time limits of every request, as httpx's extension `timeout` has them.
    """

    made_for: Dependency
    transport: httpx.AsyncBaseTransport
    headers: dict[bytes, tuple[bytes, bytes]]
    limits: dict[str, float | None]


_pools: Final = LoopOwned[dict[str, _Pooled]](dict)


@dataclass(frozen=True, slots=True)
class BoundedResponse:
    """A dependency's response, with its body up to a limit.

    Attributes:
        headers: As they came, names in lower case.
        is_cut: Whether there was more, or it broke off.
        is_broken_off: Whether it did not come whole, in time.
        is_undecoded: Whether its `Content-Encoding` is false: the body is what could be decoded.
    """

    status_code: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool
    is_broken_off: bool = False
    is_undecoded: bool = False

    @property
    def content_type(self) -> str:
        """The header; "" without one."""
        return self.headers.get("content-type", "")


@dataclass(slots=True)
class _Incoming:
    """An answer as it comes: its head, and its body up to a limit."""

    limit_bytes: int
    head: httpx.Response | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def bounded(self, head: httpx.Response, **more: bool) -> BoundedResponse:
        return BoundedResponse(head.status_code, self.headers, bytes(self.body), **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to send to a path below a dependency's base URL."""

    method: str
    path: str
    headers: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    has_json: bool = False
    body: str | None = None


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends requests, each in a span of its own whose place in the trace goes out with it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; the span ends with the head of the answer, its body is read later."""
        url = request.url
        with spans.call(request.method, url.host, url.port, request.headers) as span:
            response = await self.inner.handle_async_request(request)
            spans.call_answered(span, response.status_code)
            return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


class EscapedBaseUrlError(ValueError):
    """A path that leads out of the dependency's base URL; the intake checks for it first."""


class SignInError(httpx.TransportError):
    """The app could not authenticate itself to a dependency: nothing that was sent had an effect."""


class CredentialRefusedError(SignInError):
    """What authenticates the app was refused."""


def _pooled_client(dependency: Dependency) -> _Pooled:
    pool = _pools.get()
    pooled = pool.get(dependency.name)
    if pooled is None or pooled.made_for is not dependency:
        transport = TracedTransport(_transports(dependency))
        client = make_client(dependency, transport)
        headers = {name.lower(): (name, value) for name, value in client.headers.raw}
        pooled = _Pooled(dependency, transport, headers, client.timeout.as_dict())
        pool[dependency.name] = pooled
    return pooled


def transport_of(dependency: Dependency) -> httpx.AsyncBaseTransport:
    """Return what the running loop's pooled client of a dependency sends with."""
    return _pooled_client(dependency).transport


async def close_clients() -> None:
    """Close the running loop's clients; for tests and benchmarks, the host just ends the process."""
    for pooled in _pools.take().values():
        await pooled.transport.aclose()


def target_url(dependency: Dependency, path: str) -> httpx.URL:
    """Return the URL of a path below the dependency's base URL."""
    below = path.lstrip("/")
    is_short = 0 < len(path) <= MAX_PATH_CHARS
    if is_short and dependency.base_url and _PLAIN_PATH.fullmatch(below):
        return _plain_url(_base_url(f"{dependency.base_url}/"), below)
    url = httpx.URL(f"{dependency.base_url}/{below}" if path else dependency.base_url)
    require_below(dependency, url)
    return url


_PLAIN_PATH: Final = re.compile(r"(?:[\w~-][\w.~-]*+/?){0,128}", re.ASCII)
"""Without a segment that climbs, and with nothing to encode or to decode: every server reads it alike."""


def _plain_url(base: httpx.URL, path: str) -> httpx.URL:
    # httpx itself changes one part by reading all of them again, which takes ten times as long.
    url, parts = httpx.URL(base), base._uri_reference  # noqa: SLF001
    url._uri_reference = parts._replace(path=parts.path + path)  # noqa: SLF001
    return url


_base_url: Final = lru_cache(maxsize=_BASE_URLS_KEPT)(httpx.URL)


def require_below(dependency: Dependency, url: httpx.URL) -> None:
    """Check that a URL is below the dependency's base URL."""
    if not dependency.base_url:
        raise EscapedBaseUrlError(f"{dependency.name} has no base_url, so it takes no requests")
    base = _base_url(dependency.base_url)
    same_host = (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)
    prefix = base.path.rstrip("/")
    if not same_host or not (url.path == base.path or url.path.startswith(f"{prefix}/")):
        place = f"{url.scheme}://{url.netloc.decode()}{url.path}"
        raise EscapedBaseUrlError(f"{place} leads out of the base URL of {dependency.name}")


async def send(
    dependency: Dependency,
    request: Request,
    *,
    seconds: float,
    limit_bytes: int,
    progress: SendProgress,
    limit_text: str = "",
    url: httpx.URL | None = None,
) -> BoundedResponse:
    """Send a request and read its answer, all of it within `seconds`.

    Args:
        seconds: For everything: a free connection, connecting, sending, waiting and reading. A refusal whose
            body is cut off by it is returned: the status says enough.
        limit_bytes: The most of the body that is read.
        progress: Updated as the request goes on, also when this raises.
        limit_text: The time for everything, with what sets it, for a person.
        url: Where it goes in place of the request's path; the caller has checked that the dependency's
            credential may go there.

    Raises:
        EscapedBaseUrlError: The path leads elsewhere; nothing was sent.
        httpx.HTTPError: The exchange failed.
        TimeoutError: The time was up.
    """
    url, incoming = url or target_url(dependency, request.path), _Incoming(limit_bytes)
    try:
        async with _last_look_after(seconds):
            return await _exchange_request(dependency, url, request, incoming, progress)
    except TimeoutError as error:
        head = incoming.head
        if head is not None and not head.is_success:
            return incoming.bounded(head, is_cut=True, is_broken_off=True)
        begun = "" if head is None else f", though the head of its answer said {head.status_code}"
        raise TimeoutError(f"no answer within {limit_text or seconds_text(seconds)}{begun}") from error


@asynccontextmanager
async def _last_look_after(seconds: float) -> AsyncIterator[None]:
    """End the block after some seconds, but first read what has come.

    An event loop that was blocked finds the answer and the end of the time at once, and a plain timeout would
    throw away what came in time.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        time_up = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + _LAST_LOOK_SECONDS))
        try:
            yield
        finally:
            time_up.cancel()


async def _exchange_request(
    dependency: Dependency, url: httpx.URL, request: Request, incoming: _Incoming, progress: SendProgress
) -> BoundedResponse:
    pooled = _pooled_client(dependency)
    # Past httpx's client: redirects, cookies and authentication cost a third of a call, and are off.
    response = await pooled.transport.handle_async_request(_httpx_request(pooled, url, request, progress))
    incoming.head = response
    try:
        # Not `dict(headers)`, which searches all of them for each name.
        incoming.headers = dict(response.headers.items())
        parts = _decoded_parts(response, incoming.headers)
        is_cut = await _read_body_up_to(parts, incoming.limit_bytes, incoming.body)
    except _READ_FAILURES as error:
        if not _keeps_status(response, error):
            raise
        is_undecoded = isinstance(error, httpx.DecodingError)
        return incoming.bounded(
            response, is_cut=True, is_broken_off=not is_undecoded, is_undecoded=is_undecoded
        )
    finally:
        await response.aclose()
    return incoming.bounded(response, is_cut=is_cut)


_READ_FAILURES: Final = (httpx.DecodingError, httpx.TransportError)


def _keeps_status(response: httpx.Response, error: Exception) -> bool:
    """Whether an answer says enough by its status, although its body cannot be read.

    A refusal does. So does a success whose `Content-Encoding` is false, but not one that broke off: servers
    send the head of a 2xx before the work is done.
    """
    return not response.is_success or isinstance(error, httpx.DecodingError)


def _httpx_request(
    pooled: _Pooled, url: httpx.URL, request: Request, progress: SendProgress
) -> httpx.Request:
    # A quarter of the time that httpx's client takes to build the same; none of it depends on an answer.
    own = [(name.encode("ascii"), value.encode("ascii")) for name, value in request.headers.items()]
    names = {name.lower() for name, _ in own}
    others = [header for name, header in pooled.headers.items() if name not in names]
    headers = [(b"Host", url.netloc), *others, *own]
    text = request.body or ""
    if request.has_json:  # `null`, too; as httpx writes it
        text = json.dumps(request.json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        if b"content-type" not in names and b"content-type" not in pooled.headers:
            headers.append((b"Content-Type", b"application/json"))
    body = text.encode()
    if body or request.method in _WITH_BODY:
        headers.append((b"Content-Length", str(len(body)).encode()))
    return httpx.Request(
        request.method,
        httpx.URL(url, params=request.params) if request.params else url,
        headers=headers,
        stream=httpx.ByteStream(body),
        extensions={PROGRESS: progress, "timeout": pooled.limits},
    )


def _decoded_parts(response: httpx.Response, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if "content-encoding" in headers:
        decode_here(response)
    stream = response.stream
    return aiter(stream) if isinstance(stream, httpx.AsyncByteStream) else response.aiter_bytes()


async def _read_body_up_to(parts: AsyncIterator[bytes], limit_bytes: int, body: bytearray) -> bool:
    async for chunk in parts:
        body += chunk
        if len(body) > limit_bytes:
            del body[limit_bytes:]
            return True
    return False


def make_client(
    dependency: Dependency,
    transport: httpx.AsyncBaseTransport,
    seconds_left: Callable[[], float] = lambda: _REFUSAL_SECONDS,
) -> httpx.AsyncClient:
    """Return a dependency's client, which follows no redirect, keeps no cookie, reads no .netrc.

    A cookie of one operation's answer must not travel with the next one, and nothing of the machine may add
    credentials. What a proxy may see: `http_pool`.

    Args:
        seconds_left: Returns the seconds until the handler that uses it is cut off.
    """

    async def stay_below_base_url(request: httpx.Request) -> None:
        require_below(dependency, request.url)

    client = _Client(
        base_url=dependency.base_url,
        headers=_configured_headers(dependency),
        timeout=httpx.Timeout(None, connect=dependency.timeouts.connect_seconds),
        follow_redirects=False,
        trust_env=False,
        transport=transport,
        event_hooks={"request": [stay_below_base_url]},
    )
    client.seconds_left = seconds_left
    client.cookies.jar.set_policy(_NO_COOKIES)
    return client


_REFUSAL_SECONDS: Final = 5.0
"""The longest that a handler waits for the body of a refusal."""


class _Client(httpx.AsyncClient):
    seconds_left: Callable[[], float]

    @override
    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        response = await super().send(request, stream=True, **options)
        decode_here(response)
        if stream:
            return response
        try:
            await self._read_body(response)
        except _READ_FAILURES as error:
            await response.aclose()
            if not _keeps_status(response, error):
                raise
            return _UnreadableResponse(response, error)
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _read_body(self, response: httpx.Response) -> None:
        if response.is_success:
            await response.aread()
            return
        # The status says enough, and the handler must have time to say so.
        try:
            async with asyncio.timeout(min(_REFUSAL_SECONDS, self.seconds_left() / 2)):
                await response.aread()
        except TimeoutError as error:
            late = f"the body of a {response.status_code} did not come in time"
            raise httpx.ReadTimeout(late, request=response.request) from error


class _UnreadableResponse(httpx.Response):
    """An answer with its status, whose body raises when it is read."""

    def __init__(self, response: httpx.Response, error: httpx.RequestError) -> None:
        super().__init__(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
            extensions=response.extensions,
        )
        self.elapsed = response.elapsed
        self.is_closed = True
        self._error = error

    @property
    @override
    def content(self) -> bytes:
        raise self._error


def _make_transport(dependency: Dependency) -> httpx.AsyncBaseTransport:
    transport: httpx.AsyncBaseTransport
    if (proxy := proxy_for(dependency.base_url)) is not None:
        transport = ProxiedTransport(proxy, _tls_of(dependency))
    else:
        transport = PooledTransport(_tls_of(dependency) if dependency.base_url.startswith("https:") else None)
    for feature in features_of(dependency.of_features):
        if feature.transport:
            transport = imported(feature.transport)(dependency, transport)
    return transport


_transports: Callable[[Dependency], httpx.AsyncBaseTransport] = _make_transport


@contextmanager
def sending_over(make: Callable[[Dependency], httpx.AsyncBaseTransport]) -> Iterator[None]:
    """Let clients that are made inside the block send over other transports; for tests."""
    global _transports  # noqa: PLW0603 - the one place where the network is swapped
    previous = _transports
    _transports = make
    try:
        yield
    finally:
        _transports = previous


def _configured_headers(dependency: Dependency) -> httpx.Headers:
    # The one place where secrets become text.
    headers = httpx.Headers({"Accept-Encoding": "identity"})  # no answer needs to be decoded
    for name, value in dependency.headers.items():
        headers[name] = value.reveal() if isinstance(value, Secret) else value
    if dependency.auth is not None and dependency.auth.value is not None:
        headers[dependency.auth.header] = dependency.auth.value.reveal()
    return headers


def _tls_of(dependency: Dependency) -> ssl.SSLContext:
    changes = [imported(feature.tls) for feature in features_of(dependency.of_features) if feature.tls]
    if not changes:
        return _tls_context()
    context = _new_tls()
    for change in changes:
        change(dependency, context)
    return context


def _new_tls() -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])  # Otherwise a server may choose HTTP/2.
    return context


_tls_context: Final = cache(_new_tls)
"""Once for all: loading the trusted certificates takes longer than most calls."""
