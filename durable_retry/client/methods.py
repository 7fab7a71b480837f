"""How a method of both clients is described once: a call blocks on `Client` and is awaited on `AsyncClient`.

    @Method
    def get(self, operation_id: str) -> Flow[OperationDocument]: ...

    client.get("op-1")               # an OperationDocument
    await async_client.get("op-1")   # the same

The two overloads of `__get__` show a type checker both forms, with the parameters of the description.
"""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import MethodType
from typing import Any, Concatenate, Final, Self, overload
from urllib.parse import quote, urlsplit

import httpx

from durable_retry.client.flows import Answer, Flow, Flows, Pages, Request
from durable_retry.engine.base.foreign import plain_json

_TIMEOUT_SECONDS: Final = 40.0
"""The time limit of one request: longer than the longest `Prefer: wait`."""


def _http_options(url: str, function_key: str | None) -> dict[str, Any]:
    base_url = url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/api")
    headers = {} if function_key is None else {"x-functions-key": function_key}
    return {"base_url": base_url, "headers": headers, "timeout": _TIMEOUT_SECONDS}


def _http_arguments(request: Request) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in request.path)
    return {
        "method": request.method,
        "url": f"/{path}",
        "params": request.query,
        "json": plain_json(request.body),
        "headers": request.headers,
    }


class BlockingCalls(Flows):
    """Sends what flows ask for with calls that block."""

    def __init__(
        self,
        url: str,
        *,
        function_key: str | None = None,
        tries: int = 5,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(tries)
        self._http = httpx.Client(transport=transport, **_http_options(url, function_key))
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run_flow[T](self, flow: Flow[T]) -> T:
        """Send what a flow asks for, and return its result."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Request):
                    step = flow.send(self._send(step))
                else:
                    self._sleep(step)
                    step = next(flow)
        except StopIteration as done:
            result: T = done.value
            return result

    def _send(self, request: Request) -> Answer:
        try:
            return self._http.request(**_http_arguments(request))
        except httpx.TransportError as error:
            return error

    def read_pages[T](self, pages: Pages[T]) -> Iterator[T]:
        """Read the items of a list, each page when it is needed."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.run_flow(pages(cursor))
            yield from page.items
            cursor = page.next_cursor


class AwaitedCalls(Flows):
    """Sends what flows ask for with calls to await."""

    def __init__(
        self,
        url: str,
        *,
        function_key: str | None = None,
        tries: int = 5,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(tries)
        self._http = httpx.AsyncClient(transport=transport, **_http_options(url, function_key))
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run_flow[T](self, flow: Flow[T]) -> T:
        """Send what a flow asks for, and return its result."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Request):
                    step = flow.send(await self._send(step))
                else:
                    await self._sleep(step)
                    step = next(flow)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _send(self, request: Request) -> Answer:
        try:
            return await self._http.request(**_http_arguments(request))
        except httpx.TransportError as error:
            return error

    async def read_pages[T](self, pages: Pages[T]) -> AsyncIterator[T]:
        """Read the items of a list, each page when it is needed."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.run_flow(pages(cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor


class Method[**P, T]:
    """A method that both clients have; the function below describes it by its flow."""

    def __init__(self, described: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        @functools.wraps(described)
        def call(client: BlockingCalls | AwaitedCalls, *args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run_flow(described(client, *args, **kwargs))

        self._call = call

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Flow[T]]: ...
    @overload
    def __get__(self, client: BlockingCalls, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AwaitedCalls, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: BlockingCalls | AwaitedCalls | None, owner: type) -> Callable[..., Any]:
        return self._call if client is None else MethodType(self._call, client)


class ListMethod[**P, T]:
    """A method that both clients have and that reads a list; the function below describes its pages."""

    def __init__(self, described: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        @functools.wraps(described)
        def call(client: BlockingCalls | AwaitedCalls, *args: P.args, **kwargs: P.kwargs) -> Any:
            return client.read_pages(described(client, *args, **kwargs))

        self._call = call

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Pages[T]]: ...
    @overload
    def __get__(self, client: BlockingCalls, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AwaitedCalls, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: BlockingCalls | AwaitedCalls | None, owner: type) -> Callable[..., Any]:
        return self._call if client is None else MethodType(self._call, client)
