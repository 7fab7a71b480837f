"""JSON answers, and problem documents (RFC 9457) for everything that is not a success."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func
from azure.core.exceptions import AzureError, HttpResponseError

from durable_retry.base.answers import Answer, ProblemDocument
from durable_retry.base.errors import (
    REFUSED_STATUSES,
    CircuitOpenError,
    OverloadedError,
    TaskHubUnavailableError,
)
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.validation import InvalidInputError, Problem, count_of

_PROBLEM_TYPE: Final = "application/problem+json"
_JSON_TYPE: Final = "application/json"

KEY_REUSED: Final = "/problems/idempotency-key-reused"
INVALID: Final = "/problems/invalid-input"
TOO_LARGE: Final = "/problems/body-too-large"
TASK_HUB_AWAY: Final = "/problems/task-hub-unavailable"
STORAGE_AWAY: Final = "/problems/storage-unavailable"
OVERLOADED: Final = "/problems/overloaded"
CIRCUIT_OPEN: Final = "/problems/circuit-open"
UNAUTHORIZED: Final = "/problems/unauthorized"
FORBIDDEN: Final = "/problems/forbidden"
WRONG_STATE: Final = "/problems/wrong-state"
NO_TYPE: Final = "about:blank"

REPLAYED: Final = {"Idempotent-Replayed": "true"}
"""Header of an answer to a key that was used before: nothing was started."""

RETRY_LATER_SECONDS: Final = 5


class ProblemError(Exception):
    """A request that is answered with a problem document; the text is a sentence for the caller."""

    status: HTTPStatus
    type_: str = NO_TYPE


class NotFoundError(ProblemError):
    """404: there is nothing of this name or id; `what` says so, such as `batch of this id`."""

    status = HTTPStatus.NOT_FOUND

    def __init__(self, what: str) -> None:
        super().__init__(f"There is no {what}.")


class ConflictError(ProblemError):
    """409: the state of the thing does not allow the change."""

    status = HTTPStatus.CONFLICT
    type_ = WRONG_STATE


def sentence(error: Exception) -> str:
    """Return the text of an error, which is a clause, as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


class UnauthorizedError(ProblemError):
    """401: it is not known who calls."""

    status = HTTPStatus.UNAUTHORIZED
    type_ = UNAUTHORIZED


class ForbiddenError(ProblemError):
    """403: the caller's role does not allow it."""

    status = HTTPStatus.FORBIDDEN
    type_ = FORBIDDEN

    def __init__(self, name: str, role: str, needed: Iterable[str]) -> None:
        has = "has no role here" if role == "none" else f"is a {role}"
        super().__init__(f"This needs the role {' or '.join(needed)}, and {name} {has}.")


class BodyTooLargeError(ProblemError):
    """413: the body is over the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    type_ = TOO_LARGE

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body is larger than {limit_bytes} bytes.")


class KeyReusedError(ProblemError):
    """422: the key belongs to another request."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    type_ = KEY_REUSED

    def __init__(self) -> None:
        super().__init__(
            "This key belongs to another request. Send the first request again, or choose a new key."
        )


def json_answer(
    answer: Answer | JsonShape,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    *,
    moving: Collection[str] = (),
) -> func.HttpResponse:
    """Return a JSON body.

    Args:
        headers: Beside Content-Type.
        moving: Names of members, at any depth, that change with the time of the request alone: the entity
            tag leaves them out.
    """
    text = json.dumps(answer.to_answer()) if isinstance(answer, JsonShape) else answer.to_text()
    tag = {"ETag": etag_of(json.loads(text), moving)} if moving else {}
    return func.HttpResponse(
        text, status_code=status, headers={**(headers or {}), **tag}, mimetype=_JSON_TYPE
    )


def etag_of(document: Any, without: Collection[str] = ()) -> str:
    """Return the weak entity tag of a document: the same while it says the same.

    Args:
        without: Names of fields, at any depth, that change with the time of the request alone.
    """
    return etag_of_text(json.dumps(_without_members(document, without) if without else document).encode())


def etag_of_text(text: bytes) -> str:
    """Return the weak entity tag of a document as it is sent."""
    return f'W/"{sha256(text).hexdigest()[:24]}"'


