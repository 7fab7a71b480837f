"""HTTP streams: functions that take and return a web framework's own objects, body by piece.

An app that imports an extension such as `azurefunctions-extensions-http-fastapi` has its worker serve HTTP
itself: the host forwards each request there, invokes the function beside it, and the worker pairs the two by
the invocation id. The runtime's entry that onebox calls leaves the pairing out, so it stands here. Worker and
host are one process: a request goes into the extension's web application without a second connection.

    server ─► web application ─► request ─┐            ┌─► response ─► web application ─► server
                                          └─ function ─┘

Source: `azure_functions_runtime.http_v2` and `handle_event.invocation_request`, which do this for the worker.
"""

import asyncio
import importlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from azure_functions_runtime import handle_event
from azure_functions_runtime.http_v2 import HttpV2Registry
from azure_functions_runtime.utils.constants import X_MS_INVOCATION_ID
from azure_functions_runtime.utils.executor import invocation_id_cv
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onebox.worker.functions import HTTP_TRIGGER, Catalogue
from onebox.worker.loops import WorkerLoop
from onebox.worker.runner import FunctionFailedError, failure_of

_LOG = logging.getLogger("onebox.functions")

# Runs the function under an invocation id, its outputs too.
Invoke = Callable[[str], Awaitable[None]]


class Exchange:
    """One request and the response to it; both are set on one thread and read on another.

    Attributes:
        request: The framework's request, once the web application has it.
        response: What the function returned or raised.
    """

    def __init__(self) -> None:
        self.request: Future[Any] = Future()
        self.response: Future[Any] = Future()

    def fail(self, error: BaseException) -> None:
        """Let the web application answer an error, unless the function has answered."""
        if not self.response.done():
            self.response.set_exception(error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Hand an error of the function to the web application too: an HTTPException is an answer."""
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise


class HttpStreams:
    """The extension's web application, and the functions behind it.

    Attributes:
        web_app: Answers a request whose invocation has been opened; on the loop of the functions.
    """

    def __init__(self, extension: Any) -> None:
        """Make the web application.

        Args:
            extension: `azurefunctions.extensions.base`, which knows the extension that the app imported.
        """
        self._synchronizer = extension.RequestTrackerMeta.get_synchronizer()
        self._exchanges: dict[str, Exchange] = {}
        self.web_app = self._web_app(extension)

    def _web_app(self, extension: Any) -> ASGIApp:
        async def answer(request: Any) -> Any:
            exchange = self._exchanges[request.headers[X_MS_INVOCATION_ID]]
            exchange.request.set_result(request)
            return await asyncio.wrap_future(exchange.response)

        # The framework reads from the annotation what to pass.
        answer.__annotations__ = {"request": extension.RequestTrackerMeta.get_request_type()}
        app = importlib.import_module(extension.ModuleTrackerMeta.get_module()).WebApp()
        app.route(answer)
        web_app: ASGIApp = app.get_app()
        return web_app

    @contextmanager
    def open(self, invocation_id: str) -> Iterator[Exchange]:
        """Expect a request that carries this id in its header, and a function that runs under it."""
        exchange = self._exchanges[invocation_id] = Exchange()
        try:
            yield exchange
        finally:
            del self._exchanges[invocation_id]
            exchange.fail(asyncio.CancelledError())

    def streamed(self, info: Any) -> Any:
        """Return a registered function that takes its request from its exchange and answers there."""
        parameter = info.trigger_metadata["param_name"]
        run = self._coroutine(info.func, parameter) if info.is_async else self._plain(info.func, parameter)
        return info._replace(func=run, return_type=None)

    def _coroutine(self, function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        async def run(**arguments: Any) -> None:
            with self._taking(parameter, arguments) as (exchange, given):
                exchange.response.set_result(await function(**given))

        return run

    def _plain(self, function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        def run(**arguments: Any) -> None:
            with self._taking(parameter, arguments) as (exchange, given):
                exchange.response.set_result(function(**given))

        return run

    @contextmanager
    def _taking(
        self, parameter: str, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[Exchange, Mapping[str, Any]]]:
        """Put the framework's request in place of the host's, which knows the route's parameters."""
        exchange = self._exchanges[invocation_id_cv.get()]
        with exchange.failing():
            request = exchange.request.result(timeout=0)  # it came before the function was invoked
            self._synchronizer.sync_route_params(request, arguments[parameter].route_params)
            yield exchange, {**arguments, parameter: request}


def http_streams(catalogue: Catalogue) -> HttpStreams | None:
    """Let the loaded app's HTTP functions stream; None when it imports no extension for that.

    As in the worker, it is all of the app's HTTP functions or none.
    """
    if not HttpV2Registry.http_v2_enabled():
        return None
    streams = HttpStreams(HttpV2Registry.ext_base())
    registered = handle_event._functions._functions  # noqa: SLF001 # the runtime has no public way to it
    for each in catalogue.with_trigger(HTTP_TRIGGER):
        registered[each.function_id] = streams.streamed(registered[each.function_id])
    return streams


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
