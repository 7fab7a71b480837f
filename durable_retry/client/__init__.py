"""The API over HTTP, for any Python program: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://shop.example.com", function_key=key) as client:
        submitted = client.submit(handler="ship-order", input={"number": 7}, key="order-7")
        operation = client.wait(submitted.operation_id, timeout_seconds=60)

A submission always has a key, a generated one if need be, so that it is sent again without harm when there is
no answer. Waits between tries have full jitter and are never shorter than the answer's `Retry-After`.
"""

from typing import Any, Unpack, overload

from durable_retry.client.documents import (
    ApiError,
    OperationFailed,
    OperationFields,
    RefusedError,
    Submitted,
    UnreachableError,
)
from durable_retry.client.flows import AwaitedCalls, BlockingCalls
from durable_retry.client.resources import Resources
from durable_retry.engine.operations.status import OperationDocument as Operation
from durable_retry.handlers.registry import OperationFunction

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


class Client(Resources, BlockingCalls):
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
        return self.run_flow(self._submit(function, args, fields))


class AsyncClient(Resources, AwaitedCalls):
    """The API, with calls to await.

        async with AsyncClient("http://localhost:7071") as client:
            operation = await client.wait(operation_id, timeout_seconds=60)

    Arguments, answers and errors are those of `Client`.
    """

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
        return await self.run_flow(self._submit(function, args, fields))
