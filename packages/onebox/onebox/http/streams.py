"""Streamed requests: the server's side of `onebox.worker.http_streams`."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from azure_functions_runtime.utils.constants import X_MS_INVOCATION_ID
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onebox.worker.failures import FunctionFailedError, failure_of
from onebox.worker.http_streams import Exchange, HttpStreams
from onebox.worker.loop import WorkerLoop

_LOG = logging.getLogger("onebox.functions")

# Runs the function under an invocation id, its outputs too.
Invoke = Callable[[str], Awaitable[None]]


class _Connection:
    """A request's ASGI channel that counts incoming bytes and records whether an answer has begun."""

    def __init__(self, receive: Receive, send: Send, limit_bytes: int, headers: Mapping[str, str]) -> None:
        self._receive = receive
        self._send = send
        self._room_bytes = limit_bytes
        self._headers = headers
        self.answering = False
        self.overrun = False

    async def receive(self) -> Message:
        """Pass on the next piece; a body over the limit looks like a client that is gone."""
        message = await self._receive()
        self._room_bytes -= len(message.get("body", b""))
        self.overrun = self.overrun or self._room_bytes < 0
        return {"type": "http.disconnect"} if self.overrun else message

    async def send(self, message: Message) -> None:
        """Pass on a piece of the answer; to a body over the limit none is begun, that is refused."""
        if self.overrun and not self.answering:
            return
        if message["type"] == "http.response.start":
            self.answering = True
            for name, value in self._headers.items():
                MutableHeaders(scope=message).setdefault(name, value)
        await self._send(message)

    async def refuse(self, status_code: int) -> None:
        """Answer without a body, unless an answer has begun."""
        if not self.answering:
            self.answering = True
            headers = [(b"content-length", b"0")]
            await self._send({"type": "http.response.start", "status": status_code, "headers": headers})
            await self._send({"type": "http.response.body", "body": b""})


class StreamedAnswers:
    """Makes the answers of streaming functions."""

    def __init__(self, streams: HttpStreams, loop: WorkerLoop, headers: Mapping[str, str]) -> None:
        """Make it.

        Args:
            streams: The web application and its exchanges.
            loop: Where the web application and the functions run.
            headers: host.json's customHeaders.
        """
        self._streams = streams
        self._loop = loop
        self._headers = headers

    def answer(self, invoke: Invoke, limit_bytes: int, what: str) -> ASGIApp:
        """Return what answers one request.

        Args:
            invoke: Runs the function.
            limit_bytes: The largest body that is taken; 413 above.
            what: Names function and request in the log.
        """

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            connection = _Connection(receive, send, limit_bytes, self._headers)
            try:
                await self._exchange(scope, connection, invoke, what)
            except asyncio.CancelledError:  # the server stops and waits no longer; the task ends here anyway
                await connection.refuse(503)
                return
            await connection.refuse(413 if connection.overrun else 500)

        return app

    async def _exchange(self, scope: Scope, connection: _Connection, invoke: Invoke, what: str) -> None:
        invocation_id = str(uuid.uuid4())
        with self._streams.open(invocation_id) as exchange:
            serving = asyncio.ensure_future(self._serve(scope, connection, invocation_id))
            arrived = asyncio.wrap_future(exchange.request)
            await asyncio.wait([serving, arrived], return_when=asyncio.FIRST_COMPLETED)
            if arrived.done():
                # Not awaited with the answer: a client that hangs up does not stop a function half way.
                await asyncio.shield(asyncio.ensure_future(_invoke(invoke, invocation_id, exchange)))
            arrived.cancel()
            await _finish(serving, exchange, what)

    async def _serve(self, scope: Scope, connection: _Connection, invocation_id: str) -> None:
        header = (X_MS_INVOCATION_ID.encode(), invocation_id.encode())
        here = asyncio.get_running_loop()
        receive, send = _from_elsewhere(connection.receive, here), _from_elsewhere(connection.send, here)
        within = {**scope, "headers": [*scope["headers"], header]}
        await self._loop.run(_call(self._streams.web_app, within, receive, send))


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def _from_elsewhere(
    call: Callable[..., Awaitable[Any]], loop: asyncio.AbstractEventLoop
) -> Callable[..., Awaitable[Any]]:
    """Return the same coroutine function for callers on another thread's loop; each call runs on this one."""

    async def run(arguments: tuple[Any, ...]) -> Any:
        return await call(*arguments)

    async def through(*arguments: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(arguments), loop))

    return through


async def _invoke(invoke: Invoke, invocation_id: str, exchange: Exchange) -> None:
    try:
        await invoke(invocation_id)
    except FunctionFailedError as error:  # it is in the log; a timeout has not reached the exchange yet
        exchange.fail(error)


async def _finish(serving: asyncio.Future[None], exchange: Exchange, what: str) -> None:
    """Wait for the end of the answer; log what broke it off, unless the function's own line did."""
    try:
        await serving
    except Exception as error:  # noqa: BLE001 # it is the app's: its generator's, or what cannot be serialised
        if exchange.response.done() and exchange.response.exception() is None:
            _LOG.error("%s: its response broke off: %s", what, failure_of(error).stack_trace)
