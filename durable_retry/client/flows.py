"""What the client asks for, request by request. `Client` and `AsyncClient` send what the same flows yield."""

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx
from pydantic import TypeAdapter

from durable_retry import clock
from durable_retry.client.documents import RefusedError, UnreachableError
from durable_retry.engine.base.answers import Page
from durable_retry.engine.retry.retry_after import parse_retry_after

_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 8.0
_MOST_WAIT_SECONDS: Final = 120.0
"""A longer `Retry-After` is left to the caller: the answer is raised."""

_PAGE_ITEMS: Final = 200


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `repeats`: whether it does no harm when it arrives twice."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, Any] | None = None
    body: Any = None
    headers: Mapping[str, str] | None = None
    repeats: bool = True


type Answer = httpx.Response | httpx.TransportError
"""The result of the request that a flow yielded."""

type Flow[T] = Generator[Request | float, Answer, T]
"""Yields requests to send and seconds to pause, and returns T."""

type Pages[T] = Callable[[str], Flow[Page[T]]]
"""Makes the flow of the page that begins at a cursor; "" is the first one."""


class Flows:
    """The flows that methods of the clients are made of.

    Args:
        tries: The most tries of one request, at least 1.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries

    def _answer_of_success(self, request: Request) -> Flow[httpx.Response]:
        """Send a request, again after failures that may pass, and return the answer of success.

        Raises:
            RefusedError: The last answer is not a success.
            UnreachableError: The last try got no answer.
        """
        number = 0
        while True:
            number += 1
            answer = yield request
            if isinstance(answer, httpx.Response) and answer.is_success:
                return answer
            if number < self._tries and _may_repeat(request, answer):
                yield _seconds_before_next_try(answer, number)
            elif isinstance(answer, httpx.Response):
                raise RefusedError(answer)
            else:
                raise UnreachableError(f"{request.method} {answer.request.url}: {answer!r}") from answer

    def _read[T](self, model: type[T], request: Request) -> Flow[T]:
        """Send a request, and return the document of its answer."""
        answer = yield from self._answer_of_success(request)
        return TypeAdapter(model).validate_json(answer.content)

    def _pages[T](self, model: type[Page[T]], path: str, filters: Mapping[str, Any]) -> Pages[T]:
        """Return the pages of a list."""
        query = {**filters, "limit": _PAGE_ITEMS}
        parts = tuple(path.strip("/").split("/"))
        return lambda cursor: self._read(
            model, Request("GET", parts, query=query | ({"cursor": cursor} if cursor else {}))
        )


def _may_repeat(request: Request, answer: Answer) -> bool:
    if _least_wait(answer) > _MOST_WAIT_SECONDS:
        return False
    if isinstance(answer, httpx.Response):
        # A 503 of the API says that nothing was started.
        return answer.status_code in _AGAIN and (
            request.repeats or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        )
    return request.repeats or isinstance(answer, httpx.ConnectError)


def _seconds_before_next_try(answer: Answer, number: int) -> float:
    """Return the seconds before the next try: full jitter over what was asked for."""
    growing = min(_FIRST_WAIT_SECONDS * 2 ** (number - 1), _LONGEST_WAIT_SECONDS)
    return _least_wait(answer) + random.uniform(0, growing)  # noqa: S311 - spreads clients


def _least_wait(answer: Answer) -> float:
    """Return the seconds that an answer's `Retry-After` asks for."""
    if not isinstance(answer, httpx.Response):
        return 0.0
    hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
    return 0.0 if hint is None else hint.delay_seconds
