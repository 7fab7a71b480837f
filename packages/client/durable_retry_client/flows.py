"""What the clients ask for, request by request, and how a method of both is described once.

`Client` and `AsyncClient` send what the same flows yield: a call blocks on one and is awaited on the other.

    @Method
    def get(self, operation_id: str) -> Flow[Operation]: ...

    client.get("op-1")               # an Operation
    await async_client.get("op-1")   # the same

The two overloads of `__get__` show a type checker both forms, with the parameters of the description.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote, urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from durable_retry_client.documents import Page
from durable_retry_client.errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")

_MAY_PASS: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 8.0
_MOST_WAIT_SECONDS: Final = 120.0
"""A longer `Retry-After` is left to the caller: the answer is raised."""

_PAGE_ITEMS: Final = 200


@dataclass(frozen=True)
class Request:
    """A request. `repeats`: whether it may arrive twice without harm."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, Any] | None = None
    body: Any = None
    headers: Mapping[str, str] | None = None
    repeats: bool = True


Answer = httpx.Response | httpx.RequestError
"""The result of the request that a flow yielded."""

Flow = Generator[Request | float, Answer, T]
"""Yields requests to send and seconds to pause, and returns T."""

Pages = Callable[[str], Flow[Page[T]]]
"""Makes the flow of the page that begins at a cursor; "" is the first one."""


class Flows:
    """The flows that methods of the clients are made of.

    Args:
        tries: The most tries of one request, at least 1.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries

    def _answer_of_success(self, request: Request, until: float = math.inf) -> Flow[httpx.Response]:
        """Send a request, again after failures that may pass, and return the answer of success.

        Args:
            until: When no further try begins, by the clock `time.monotonic`.

        Raises:
            RefusedError: The last answer is not a success.
            UnreachableError: The last try got no answer.
            TimeoutError: The next try would be too late.
        """
        number = 0
        while True:
            number += 1
            answer = yield request
            if isinstance(answer, httpx.Response) and answer.is_success:
                return answer
            if number < self._tries and _may_repeat(request, answer):
                seconds = _seconds_before_next_try(answer, number)
                if time.monotonic() + seconds > until:
                    raise TimeoutError(f"{request.method} {answer.request.url}: no answer of success in time")
                yield seconds
            elif isinstance(answer, httpx.Response):
                raise RefusedError(answer)
            else:
                raise UnreachableError(f"{request.method} {answer.request.url}: {answer!r}") from answer

    def _read(self, model: type[T], request: Request, until: float = math.inf) -> Flow[T]:
        """Send a request, and return the document of its answer."""
        return document_of(model, (yield from self._answer_of_success(request, until)))

    def _pages(self, model: type[Page[T]], path: str, filters: Mapping[str, Any]) -> Pages[T]:
        """Return the pages of a list."""
        query = {**filters, "limit": _PAGE_ITEMS}
        return lambda cursor: self._read(
            model, Request("GET", parts_of(path), query=query | ({"cursor": cursor} if cursor else {}))
        )


def document_of(model: type[T], answer: httpx.Response) -> T:
    """Read the document of an answer.

    Raises:
        RefusedError: It is none of the API.
    """
    try:
        return TypeAdapter(model).validate_json(answer.content)
    except ValidationError as error:
        raise RefusedError(answer) from error


def parts_of(path: str) -> tuple[str, ...]:
    """Return what stands between the slashes of a path."""
    return tuple(path.strip("/").split("/"))


def _may_repeat(request: Request, answer: Answer) -> bool:
    if _least_wait(answer) > _MOST_WAIT_SECONDS:
        return False
    if isinstance(answer, httpx.Response):
        # A 503 of the API says that nothing was started.
        return answer.status_code in _MAY_PASS and (
            request.repeats or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        )
    return request.repeats or isinstance(answer, httpx.ConnectError)


def _seconds_before_next_try(answer: Answer, number: int) -> float:
    """Return the seconds before the next try: full jitter on top of the answer's `Retry-After`."""
    growing = min(_FIRST_WAIT_SECONDS * 2 ** (number - 1), _LONGEST_WAIT_SECONDS)
    return _least_wait(answer) + random.uniform(0, growing)  # noqa: S311 - spreads clients


def _least_wait(answer: Answer) -> float:
    """Return the seconds that an answer's `Retry-After` asks for: a number, or an HTTP-date."""
    text = answer.headers.get("Retry-After", "") if isinstance(answer, httpx.Response) else ""
    try:
        return float(text) if text.isdecimal() else _seconds_until(parsedate_to_datetime(text))
    except (TypeError, ValueError):  # TypeError: Python 3.10 and older, for a text that is no date
        return 0.0


