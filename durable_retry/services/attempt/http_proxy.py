"""Attempts through the egress proxy that the environment names, where one is needed.

`HTTPS_PROXY` and `NO_PROXY` count for dependencies with https: the proxy gets a CONNECT with a host and a
port, and what follows is encrypted from end to end, so it sees no path, header or secret. A dependency with
http is never sent through a proxy, which would see all of it.

Only here httpcore carries the requests: the transport of `http_pool.py` has no tunnels.
"""

import ssl
from functools import partial
from typing import Any, Final, override
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined] # typeshed has one of them on some platforms

import httpx

from durable_retry.services.attempt.http_pool import PROGRESS, SendProgress

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
