"""The API over HTTP, for any Python program: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://shop.example.com", function_key=key) as client:
        submitted = client.submit(handler="ship-order", input={"number": 7}, key="order-7")
        operation = client.wait(submitted.operation_id, timeout_seconds=60)

A submission always has a key, a generated one if need be, so that it is sent again without harm when there is
no answer. Waits between tries have full jitter and are never shorter than the answer's `Retry-After`.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self, Unpack
from urllib.parse import quote, urlsplit

import httpx

from durable_retry import clock
from durable_retry.client.documents import (
    ApiError,
    OperationFailed,
    OperationFields,
    RefusedError,
    ReplayFields,
    Submitted,
    UnreachableError,
    operation_document,
)
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.dead_letters.document import StartedReplay
from durable_retry.engine.operations.document import AcceptedOperation
from durable_retry.engine.operations.document import OperationDocument as Operation
from durable_retry.engine.retry.retry_after import parse_retry_after

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

_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 8.0
_MOST_WAIT_SECONDS: Final = 120.0
"""A longer `Retry-After` is left to the caller: the answer is raised."""

_FIRST_LOOK_SECONDS: Final = 0.25
_LAST_LOOK_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 40.0
"""The time limit of one request: longer than the longest `Prefer: wait`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request. `repeats`: whether it does no harm when it arrives twice."""

    method: str
    path: tuple[str, ...]
    body: Any = None
    headers: Mapping[str, str] | None = None
    repeats: bool = True


type _Answer = httpx.Response | httpx.TransportError | None
"""The result of the request that a flow yielded; None after a pause."""

type _Flow[T] = Generator[_Request | float, _Answer, T]
"""Yields requests to send and seconds to pause, and returns T. Both clients drive the same flows."""


def _answer_of_success(request: _Request, tries: int) -> _Flow[httpx.Response]:
    """Send a request, again after failures that may pass, and return the answer of success.

    Raises:
        RefusedError: The last answer is not a success.
        UnreachableError: The last try got no answer.
    """
    answer: _Answer = None
    for number in range(1, tries + 1):
        answer = yield request
        if isinstance(answer, httpx.Response) and answer.is_success:
            return answer
        if not _may_repeat(request, answer) or number == tries:
            break
        yield _seconds_before_next_try(answer, number)
    if isinstance(answer, httpx.Response):
        raise RefusedError(answer)
    raise UnreachableError(f"{request.method} /{'/'.join(request.path)}: {answer!r}") from answer


def _may_repeat(request: _Request, answer: _Answer) -> bool:
    if _least_wait(answer) > _MOST_WAIT_SECONDS:
        return False
    if isinstance(answer, httpx.Response):
        # A 503 of the API says that nothing was started.
        return answer.status_code in _AGAIN and (
            request.repeats or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        )
    return request.repeats or isinstance(answer, httpx.ConnectError)


def _seconds_before_next_try(answer: _Answer, number: int) -> float:
    """Return the seconds before the next try: full jitter over what was asked for."""
    growing = min(_FIRST_WAIT_SECONDS * 2 ** (number - 1), _LONGEST_WAIT_SECONDS)
    return _least_wait(answer) + random.uniform(0, growing)  # noqa: S311 - spreads clients


def _least_wait(answer: _Answer) -> float:
    """Return the seconds that an answer's `Retry-After` asks for."""
    if not isinstance(answer, httpx.Response):
        return 0.0
    hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
    return 0.0 if hint is None else hint.delay_seconds


def _submit_flow(tries: int, wait_seconds: float, document: dict[str, Any]) -> _Flow[Submitted]:
    document.setdefault("key", f"client-{uuid.uuid4()}")
    headers = {"Prefer": f"wait={wait_seconds:.0f}"} if wait_seconds > 0 else None
    request = _Request(method="POST", path=("operations",), body=document, headers=headers)
    answer = yield from _answer_of_success(request, tries)
    is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
    if answer.status_code == HTTPStatus.ACCEPTED:
        accepted = AcceptedOperation.model_validate_json(answer.content)
        return Submitted(accepted.operation_id, accepted.key, accepted.status, is_replayed, None)
    ended = Operation.model_validate_json(answer.content)
    return Submitted(ended.operation_id, ended.key, ended.status, is_replayed, ended)


def _status_flow(tries: int, operation_id: str) -> _Flow[Operation]:
    request = _Request(method="GET", path=("operations", operation_id))
    answer = yield from _answer_of_success(request, tries)
    return Operation.model_validate_json(answer.content)


def _wait_flow(tries: int, operation_id: str, timeout_seconds: float) -> _Flow[Operation]:
    until = clock.monotonic_seconds() + timeout_seconds
    look_seconds = _FIRST_LOOK_SECONDS
    while not (operation := (yield from _status_flow(tries, operation_id))).is_finished:
        left = until - clock.monotonic_seconds()
        if left <= 0:
            raise TimeoutError(f"{operation_id} is {operation.status} after {timeout_seconds} s")
        yield min(look_seconds, left)
        look_seconds = min(look_seconds * 1.5, _LAST_LOOK_SECONDS)
    if operation.status is not OperationState.SUCCEEDED:
        raise OperationFailed(operation.to_json())
    return operation


