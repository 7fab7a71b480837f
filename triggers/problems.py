"""Answers: JSON bodies, and problem documents (RFC 9457) for everything that is not a success."""

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from engine.problem import Problem

_PROBLEM_TYPE: Final = "application/problem+json"
_JSON_TYPE: Final = "application/json"

KEY_REUSED: Final = "/problems/idempotency-key-reused"
INVALID: Final = "/problems/invalid-input"
TOO_LARGE: Final = "/problems/body-too-large"
TASK_HUB_AWAY: Final = "/problems/task-hub-unavailable"
STORAGE_AWAY: Final = "/problems/storage-unavailable"
WRONG_STATE: Final = "/problems/wrong-state"
NO_SUCH_THING: Final = "about:blank"

REPLAYED: Final = {"Idempotent-Replayed": "true"}
"""Header of an answer to a key that was seen before: nothing was started."""

RETRY_LATER_SECONDS: Final = 5


def json_answer(
    document: Any, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> func.HttpResponse:
    """Return a JSON body."""
    return func.HttpResponse(
        json.dumps(document), status_code=status, headers=dict(headers or {}), mimetype=_JSON_TYPE
    )


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    type_: str = NO_SUCH_THING,
    errors: Iterable[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> func.HttpResponse:
    """Return a problem document.

    Args:
        status: Of the answer, repeated in the body.
        detail: What is wrong with this request, as a sentence for a person.
        type_: URI reference of the kind of problem; `about:blank` when the status says it all.
        errors: Every mistake of an invalid input.
        headers: Beside Content-Type.
    """
    listed = [error.to_json() for error in errors]
    document: dict[str, Any] = {
        "type": type_,
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
    }
    if listed:
        document["errors"] = listed
    return func.HttpResponse(
        json.dumps(document), status_code=status, headers=dict(headers or {}), mimetype=_PROBLEM_TYPE
    )


def invalid(errors: Iterable[Problem]) -> func.HttpResponse:
    """Return 400 with every mistake."""
    found = tuple(errors)
    plural = "mistake" if len(found) == 1 else "mistakes"
    return problem(
        HTTPStatus.BAD_REQUEST, f"The input has {len(found)} {plural}.", type_=INVALID, errors=found
    )


def key_reused() -> func.HttpResponse:
    """Return 422: the key stands for something else."""
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "This key belongs to another request. Send the first request again, or choose a new key.",
        type_=KEY_REUSED,
    )


def not_found(what: str) -> func.HttpResponse:
    """Return 404 for something that is not known here."""
    return problem(HTTPStatus.NOT_FOUND, f"There is no {what}.")


def task_hub_away(detail: str) -> func.HttpResponse:
    """Return 503: nothing was taken over, and the same request may be sent again."""
    return _away(f"{detail}; nothing was started, send the same request again.", TASK_HUB_AWAY)


def storage_away(detail: str) -> func.HttpResponse:
    """Return 503: what was asked for needs a table or a queue that cannot be reached now.

    Args:
        detail: What kind of trouble there is, and never where: that is for the log.
    """
    told = f"the storage account did not answer ({detail}); send the same request again."
    return _away(told, STORAGE_AWAY)


def _away(detail: str, type_: str) -> func.HttpResponse:
    return problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail,
        type_=type_,
        headers={"Retry-After": str(RETRY_LATER_SECONDS)},
    )
