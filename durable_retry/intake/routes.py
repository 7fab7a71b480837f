"""HTTP: submit an operation."""

import re
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from durable_retry.base.names import OperationState
from durable_retry.http.answers import (
    REPLAYED,
    KeyReusedError,
    json_answer,
)
from durable_retry.http.callers import Caller
from durable_retry.http.parameters import KEY, LIMIT_KEY_HEADER, PREFER
from durable_retry.http.routes import (
    AWAY,
    KEY_REUSED,
    OK,
    RouteAnswer,
    Routes,
    header,
    read_body,
    url_of,
)
from durable_retry.hub.binding import TaskHub
from durable_retry.intake.intake import http_admission
from durable_retry.operations.actions import (
    KeyReused,
    Replayed,
    Started,
    SubmitResult,
    caller_naming,
    ended_document,
)
from durable_retry.rules.operations.envelope import SubmissionHeaders
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import OperationRequest
from durable_retry.rules.operations.status import AcceptedOperation, OperationDocument
from durable_retry.rules.operations.submission import read_operation
from durable_retry.runtime import clock
from durable_retry.settings.configuration import targets

routes = Routes("operations")

SOURCE: Final = "http"
_POLL_SECONDS: Final = 1
MAX_WAIT_SECONDS: Final = 30
_WAIT_PREFERENCE: Final = re.compile(
    r"(?:^|[,;])\s*wait\b(?:\s*=\s*(\"?)(?P<seconds>[0-9]{1,9})\1\s*(?=[,;]|$))?", re.IGNORECASE
)
_WAIT_IGNORED: Final = {
    "Warning": '299 - "Prefer: wait takes whole seconds, such as wait=10; this one was ignored"'
}


def preferred_wait(request: func.HttpRequest) -> tuple[float, dict[str, str]]:
    """Return how many seconds the caller would wait for the end, and headers for an answer before the end.

    RFC 7240 has the first of several waits count, and one that cannot be read ignored: a warning says so.
    """
    wait = _WAIT_PREFERENCE.search(header(request, "Prefer") or "")
    if wait is None or wait["seconds"] is None:
        return 0.0, {} if wait is None else _WAIT_IGNORED
    return float(min(int(wait["seconds"]), MAX_WAIT_SECONDS)), {}


@routes.post(
    "operations",
    body=OperationRequest,
    for_callers=True,
    takes_cloud_events=True,
    parameters=(KEY, LIMIT_KEY_HEADER, PREFER),
    answers=(
        RouteAnswer(
            OK,
            "It is finished: with the same key before, or within the wait that was preferred.",
            OperationDocument,
            ("Idempotent-Replayed", "Preference-Applied"),
        ),
        RouteAnswer(
            HTTPStatus.ACCEPTED,
            "Accepted, now or, with the same key, before.",
            AcceptedOperation,
            ("Location", "Retry-After", "Idempotent-Replayed", "Warning"),
        ),
    ),
    errors=(KEY_REUSED, AWAY),
)
async def submit_operation(req: func.HttpRequest, who: Caller, hub: TaskHub) -> func.HttpResponse:
    """Submit an operation."""
    http_admission().require_place()
    headers, now = SubmissionHeaders.read(req.headers), clock.now()
    naming = caller_naming(headers.key)

    def read_posted(document: Any) -> OperationInput:
        envelope = headers.envelope_of(document)
        return read_operation(envelope, naming, targets(), source=SOURCE, now=now, trace=headers.trace)

    operation = read_body(req, read_posted)
    if operation.limit_key is not None:
        who.note_limit_key(operation.limit_key, now)
    if who.known_name is not None:
        operation = replace(operation, submitted_by=who.known_name)
    result = await http_admission().submit(hub, operation)
    return await _answer_to_submission(req, hub, operation, result)


async def _answer_to_submission(
    request: func.HttpRequest, hub: TaskHub, operation: OperationInput, result: SubmitResult
) -> func.HttpResponse:
    match result:
        case KeyReused():
            raise KeyReusedError
        case Replayed(document, finished=True):
            return json_answer(await ended_document(hub, operation, document), headers=REPLAYED)
        case Replayed(document):
            state, headers = OperationState(document["status"]), REPLAYED
        case Started():
            state, headers = OperationState.PENDING, {}
    seconds, warning = preferred_wait(request)
    if seconds > 0:
        ended = await http_admission().end_within(hub, operation.operation_id, seconds)
        if ended is not None:
            applied = {**headers, "Preference-Applied": f"wait={seconds:.0f}"}
            return json_answer(ended, headers=applied)
    url = f"{url_of(request)}/{operation.operation_id}"
    headers = {"Retry-After": str(_POLL_SECONDS), **headers, **warning}
    return accepted_answer(operation, url, state, headers)


def accepted_answer(
    operation: OperationInput, url: str, state: OperationState, headers: dict[str, str]
) -> func.HttpResponse:
    """Return that an operation was accepted; the URL is its own."""
    answer = AcceptedOperation(
        operation_id=operation.operation_id, key=operation.key, status=state, status_url=url
    )
    return json_answer(answer, HTTPStatus.ACCEPTED, {"Location": url, **headers})