def _without_members(value: Any, without: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _without_members(member, without) for name, member in value.items() if name not in without
        }
    return [_without_members(member, without) for member in value] if isinstance(value, list) else value


def is_known(condition: str | None, etag: str) -> bool:
    """Return whether a caller has this version (`If-None-Match`; RFC 9110, 13.1.2: compared weakly)."""
    tags = [tag.strip().removeprefix("W/") for tag in (condition or "").split(",")]
    return etag.removeprefix("W/") in tags or "*" in tags


def unless_known(answer: func.HttpResponse, condition: str | None) -> func.HttpResponse:
    """Return a document with its entity tag, or 304 without a body where the caller has this version.

    Args:
        answer: Any; one that is no success stays as it is. One with an `ETag` keeps that.
        condition: `If-None-Match` of the request; None when there is none.
    """
    if answer.status_code != HTTPStatus.OK:
        return answer
    etag = answer.headers.get("ETag")
    if etag is None:
        etag = answer.headers["ETag"] = f'W/"{sha256(answer.get_body()).hexdigest()[:24]}"'
    if not is_known(condition, etag):
        return answer
    return func.HttpResponse(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})


def required[T](thing: T | None, what: str) -> T:
    """Return what was looked up; `what` names it, as for `NotFoundError`."""
    if thing is None:
        raise NotFoundError(what)
    return thing


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    type_: str = NO_TYPE,
    errors: Iterable[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> func.HttpResponse:
    """Return a problem document.

    Args:
        detail: What is wrong with this request, as a sentence for a person.
        type_: URI reference of the kind of problem; `about:blank` when the status says it all.
    """
    document = ProblemDocument(
        type=type_, title=status.phrase, status=status, detail=detail, errors=tuple(errors)
    )
    return func.HttpResponse(
        json.dumps(document.to_json()),
        status_code=status,
        headers=dict(headers or {}),
        mimetype=_PROBLEM_TYPE,
    )


def invalid(errors: Iterable[Problem]) -> func.HttpResponse:
    """Return 400 with every mistake."""
    problems = tuple(errors)
    count = count_of(problems)
    detail = f"The input has {count} mistake{'' if count == 1 else 's'}."
    return problem(HTTPStatus.BAD_REQUEST, detail, type_=INVALID, errors=problems)


def unavailable(detail: str, type_: str, seconds: int | None = None) -> func.HttpResponse:
    """Return 503: the same request may be sent again.

    Args:
        detail: The kind of failure without addresses: those are for the log.
        type_: The part that is away.
        seconds: After how many; None for `RETRY_LATER_SECONDS`.
    """
    headers = {"Retry-After": str(seconds or RETRY_LATER_SECONDS)}
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, type_=type_, headers=headers)


type Refusals = Mapping[type[Exception], Callable[[Any], Exception]]
"""Exceptions of the services, each with the `NotFoundError` or `ConflictError` that it means over HTTP."""


def problem_of(error: Exception, refusals: Refusals) -> func.HttpResponse | None:
    """Return the answer to an exception; None for a defect of the app."""
    refusal = next((refusal for kind, refusal in refusals.items() if isinstance(error, kind)), None)
    match error if refusal is None else refusal(error):
        case InvalidInputError() as wrong:
            return invalid(wrong.problems)
        case ProblemError() as refused:
            return problem(refused.status, str(refused), type_=refused.type_)
        case TaskHubUnavailableError() as away:
            detail = f"{away}; nothing was started, send the same request again."
            return unavailable(detail, TASK_HUB_AWAY)
        case OverloadedError() as overload:
            detail = f"{overload}; nothing was started, send the same request again later."
            type_ = CIRCUIT_OPEN if isinstance(overload, CircuitOpenError) else OVERLOADED
            return unavailable(detail, type_, overload.retry_after_seconds)
        case AzureError() as failed if not _is_refusal(failed):
            detail = (
                f"the storage account did not answer ({type(failed).__name__}); send the same request again."
            )
            return unavailable(detail, STORAGE_AWAY)
        case _:
            return None


def _is_refusal(error: AzureError) -> bool:
    # The storage works and refuses the request: waiting changes nothing.
    return isinstance(error, HttpResponseError) and error.status_code in REFUSED_STATUSES
