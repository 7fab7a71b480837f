"""The answers of functions that stream HTTP; see `onebox.worker.streams`."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onebox.http.messages import BodyTooLargeError
from onebox.worker.runner import FunctionFailedError
from onebox.worker.streams import Channel, Streams

# Runs the function under an invocation id, its outputs too.
Invoke = Callable[[str], Awaitable[None]]


class _Connection:
    """A request's ASGI channel that records whether the body goes over the limit and an answer has begun."""

    def __init__(self, receive: Receive, send: Send, headers: Mapping[str, str]) -> None:
        self._receive = receive
        self._send = send
        self._headers = headers
        self.answering = False
        self.overrun = False

    async def receive(self) -> Message:
        """Pass on the next piece; a body over the limit looks like a client that is gone."""
        try:
            return await self._receive()
        except BodyTooLargeError:
            self.overrun = True
            return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass on a piece of the answer; to a body over the limit none is begun, that is refused."""
        if self.overrun and not self.answering:
            return
        if message["type"] == "http.response.start":
            self.answering = True
            for name, value in self._headers.items():
                MutableHeaders(scope=message).setdefault(name, value)
        await self._send(message)
        # A client that reads as fast as the app writes makes nobody wait, and others want to be served, too.
        await asyncio.sleep(0)

    async def refuse(self, status_code: int) -> None:
        """Answer without a body, unless an answer has begun."""
        if not self.answering:
            self.answering = True
            headers = [(b"content-length", b"0")]
            await self._send({"type": "http.response.start", "status": status_code, "headers": headers})
            await self._send({"type": "http.response.body", "body": b""})


class StreamedAnswers:
    """Makes the answers of streaming functions.

    Args:
        streams: The web application in front of the functions.
        headers: host.json's customHeaders.
    """

    def __init__(self, streams: Streams, headers: Mapping[str, str]) -> None:
        self._streams = streams
        self._headers = headers

    def answer(self, invoke: Invoke, what: str) -> ASGIApp:
        """Return what answers one request.

        Args:
            invoke: Runs the function.
            what: Names the function in the log.
        """

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            connection = _Connection(receive, send, self._headers)
            try:
                await self._exchange(scope, connection, invoke, what)
            except asyncio.CancelledError:  # the server stops and waits no longer; the task ends here anyway
                await connection.refuse(503)
                return
            await connection.refuse(413 if connection.overrun else 500)

        return app

    async def _exchange(self, scope: Scope, connection: _Connection, invoke: Invoke, what: str) -> None:
        invocation_id = str(uuid.uuid4())
        request = asyncio.Event()

        async def arrived() -> None:
            request.set()

        channel = Channel(connection.receive, connection.send, arrived)
        serving = asyncio.ensure_future(self._streams.serve(invocation_id, what, scope, channel))
        arriving = asyncio.ensure_future(request.wait())
        try:
            await asyncio.wait([serving, arriving], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                # Not awaited with the answer: a client that hangs up does not stop a function half way.
                await asyncio.shield(asyncio.ensure_future(self._invoke(invoke, invocation_id)))
            await serving
        finally:
            arriving.cancel()
            serving.cancel()

    async def _invoke(self, invoke: Invoke, invocation_id: str) -> None:
        try:
            await invoke(invocation_id)
        except FunctionFailedError as error:  # it is in the log; a timeout has not reached the answer yet
            self._streams.fail(invocation_id, error)
