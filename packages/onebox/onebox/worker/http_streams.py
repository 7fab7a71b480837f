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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from azure_functions_runtime import handle_event
from azure_functions_runtime.http_v2 import HttpV2Registry
from azure_functions_runtime.utils.constants import X_MS_INVOCATION_ID
from azure_functions_runtime.utils.executor import invocation_id_cv
from starlette.types import ASGIApp

from onebox.worker.functions import HTTP_TRIGGER, Catalogue


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