def _steer_flow(tries: int, operation_id: str, action: str) -> _Flow[None]:
    yield from _answer_of_success(_Request(method="POST", path=("operations", operation_id, action)), tries)


def _replay_flow(tries: int, dead_letter_id: str, document: Mapping[str, Any]) -> _Flow[str]:
    path = ("dead-letters", dead_letter_id, "replay")
    answer = yield from _answer_of_success(
        _Request(method="POST", path=path, body=document, repeats=False), tries
    )
    return StartedReplay.model_validate_json(answer.content).operation_id


def _base_url(url: str) -> str:
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/api")


def _http_options(url: str, function_key: str | None) -> dict[str, Any]:
    headers = {} if function_key is None else {"x-functions-key": function_key}
    return {"base_url": _base_url(url), "headers": headers, "timeout": _TIMEOUT_SECONDS}


def _http_arguments(request: _Request) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in request.path)
    return {"method": request.method, "url": f"/{path}", "json": request.body, "headers": request.headers}


class Client:
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

    def submit(self, *, wait_seconds: float = 0, **operation: Unpack[OperationFields]) -> Submitted:
        """Submit an operation.

        Args:
            wait_seconds: How long the API may wait for its end before it answers, at most 30.
            operation: See `OperationFields`. Without `key` one is generated.

        Raises:
            RefusedError: It is not valid, or the key belongs to another request (422).
            UnreachableError: There was no answer; submit it again under the same key.
        """
        return self._run_flow(_submit_flow(self._tries, wait_seconds, operation_document(operation)))

    def get(self, operation_id: str) -> Operation:
        """Return an operation.

        Raises:
            RefusedError: There is none of this id (404).
            UnreachableError: There was no answer.
        """
        return self._run_flow(_status_flow(self._tries, operation_id))

    def wait(self, operation_id: str, *, timeout_seconds: float) -> Operation:
        """Wait until an operation has succeeded, looking every 0.25 s at first and every 5 s later.

        Raises:
            OperationFailed: It is a dead letter, or was cancelled.
            TimeoutError: It has not ended in this time, and keeps running.
            ApiError: As `get`.
        """
        return self._run_flow(_wait_flow(self._tries, operation_id, timeout_seconds))

    def cancel(self, operation_id: str) -> None:
        """Ask an operation to end; an attempt under way ends first.

        Raises:
            RefusedError: It has ended (409), or there is none of this id (404).
            UnreachableError: There was no answer.
        """
        self._run_flow(_steer_flow(self._tries, operation_id, "cancel"))

    def retry_now(self, operation_id: str) -> None:
        """End the present wait of an operation; errors as `cancel`, with 409 when it is not waiting."""
        self._run_flow(_steer_flow(self._tries, operation_id, "retry-now"))

    def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> str:
        """Replay a dead letter, and return the operation's id.

        It is not sent again when its answer is lost: the dead letter shows whether it was replayed.

        Raises:
            RefusedError: It was replayed or archived (409), or there is none of this id (404).
            UnreachableError: There was no answer.
        """
        return self._run_flow(_replay_flow(self._tries, dead_letter_id, replay))

    def _run_flow[T](self, flow: _Flow[T]) -> T:
        answer: _Answer = None
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


class AsyncClient:
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

    async def submit(self, *, wait_seconds: float = 0, **operation: Unpack[OperationFields]) -> Submitted:
        """See `Client.submit`."""
        return await self._run_flow(_submit_flow(self._tries, wait_seconds, operation_document(operation)))

    async def get(self, operation_id: str) -> Operation:
        """See `Client.get`."""
        return await self._run_flow(_status_flow(self._tries, operation_id))

    async def wait(self, operation_id: str, *, timeout_seconds: float) -> Operation:
        """See `Client.wait`."""
        return await self._run_flow(_wait_flow(self._tries, operation_id, timeout_seconds))

    async def cancel(self, operation_id: str) -> None:
        """See `Client.cancel`."""
        await self._run_flow(_steer_flow(self._tries, operation_id, "cancel"))

    async def retry_now(self, operation_id: str) -> None:
        """See `Client.retry_now`."""
        await self._run_flow(_steer_flow(self._tries, operation_id, "retry-now"))

    async def replay(self, dead_letter_id: str, **replay: Unpack[ReplayFields]) -> str:
        """See `Client.replay`."""
        return await self._run_flow(_replay_flow(self._tries, dead_letter_id, replay))

    async def _run_flow[T](self, flow: _Flow[T]) -> T:
        answer: _Answer = None
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
