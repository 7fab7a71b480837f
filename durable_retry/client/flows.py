"""What the client asks for, request by request. `Client` and `AsyncClient` send what the same flows yield."""

import random
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx
from pydantic import TypeAdapter

from durable_retry import clock
from durable_retry.client.documents import (
    RefusedError,
    Submitted,
    UnreachableError,
    operation_document,
)
from durable_retry.engine.base.answers import Page
from durable_retry.engine.operations.document import AcceptedOperation
from durable_retry.engine.operations.document import OperationDocument as Operation
from durable_retry.engine.retry.retry_after import parse_retry_after
from durable_retry.handler_registry import Function

_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 8.0
_MOST_WAIT_SECONDS: Final = 120.0
"""A longer `Retry-After` is left to the caller: the answer is raised."""

_PAGE_ITEMS: Final = 200

_FIRST_LOOK_SECONDS: Final = 0.25
_LAST_LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `repeats`: whether it does no harm when it arrives twice."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, Any] | None = None
    body: Any = None
    headers: Mapping[str, str] | None = None
    repeats: bool = True


type Answer = httpx.Response | httpx.TransportError | None
"""The result of the request that a flow yielded; None after a pause."""

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
        answer: Answer = None
        for number in range(1, self._tries + 1):
            answer = yield request
            if isinstance(answer, httpx.Response) and answer.is_success:
                return answer
            if not _may_repeat(request, answer) or number == self._tries:
                break
            yield _seconds_before_next_try(answer, number)
        if isinstance(answer, httpx.Response):
            raise RefusedError(answer)
        raise UnreachableError(f"{request.method} /{'/'.join(request.path)}: {answer!r}") from answer

    def _read[T](self, model: type[T], *path: str, **query: Any) -> Flow[T]:
        """Return a document of the API."""
        answer = yield from self._answer_of_success(Request(method="GET", path=path, query=query))
        return TypeAdapter(model).validate_json(answer.content)

    def _pages[T](self, model: type[Page[T]], path: tuple[str, ...], filters: Mapping[str, Any]) -> Pages[T]:
        """Return the pages of a list."""
        query = {**filters, "limit": _PAGE_ITEMS}
        return lambda cursor: self._read(model, *path, **query, **({"cursor": cursor} if cursor else {}))

    def _act[T](self, model: type[T], *path: str, body: Any = None, repeats: bool = True) -> Flow[T]:
        """Act on something, and return what the API shows of it."""
        request = Request(method="POST", path=path, body=body, repeats=repeats)
        answer = yield from self._answer_of_success(request)
        return TypeAdapter(model).validate_json(answer.content)

    def _delete[T](self, model: type[T], *path: str) -> Flow[T]:
        """Cancel or end something, and return what the API shows of it."""
        answer = yield from self._answer_of_success(Request(method="DELETE", path=path))
        return TypeAdapter(model).validate_json(answer.content)

    def _start(self, id_field: str, *path: str, body: Mapping[str, Any]) -> Flow[str]:
        """Start something, and return its id; only a key makes a second arrival harmless."""
        started = yield from self._act(dict[str, Any], *path, body=body, repeats="key" in body)
        return str(started[id_field])

    def _wait_for[T](
        self, model: type[T], *path: str, has_ended: Callable[[T], bool], timeout_seconds: float
    ) -> Flow[T]:
        """Look at a document, which has a `status`, until what it shows has ended.

        Raises:
            TimeoutError: It has not ended in this time.
        """
        until = clock.monotonic_seconds() + timeout_seconds
        look_seconds = _FIRST_LOOK_SECONDS
        while not has_ended(document := (yield from self._read(model, *path))):
            left = until - clock.monotonic_seconds()
            if left <= 0:
                status = getattr(document, "status", "there")
                raise TimeoutError(f"{' '.join(path)} is {status} after {timeout_seconds} s")
            yield min(look_seconds, left)
            look_seconds = min(look_seconds * 1.5, _LAST_LOOK_SECONDS)
        return document

    def _submit(
        self, function: Function | None, args: tuple[Any, ...], fields: dict[str, Any]
    ) -> Flow[Submitted]:
        wait_seconds = fields.pop("wait_seconds", 0)
        document = operation_document(function, args, fields)
        document.setdefault("key", f"client-{uuid.uuid4()}")
        headers = {"Prefer": f"wait={wait_seconds:.0f}"} if wait_seconds > 0 else None
        request = Request(method="POST", path=("operations",), body=document, headers=headers)
        answer = yield from self._answer_of_success(request)
        is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
        if answer.status_code == HTTPStatus.ACCEPTED:
            accepted = AcceptedOperation.model_validate_json(answer.content)
            return Submitted(accepted.operation_id, accepted.key, accepted.status, is_replayed, None)
        ended = Operation.model_validate_json(answer.content)
        return Submitted(ended.operation_id, ended.key, ended.status, is_replayed, ended)


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
