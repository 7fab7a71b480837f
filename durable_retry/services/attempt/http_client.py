"""One HTTP request to a dependency: one client each, one time limit, and whether anything was sent."""

import asyncio
import ssl
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx

from durable_retry.engine.base.text import Secret
from durable_retry.engine.dependency import Dependency
from durable_retry.services.attempt.http_transport import PROGRESS, PooledTransport, SendProgress
from durable_retry.telemetry import spans

_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=[])

type _Pool = dict[str, tuple[Dependency, httpx.AsyncClient]]

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Answer:
    """A dependency's answer, with its body up to a limit.

    Attributes:
        status_code: As it came.
        headers: As they came, names in lower case.
        body: At most the limit.
        is_cut: Whether there was more.
    """

    status_code: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to send, ready but for the time limit."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    has_json: bool = False
    body: str | None = None


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends requests, each in a span of its own whose place in the trace goes out with it.

    Attributes:
        inner: Does the sending.
    """

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


def client_for(dependency: Dependency) -> httpx.AsyncClient:
    """Return the running loop's pooled client of a dependency, making it at first use."""
    pool = _pools.setdefault(asyncio.get_running_loop(), {})
    made_for, client = pool.get(dependency.name, (None, None))
    if client is None or made_for is not dependency:
        client = _make_client(dependency)
        pool[dependency.name] = (dependency, client)
    return client


async def close_clients() -> None:
    """Close the running loop's clients; for tests and benchmarks, the host just ends the process."""
    for _, client in _pools.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


def target_url(dependency: Dependency, path: str) -> httpx.URL:
    """Return the URL of a path below the dependency's base URL.

    Raises:
        EscapedBaseUrlError: It leads elsewhere.
    """
    url = httpx.URL(f"{dependency.base_url}/{path.lstrip('/')}" if path else dependency.base_url)
    require_below(dependency, url)
    return url


def require_below(dependency: Dependency, url: httpx.URL) -> None:
    """Check that a URL is below the dependency's base URL.

    Raises:
        EscapedBaseUrlError: It leads elsewhere.
    """
    base = httpx.URL(dependency.base_url)
    same_host = (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)
    prefix = base.path.rstrip("/")
    if not same_host or not (url.path == base.path or url.path.startswith(f"{prefix}/")):
        raise EscapedBaseUrlError(f"{url.path!r} leads out of the base URL of {dependency.name}")


async def send(
    client: httpx.AsyncClient, request: Request, *, seconds: float, limit_bytes: int, progress: SendProgress
) -> Answer:
    """Send a request and read its answer, all of it within `seconds`.

    Args:
        client: From `client_for`.
        request: What to send.
        seconds: For everything: a free connection, connecting, sending, waiting and reading.
        limit_bytes: The most of the body that is read.
        progress: Updated as the request goes on, also when this raises.

    Raises:
        httpx.HTTPError: The exchange failed.
        TimeoutError: The time was up.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(client, request, limit_bytes, progress)
    except TimeoutError as error:
        raise TimeoutError(f"not finished within {seconds:.1f} s") from error


async def _exchange(
    client: httpx.AsyncClient, request: Request, limit_bytes: int, progress: SendProgress
) -> Answer:
    content: dict[str, Any] = {"json": request.json} if request.has_json else {"content": request.body}
    async with client.stream(
        request.method,
        request.url,
        params=request.params or None,
        headers=request.headers,
        extensions={PROGRESS: progress},
        **content,
    ) as response:
        body, is_cut = await _read_up_to(response, limit_bytes)
        return Answer(response.status_code, dict(response.headers), body, is_cut)


async def _read_up_to(response: httpx.Response, limit_bytes: int) -> tuple[bytes, bool]:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit_bytes:
            return bytes(body[:limit_bytes]), True
    return bytes(body), False


def _make_client(dependency: Dependency) -> httpx.AsyncClient:
    """Return a client that follows no redirect, keeps no cookie, and ignores the environment.

    A cookie of one operation's answer must not travel with the next one, and neither a proxy nor a .netrc of
    the machine may see or add credentials.
    """

    async def stay_below_base_url(request: httpx.Request) -> None:
        require_below(dependency, request.url)

    client = httpx.AsyncClient(
        base_url=dependency.base_url,
        headers=_own_headers(dependency),
        timeout=httpx.Timeout(None, connect=dependency.timeouts.connect_seconds),
        follow_redirects=False,
        trust_env=False,
        transport=TracedTransport(_make_transport(dependency)),
        event_hooks={"request": [stay_below_base_url]},
    )
    client.cookies.jar.set_policy(_NO_COOKIES)
    return client


def _make_transport(dependency: Dependency) -> PooledTransport:
    return PooledTransport(_tls_context() if dependency.base_url.startswith("https:") else None)


def _own_headers(dependency: Dependency) -> dict[str, str]:
    """Return the headers that the file sets, revealed: the one place where secrets become text."""
    # A limit on the bytes that are read means little for a body that unpacks to more.
    headers = {"Accept-Encoding": "identity"}
    for name, value in dependency.headers.items():
        headers[name] = value.reveal() if isinstance(value, Secret) else value
    if dependency.auth is not None:
        headers[dependency.auth.header] = dependency.auth.value.reveal()
    return headers


@cache
def _tls_context() -> ssl.SSLContext:
    """Load the trusted certificates once: it takes longer than most calls."""
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])  # Otherwise a server may choose HTTP/2.
    return context
