"""The API over HTTP, for any Python program: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://shop.example.com", function_key=key) as client:
        submitted = client.submit(handler="ship-order", input={"number": 7}, key="order-7")
        operation = client.wait(submitted.operation_id, timeout_seconds=60)

A submission always has a key, a generated one if need be, so that it is sent again without harm when there is
no answer. Waits between tries have full jitter and are never shorter than the answer's `Retry-After`.
"""

from typing import Final

from durable_retry_client.documents import DeadLetter, Operation, Problem, Submitted
from durable_retry_client.errors import ApiError, OperationFailed, RefusedError, UnreachableError
from durable_retry_client.flows import AwaitedCalls, BlockingCalls
from durable_retry_client.resources import Resources

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "DeadLetter",
    "Operation",
    "OperationFailed",
    "Problem",
    "RefusedError",
    "Submitted",
    "UnreachableError",
]
__version__: Final = "0.1.0"


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

    Raises:
        ValueError: `url` is none, or neither of `http` nor of `https`, or `function_key` is no key.
    """


class AsyncClient(Resources, AwaitedCalls):
    """The API, with calls to await.

        async with AsyncClient("http://localhost:7071") as client:
            operation = await client.wait(operation_id, timeout_seconds=60)

    Arguments, answers and errors are those of `Client`.
    """