def _seconds_until(instant: datetime) -> float:
    return max(0.0, (instant - datetime.now(timezone.utc)).total_seconds())


_TIMEOUT_SECONDS: Final = 40.0
"""The longest pause of one request: longer than the longest `Prefer: wait`."""

_MOST_ANSWER_SECONDS: Final = 300.0
_MOST_ANSWER_BYTES: Final = 100 * 1024 * 1024
"""What serves the URL may be anything: it must not hold a program for ever, or fill its memory."""

_OF_TRANSFER: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


_KEY: Final = re.compile(r"[!-~]*")
"""The HTTP library refuses any other value, too, and its message shows the key."""


class _Incoming:
    """An answer as it comes, up to limits."""

    def __init__(self, head: httpx.Response) -> None:
        self._head, self._body = head, bytearray()
        self._until = time.monotonic() + _MOST_ANSWER_SECONDS

    def take(self, part: bytes) -> None:
        """Take a part of the body, decoded.

        Raises:
            httpx.ReadError: There is too much, or it takes too long.
        """
        self._body += part
        if len(self._body) > _MOST_ANSWER_BYTES:
            raise httpx.ReadError(
                f"the answer has over {_MOST_ANSWER_BYTES} bytes", request=self._head.request
            )
        if time.monotonic() > self._until:
            raise httpx.ReadError(
                f"the answer took over {_MOST_ANSWER_SECONDS} s", request=self._head.request
            )

    def whole(self) -> httpx.Response:
        """Return the answer with all of its body."""
        head = self._head
        return httpx.Response(
            head.status_code,
            headers=[pair for pair in head.headers.multi_items() if pair[0] not in _OF_TRANSFER],
            content=bytes(self._body),
            request=head.request,
            extensions=head.extensions,
        )


def _http_options(url: str, function_key: str | None) -> dict[str, Any]:
    """Return how httpx reaches the API.

    Raises:
        ValueError: It is no URL of an app, or the key no key; the message does not show that.
    """
    if function_key is not None and _KEY.fullmatch(function_key) is None:
        raise ValueError("the function key has a space, a line end or another character that no key has")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not the URL of an app, such as http://localhost:7071")
    is_tls = parts.scheme == "https"
    return {
        "base_url": url.rstrip("/") + ("" if parts.path.strip("/") else "/api"),
        "headers": {} if function_key is None else {"x-functions-key": function_key},
        "timeout": _TIMEOUT_SECONDS,
        # Without TLS nothing is verified: do not load the trusted certificates.
        "verify": is_tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "trust_env": is_tls,  # a proxy of `HTTP_PROXY` could read the function key
    }


def _http_arguments(request: Request) -> dict[str, Any]:
    """Return how httpx sends a request.

    Raises:
        ValueError: A part of its path is empty or climbs, which no encoding prevents, or the body has no JSON
            form.
    """
    if {"", ".", ".."} & set(request.path):
        raise ValueError(f"{'/'.join(request.path)!r} leads to another path")
    path = "/".join(quote(part, safe="") for part in request.path)
    body = {} if request.body is None else {"content-type": "application/json"}
    return {
        "method": request.method,
        "url": f"/{path}",
        "params": request.query,
        "content": None if request.body is None else _json_of(request.body),
        "headers": {**body, **(request.headers or {})},
    }


def _json_of(body: Any) -> bytes:
    """Return a body as JSON, models and dataclasses of it too.

    Raises:
        ValueError, TypeError: A value in it has no JSON form: NaN, bytes, a set, an iterator.
    """
    return json.dumps(body, allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return a value that `json` does not know as JSON."""
    if isinstance(value, (set, frozenset, bytes, bytearray, memoryview, Iterator)):
        raise TypeError(f"JSON has nothing for a value of type {type(value).__name__}")
    return dict(value) if isinstance(value, Mapping) else to_jsonable_python(value)


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

    def run_flow(self, flow: Flow[T]) -> T:
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
            with self._http.stream(**_http_arguments(request)) as head:
                incoming = _Incoming(head)
                for part in head.iter_bytes():
                    incoming.take(part)
                return incoming.whole()
        except httpx.RequestError as error:
            return error

    def read_pages(self, pages: Pages[T]) -> Iterator[T]:
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

    async def run_flow(self, flow: Flow[T]) -> T:
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
            async with self._http.stream(**_http_arguments(request)) as head:
                incoming = _Incoming(head)
                async for part in head.aiter_bytes():
                    incoming.take(part)
                return incoming.whole()
        except httpx.RequestError as error:
            return error

    async def read_pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        """Read the items of a list, each page when it is needed."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.run_flow(pages(cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor


class Method(Generic[P, T]):
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


class ListMethod(Generic[P, T]):
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
