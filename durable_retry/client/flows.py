"""What the client asks for, request by request: `Client` and `AsyncClient` send for the same flows."""

import random
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx
from pydantic import BaseModel

from durable_retry import clock
from durable_retry.client.documents import (
    OperationFailed,
    RefusedError,
    Submitted,
    UnreachableError,
    operation_document,
)
from durable_retry.engine.base.answers import Page
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.dead_letters.document import DeadLetterDocument, StartedReplay
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
"""Yields requests to send and seconds to pause, and returns T. Both clients drive the same flows."""


def _answer_of_success(request: Request, tries: int) -> Flow[httpx.Response]:
    """Send a request, again after failures that may pass, and return the answer of success.

    Raises:
        RefusedError: The last answer is not a success.
        UnreachableError: The last try got no answer.
    """
    answer: Answer = None
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


def submit(
    tries: int, function: Function | None, args: tuple[Any, ...], fields: dict[str, Any]
) -> Flow[Submitted]:
    """Submit an operation; see `Client.submit`."""
    wait_seconds = fields.pop("wait_seconds", 0)
    document = operation_document(function, args, fields)
    document.setdefault("key", f"client-{uuid.uuid4()}")
    headers = {"Prefer": f"wait={wait_seconds:.0f}"} if wait_seconds > 0 else None
    request = Request(method="POST", path=("operations",), body=document, headers=headers)
    answer = yield from _answer_of_success(request, tries)
    is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
    if answer.status_code == HTTPStatus.ACCEPTED:
        accepted = AcceptedOperation.model_validate_json(answer.content)
        return Submitted(accepted.operation_id, accepted.key, accepted.status, is_replayed, None)
    ended = Operation.model_validate_json(answer.content)
    return Submitted(ended.operation_id, ended.key, ended.status, is_replayed, ended)


def get(tries: int, operation_id: str) -> Flow[Operation]:
    """Return an operation."""
    return (yield from read(tries, Operation, "operations", operation_id))


def read[T: BaseModel](tries: int, model: type[T], *path: str) -> Flow[T]:
    """Return a document of the API."""
    answer = yield from _answer_of_success(Request(method="GET", path=path), tries)
    return model.model_validate_json(answer.content)


def page[T](
    tries: int, model: type[Page[T]], path: tuple[str, ...], filters: Mapping[str, Any], cursor: str
) -> Flow[Page[T]]:
    """Return a page of a list.

    Args:
        cursor: Where it begins; "" is the first one.
    """
    query = {**filters, "limit": _PAGE_ITEMS, **({"cursor": cursor} if cursor else {})}
    answer = yield from _answer_of_success(Request(method="GET", path=path, query=query), tries)
    return model.model_validate_json(answer.content)


def start(tries: int, path: str, document: Mapping[str, Any], id_field: str) -> Flow[str]:
    """Start a batch, a saga or an action on many, and return its id."""
    # Only a key makes a second arrival harmless.
    request = Request(method="POST", path=tuple(path.split("/")), body=document, repeats="key" in document)
    answer = yield from _answer_of_success(request, tries)
    return str(answer.json()[id_field])


def act_on_dead_letter(
    tries: int, dead_letter_id: str, action: str, document: Mapping[str, Any] | None = None
) -> Flow[DeadLetterDocument]:
    """Archive, restore or note a dead letter; a note could be there twice, so it is not sent again."""
    request = Request(
        method="POST",
        path=("dead-letters", dead_letter_id, action),
        body=document or {},
        repeats=document is None,
    )
    answer = yield from _answer_of_success(request, tries)
    return DeadLetterDocument.model_validate_json(answer.content)


def wait_for[T: BaseModel](
    tries: int,
    model: type[T],
    path: tuple[str, ...],
    has_ended: Callable[[T], bool],
    timeout_seconds: float,
) -> Flow[T]:
    """Look at a document, which has a `status`, until what it shows has ended.

    Raises:
        TimeoutError: It has not ended in this time.
    """
    until = clock.monotonic_seconds() + timeout_seconds
    look_seconds = _FIRST_LOOK_SECONDS
    while not has_ended(document := (yield from read(tries, model, *path))):
        left = until - clock.monotonic_seconds()
        if left <= 0:
            status = getattr(document, "status", "there")
            raise TimeoutError(f"{' '.join(path)} is {status} after {timeout_seconds} s")
        yield min(look_seconds, left)
        look_seconds = min(look_seconds * 1.5, _LAST_LOOK_SECONDS)
    return document


def wait(tries: int, operation_id: str, timeout_seconds: float) -> Flow[Operation]:
    """Look at an operation until it has ended; see `Client.wait`."""
    path = ("operations", operation_id)
    operation = yield from wait_for(tries, Operation, path, lambda found: found.is_finished, timeout_seconds)
    if operation.status is not OperationState.SUCCEEDED:
        raise OperationFailed(operation.to_json())
    return operation


def steer(tries: int, operation_id: str, action: str) -> Flow[None]:
    """Ask an operation to do something, such as `cancel`."""
    yield from _answer_of_success(Request(method="POST", path=("operations", operation_id, action)), tries)


def replay(tries: int, dead_letter_id: str, document: Mapping[str, Any]) -> Flow[str]:
    """Replay a dead letter; see `Client.replay`."""
    path = ("dead-letters", dead_letter_id, "replay")
    answer = yield from _answer_of_success(
        Request(method="POST", path=path, body=document, repeats=False), tries
    )
    return StartedReplay.model_validate_json(answer.content).operation_id
