"""Attempts through an egress proxy: which dependencies take it, what it sees, and what a failure means."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from durable_retry.attempt import http_client
from durable_retry.attempt.http_client import Request, close_clients, send
from durable_retry.attempt.http_pool import SendProgress, proxy_for
from durable_retry.rules.config.dependencies_file import parse_config
from tests.integration.services.test_http_transport import OK, Server, serving
from tests.support.certificates import make_self_signed


@dataclass
class Proxy:
    """A proxy on loopback that tunnels.

    Attributes:
        seen: The heads of the requests to it.
        bytes_through: What clients sent through its tunnels.
    """

    port: int = 0
    refuses: bool = False
    seen: list[bytes] = field(default_factory=list)
    bytes_through: bytearray = field(default_factory=bytearray)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    tasks: set[asyncio.Task[None] | None] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.seen.append(head)
            if self.refuses:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                writer.close()
                return
            port = int(head.split()[1].rpartition(b":")[2])
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            self.writers.append(far_writer)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = asyncio.create_task(_copy(far_reader, writer, bytearray()))
            await _copy(reader, far_writer, self.bytes_through)
            far_writer.close()
            await back
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            seen += part
            writer.write(part)
            await writer.drain()


@asynccontextmanager
async def a_proxy(*, refuses: bool = False) -> AsyncIterator[Proxy]:
    proxy = Proxy(refuses=refuses)
    listening = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        for writer in proxy.writers:
            writer.close()
        await asyncio.gather(*filter(None, proxy.tasks), return_exceptions=True)
        for writer in proxy.writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    made = make_self_signed(tmp_path)
    trusted = ssl.create_default_context(cafile=str(made.certificate))
    monkeypatch.setattr(http_client, "_tls_context", lambda: trusted)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    return context


async def sent_to(server: Server, scheme: str, progress: SendProgress) -> int:
    """Send a request with a secret to a server, as an attempt does, and return its status."""
    text = (
        f'[dependencies.payments]\nbase_url = "{scheme}://127.0.0.1:{server.port}"\n'
        'headers = { X-Secret = "hush" }\n'
    )
    dependency = parse_config(text, {}).dependencies["payments"]
    request = Request(method="POST", path="/charges", headers={}, params={}, json={"a": 1}, has_json=True)
    try:
        answer = await send(dependency, request, seconds=20, limit_bytes=1000, progress=progress)
    finally:
        await close_clients()
    return answer.status_code


async def test_an_attempt_goes_through_the_proxy_which_sees_nothing_of_it(
    server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = SendProgress()
    async with a_proxy() as proxy, serving(OK, tls=server_tls) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert await sent_to(server, "https", progress) == 200
    assert [head.split(b"\r\n")[0] for head in proxy.seen] == [
        f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode()
    ]
    assert b"X-Secret: hush" in server.requests[0]
    assert b"hush" not in b"".join(proxy.seen) + proxy.bytes_through
    assert progress.sent


async def test_a_refused_tunnel_sent_nothing(
    server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = SendProgress()
    async with a_proxy(refuses=True) as proxy, serving(OK, tls=server_tls) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(httpx.ProxyError):
            await sent_to(server, "https", progress)
    assert server.requests == []
    assert not progress.sent


async def test_a_dependency_without_encryption_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_proxy() as proxy, serving(OK) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert await sent_to(server, "http", SendProgress()) == 200
    assert proxy.seen == []


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://pay.example.com/v1", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://pay.example.com/v1", "http://p:3128"),
        ({"https_proxy": "p:3128"}, "https://pay.example.com", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".example.com"}, "https://pay.example.com", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, "https://pay.example.com", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://pay.example.com", None),
    ],
)
def test_the_environment_says_which_dependencies_take_the_proxy(
    environment: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy
