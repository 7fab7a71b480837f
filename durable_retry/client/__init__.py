"""The API over HTTP, for any Python program: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://shop.example.com", function_key=key) as client:
        submitted = client.submit(handler="ship-order", input={"number": 7}, key="order-7")
        operation = client.wait(submitted.operation_id, timeout_seconds=60)

A submission always has a key, a generated one if need be, so that it is sent again without harm when there is
no answer. Waits between tries have full jitter and are never shorter than the answer's `Retry-After`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, Unpack, overload
from urllib.parse import quote, urlsplit

import httpx

from durable_retry.client import flows
from durable_retry.client.documents import (
    ApiError,
    OperationFailed,
    OperationFields,
    RefusedError,
    ReplayFields,
    Submitted,
    UnreachableError,
)
from durable_retry.client.resources import AsyncResources, Resources
from durable_retry.engine.operations.document import OperationDocument as Operation
from durable_retry.handler_registry import OperationFunction

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Operation",
    "OperationFailed",
    "RefusedError",
    "Submitted",
    "UnreachableError",
]

_TIMEOUT_SECONDS: Final = 40.0
"""The time limit of one request: longer than the longest `Prefer: wait`."""


def _base_url(url: str) -> str:
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/api")


def _http_options(url: str, function_key: str | None) -> dict[str, Any]:
    headers = {} if function_key is None else {"x-functions-key": function_key}
    return {"base_url": _base_url(url), "headers": headers, "timeout": _TIMEOUT_SECONDS}


def _http_arguments(request: flows.Request) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in request.path)
    return {
        "method": request.method,
        "url": f"/{path}",
        "params": request.query,
        "json": request.body,
        "headers": request.headers,
    }


class Client(Resources):
    """The API, with calls that block.

        with Client("http://localhost:7071") as client:
            submitted = client.submit(handler="ship-order", input={"number": 7}, key="order-7")

    Args:
        url: The URL of the app, such as `http://localhost:7071`; with a path where a route prefix was chosen,
            such as `https://shop.example.com/api/retries`.
        function_key: If the app needs one.
        tries: The most tries of one request, at least 1.
        transport: For tests.
        sleep: Pauses for seconds; for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        function_key: str | None = None,
        tries: int = 5,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = httpx.Client(transport=transport, **_http_options(url, function_key))
        self._tries = tries
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @overload
    def submit(
        self, function: OperationFunction[Any, ..., Any], /, *args: Any, key: str, **kwargs: Any
    ) -> Submitted: ...
    @overload
    def submit[**P](
        self, function: OperationFunction[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Submitted: ...
    @overload
    def submit(self, /, *, wait_seconds: float = 0, **operation: Unpack[OperationFields]) -> Submitted: ...
    def submit(self, function: Any = None, /, *args: Any, **fields: Any) -> Submitted:
        """Submit an operation.

            client.submit(charge, "o-1", amount=5, key="charge-o-1")

        Args:
            function: Declared by `operation`, with its arguments; None for a request.
            args: For the function.
            fields: Keyword arguments of the function, and `OperationFields`. Without `key` one is generated.
                `wait_seconds`: how long the API may wait for its end before it answers, at most 30.

        Raises:
            RefusedError: It is not valid, or the key belongs to another request (422).
            UnreachableError: There was no answer; submit it again under the same key.
            InvalidInputError: The arguments are not those of the function.
            LookupError: The function is not declared.
        """
        return self._run_flow(flows.submit(self._tries, function, args, fields))

    def get(self, operation_id: str) -> Operation:
        """Return an operation.

        Raises:
            RefusedError: There is none of this id (404).
            UnreachableError: There was no answer.
        """
        return self._run_flow(flows.get(self._tries, operation_id))

    def wait(self, operation_id: str, *, timeout_seconds: float) -> Operation:
        """Wait until an operation has succeeded, looking every 0.25 s at first and every 5 s later.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            TimeoutError: It has not ended in this time, and keeps running.
            ApiError: As `get`.
        """
        return self._run_flow(flows.wait(self._tries, operation_id, timeout_seconds))

    def cancel(self, operation_id: str) -> None:
        """Ask an operation to end; an attempt under way ends first.

        Raises:
            RefusedError: It has ended (409), or there is none of this id (404).
            UnreachableError: There was no answer.
        """
        self._run_flow(flows.steer(self._tries, operation_id, "cancel"))

    def retry_now(self, operation_id: str) -> None:
        """End the present wait of an operation; errors as `cancel`, with 409 when it is not waiting."""
        self._run_flow(flows.steer(self._tries, operation_id, "retry-now"))

    def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> str:
        """Replay a dead letter, and return the operation's id.

        It is not sent again when its answer is lost: the dead letter shows whether it was replayed.

        Raises:
            RefusedError: It was replayed or archived (409), or there is none of this id (404).
            UnreachableError: There was no answer.
        """
        return self._run_flow(flows.replay(self._tries, dead_letter_id, replay))

    def _run_flow[T](self, flow: flows.Flow[T]) -> T:
        answer: flows.Answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = None
            if isinstance(step, float | int):
                self._sleep(step)
                continue
            try:
                answer = self._http.request(**_http_arguments(step))
            except httpx.TransportError as error:
                answer = error


class AsyncClient(AsyncResources):
    """The API, with calls to await.

        async with AsyncClient("http://localhost:7071") as client:
            operation = await client.wait(operation_id, timeout_seconds=60)

    Arguments, answers and errors are those of `Client`.
    """

    def __init__(
        self,
        url: str,
        *,
        function_key: str | None = None,
        tries: int = 5,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **_http_options(url, function_key))
        self._tries = tries
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @overload
    async def submit(
        self, function: OperationFunction[Any, ..., Any], /, *args: Any, key: str, **kwargs: Any
    ) -> Submitted: ...
    @overload
    async def submit[**P](
        self, function: OperationFunction[Any, P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Submitted: ...
    @overload
    async def submit(
        self, /, *, wait_seconds: float = 0, **operation: Unpack[OperationFields]
    ) -> Submitted: ...
    async def submit(self, function: Any = None, /, *args: Any, **fields: Any) -> Submitted:
        """See `Client.submit`."""
        return await self._run_flow(flows.submit(self._tries, function, args, fields))

    async def get(self, operation_id: str) -> Operation:
        """See `Client.get`."""
        return await self._run_flow(flows.get(self._tries, operation_id))

    async def wait(self, operation_id: str, *, timeout_seconds: float) -> Operation:
        """See `Client.wait`."""
        return await self._run_flow(flows.wait(self._tries, operation_id, timeout_seconds))

    async def cancel(self, operation_id: str) -> None:
        """See `Client.cancel`."""
        await self._run_flow(flows.steer(self._tries, operation_id, "cancel"))

    async def retry_now(self, operation_id: str) -> None:
        """See `Client.retry_now`."""
        await self._run_flow(flows.steer(self._tries, operation_id, "retry-now"))

    async def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> str:
        """See `Client.replay`."""
        return await self._run_flow(flows.replay(self._tries, dead_letter_id, replay))

    async def _run_flow[T](self, flow: flows.Flow[T]) -> T:
        answer: flows.Answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = None
            if isinstance(step, float | int):
                await self._sleep(step)
                continue
            try:
                answer = await self._http.request(**_http_arguments(step))
            except httpx.TransportError as error:
                answer = error
