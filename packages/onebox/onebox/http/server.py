"""The web server: a socket, bound early, and uvicorn on it."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from onebox.errors import CannotStartError

_BACKLOG = 2048
# Kestrel's default, under which the host runs: a client's pool keeps connections for less than that.
_KEEP_ALIVE_SECONDS = 130


def bind(host: str, port: int) -> socket.socket:
    """Take the port before anything else is started; connections are refused until the server listens.

    Args:
        host: A name or an address of this machine.
        port: 0 takes a free one.

    Raises:
        CannotStartError: The port is in use, or the address is not this machine's.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        reason = (
            f"port {port} is in use"
            if error.errno == errno.EADDRINUSE
            else f"cannot listen on {host}:{port}: {error.strerror}"
        )
        raise CannotStartError(f"{reason}; choose another with --port") from None
    return listener


def base_url(listener: socket.socket) -> str:
    """Return where a caller on this machine reaches a bound socket."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 # versions of IP
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"  # noqa: PLR2004


class _Server(uvicorn.Server):
    """Installs no signal handlers: the host has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class WebServer:
    """Serves an application until it is stopped."""

    def __init__(self, application: ASGIApp, listener: socket.socket, stop_seconds: int) -> None:
        config = uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=stop_seconds,
        )
        self._server = _Server(config)
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin to serve; the task ends when the server does."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="http server")
        return self._serving

    async def stop(self) -> None:
        """Take no new connections, give requests under way their time, and close."""
        self._server.should_exit = True
        if self._serving is not None:
            await asyncio.wait([self._serving])
