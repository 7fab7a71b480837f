"""HTTP streams: functions that take and return a web framework's own objects, a body in pieces.

An app that imports an extension such as `azurefunctions-extensions-http-fastapi` has its worker serve HTTP
itself: the host forwards each request there and also invokes the function, and the worker pairs the two by
the invocation id. The entry point of the runtime that onebox calls does not pair them, so this module does. A
request reaches the extension's web application without a second connection:

    server ─► web application ─► request ─┐            ┌─► response ─► web application ─► server
                                          └─ function ─┘

The functions run in the host's process or in a worker process. In a worker process each piece is a call over
the link, and the sender waits until the piece has been taken (see `remote` and `child`).

Source: `azure_functions_runtime.http_v2` and `handle_event.invocation_request`, which do this for the worker.
"""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from azure_functions_runtime import handle_event
from azure_functions_runtime.http_v2 import HttpV2Registry
from azure_functions_runtime.utils.constants import X_MS_INVOCATION_ID
from azure_functions_runtime.utils.executor import invocation_id_cv
from starlette.types import ASGIApp, Receive, Scope, Send

from onebox.worker.functions import HTTP_TRIGGER, Catalogue
from onebox.worker.runner import FunctionFailedError, failure_of

_LOG = logging.getLogger("onebox.functions")


@dataclass(frozen=True, slots=True)
class Channel:
    """What the web application needs of the web server to answer one request.

    Attributes:
        receive: Returns the next piece of the body.
        send: Sends a piece of the answer.
        arrived: Called when the web application has the request: the function can be invoked.
    """

    receive: Receive
    send: Send
    arrived: Callable[[], Awaitable[None]]


class Streams(Protocol):
    """The web application of streaming functions, here or in a worker process."""

    async def serve(self, invocation_id: str, what: str, scope: Scope, channel: Channel) -> None:
        """Answer a request with what the function of this invocation returns.

        An answer that is cut off is logged and not completed.

        Args:
            invocation_id: The id of the request and its function.
            what: The function's name in the log.
            scope: The request, as ASGI has it.
            channel: To the client.
        """
        ...

    def fail(self, invocation_id: str, error: FunctionFailedError) -> None:
        """Answer an error, unless the function has answered."""
        ...


class _Exchange:
    """One request and its response, which is set on one thread and read on another.

    Attributes:
        request: The framework's request; None until the web application has it.
        response: What the function returned or raised.
        arrived: Called when there is a request.
    """

    def __init__(self, arrived: Callable[[], Awaitable[None]]) -> None:
        self.request: Any = None
        self.response: Future[Any] = Future()
        self.arrived = arrived

    def answer(self, response: Any) -> None:
        """Set the response, unless the web application has given up."""
        if not self.response.done():
            self.response.set_result(response)

    def fail(self, error: BaseException) -> None:
        """Set an error as the response, unless the function has answered."""
        if not self.response.done():
            self.response.set_exception(error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Set an error of the function as the response, and raise it: an HTTPException is an answer."""
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise


class HttpStreams:
    """The extension's web application, and the functions behind it; on the loop of the functions.

    Args:
        extension: `azurefunctions.extensions.base`, which knows the extension that the app imported.
    """

    def __init__(self, extension: Any) -> None:
        self._synchronizer = extension.RequestTrackerMeta.get_synchronizer()
        self._exchanges: dict[str, _Exchange] = {}
        self._web_app = self._web_app_of(extension)

    def _web_app_of(self, extension: Any) -> ASGIApp:
        async def answer(request: Any) -> Any:
            exchange = self._exchanges[request.headers[X_MS_INVOCATION_ID]]
            exchange.request = request
            await exchange.arrived()
            return await asyncio.wrap_future(exchange.response)

        # The framework reads from the annotation what to pass.
        answer.__annotations__ = {"request": extension.RequestTrackerMeta.get_request_type()}
        app = importlib.import_module(extension.ModuleTrackerMeta.get_module()).WebApp()
        app.route(answer)
        web_app: ASGIApp = app.get_app()
        return web_app

    async def serve(self, invocation_id: str, what: str, scope: Scope, channel: Channel) -> None:
        """Answer a request; see `Streams.serve`."""
        exchange = self._exchanges[invocation_id] = _Exchange(channel.arrived)
        header = (X_MS_INVOCATION_ID.encode(), invocation_id.encode())
        within = {**scope, "headers": [*scope["headers"], header]}
        try:
            await self._web_app(within, channel.receive, channel.send)
        except Exception as error:  # noqa: BLE001 # the app's: from its generator, or from serialising its answer
            # An error of the function itself is logged with its run.
            if exchange.response.done() and exchange.response.exception() is None:
                frames = failure_of(error).stack_trace
                _LOG.error("%s: its response broke off", what, extra={"frames": frames})
        finally:
            del self._exchanges[invocation_id]
            exchange.fail(asyncio.CancelledError())

    def fail(self, invocation_id: str, error: FunctionFailedError) -> None:
        """Answer an error that has not reached the exchange, such as a timeout; see `Streams.fail`."""
        if (exchange := self._exchanges.get(invocation_id)) is not None:
            exchange.fail(error)

    def streamed(self, info: Any) -> Any:
        """Return a registered function that takes its request from its exchange and sets the response."""
        parameter = info.trigger_metadata["param_name"]
        run = self._coroutine(info.func, parameter) if info.is_async else self._plain(info.func, parameter)
        return info._replace(func=run, return_type=None)

    def _coroutine(self, function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        async def run(**arguments: Any) -> None:
            with self._taking(parameter, arguments) as (exchange, given):
                exchange.answer(await function(**given))

        return run

    def _plain(self, function: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        def run(**arguments: Any) -> None:
            with self._taking(parameter, arguments) as (exchange, given):
                exchange.answer(function(**given))

        return run

    @contextmanager
    def _taking(
        self, parameter: str, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[_Exchange, Mapping[str, Any]]]:
        """Replace the host's request by the framework's, with the route's parameters copied over."""
        exchange = self._exchanges[invocation_id_cv.get()]
        with exchange.failing():
            request = exchange.request  # set before the function was invoked
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
