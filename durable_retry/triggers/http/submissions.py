"""HTTP: submit an operation, at once or by way of the queue.

A CloudEvent comes in either of its HTTP forms: structured (the envelope is the body) or binary (the envelope
is in `ce-` headers, the body is the operation).
Source: "HTTP Protocol Binding for CloudEvents", version 1.0.2.

`POST /api/operations/enqueue` is for a sender that does not send again, such as a webhook's: the operation
is checked and put on the queue `operations`, which delivers it until it is started, also while the task hub
is away.
"""

import re
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import azure.functions as func

from durable_retry import clock
from durable_retry.binding import TaskHub
from durable_retry.engine.base.names import QUEUE_SOURCE, OperationState
from durable_retry.engine.base.trace_context import TRACEPARENT, TRACESTATE, TraceContext
from durable_retry.engine.operations.document import AcceptedOperation, OperationDocument
from durable_retry.engine.operations.envelope import ParsedEnvelope, parse_envelope
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import OperationRequest, parse_key
from durable_retry.engine.operations.submission import Naming, Submission, parse, read_operation
from durable_retry.errors import MessageRefusedError
from durable_retry.http.answers import (
    REPLAYED,
    RETRY_LATER_SECONDS,
    TOO_LARGE,
    KeyReusedError,
    json_answer,
    problem,
)
from durable_retry.http.callers import Caller
from durable_retry.http.parameters import KEY, PREFER
from durable_retry.http.routes import (
    AWAY,
    KEY_REUSED,
    OK,
    RouteAnswer,
    Routes,
    accepted,
    header,
    read_body,
    tenant_of,
    url_of,
)
from durable_retry.services.operations.control import end_within, ended_document
from durable_retry.services.operations.submit import (
    KeyReused,
    Replayed,
    Started,
    SubmitResult,
    caller_naming,
    submit,
)
from durable_retry.services.queue import enqueue
from durable_retry.services.sources import http_admission
from durable_retry.settings.configuration import targets

routes = Routes("operations")

SOURCE: Final = "http"

_POLL_SECONDS: Final = 1
_ENQUEUE: Final = "/enqueue"

_ATTRIBUTES: Final = ("specversion", "id", "source", "type", "correlationid", TRACEPARENT, TRACESTATE)


def naming_of(request: func.HttpRequest) -> Naming:
    """Return what names a posted operation, beside its body.

    Raises:
        InvalidInputError: The header Idempotency-Key cannot be read.
    """
    return caller_naming(tenant_of(request), key_of(request))


def read_submission(request: func.HttpRequest) -> Submission:
    """Parse and name an operation that was posted for the queue.

    Raises:
        BodyTooLargeError: The body is over the limit.
        InvalidInputError: With every mistake; pointers lead into what was posted.
    """
    naming, trace = naming_of(request), trace_of(request)

    def parse_body(document: Any) -> Submission:
        return parse(_envelope_of(request, document), naming, targets(), trace)

    return read_body(request, parse_body)


MAX_WAIT_SECONDS: Final = 30

_WAIT_PREFERENCE: Final = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*\"?(\d{1,6})\"?", re.IGNORECASE)


def preferred_wait_seconds(request: func.HttpRequest) -> float:
    """Return how long the caller would wait for the end (RFC 7240 `Prefer: wait=N`), at most 30 s."""
    found = _WAIT_PREFERENCE.search(header(request, "Prefer") or "")
    return 0.0 if found is None else float(min(int(found[1]), MAX_WAIT_SECONDS))


_ASKS_TO_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\b", re.IGNORECASE)
_WAIT_IGNORED: Final = '299 - "Prefer: wait takes whole seconds, such as wait=10; this one was ignored"'


def unreadable_wait(request: func.HttpRequest) -> dict[str, str]:
    """Return the warning about a wait that cannot be read; RFC 7240 has it ignored, not refused."""
    preference = header(request, "Prefer") or ""
    is_ignored = _ASKS_TO_WAIT.search(preference) and not _WAIT_PREFERENCE.search(preference)
    return {"Warning": _WAIT_IGNORED} if is_ignored else {}


def key_of(request: func.HttpRequest) -> str | None:
    """Return the key of the header Idempotency-Key; None without one.

    Raises:
        InvalidInputError: The header cannot be read.
    """
    text = header(request, "Idempotency-Key")
    return None if text is None else parse_key(text)


def trace_of(request: func.HttpRequest) -> TraceContext | None:
    """Return the caller's trace context from its headers; None when the request is not traced."""
    traceparent = header(request, TRACEPARENT)
    return None if traceparent is None else TraceContext.read(traceparent, header(request, TRACESTATE))


def _envelope_of(request: func.HttpRequest, document: Any) -> ParsedEnvelope:
    if header(request, "ce-specversion") is None:
        return parse_envelope(document)
    found = {name: header(request, f"ce-{name}") for name in _ATTRIBUTES}
    attributes = {
        name: unquote(value, errors="replace") for name, value in found.items() if value is not None
    }
    # In the binary form the body itself is the data.
    return replace(parse_envelope({**attributes, "data": document}), place="")


@routes.post(
    "operations",
    body=OperationRequest,
    for_callers=True,
    takes_cloud_events=True,
    parameters=(KEY, PREFER),
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
    naming, trace, now = naming_of(req), trace_of(req), clock.now()

    def read_posted(document: Any) -> OperationInput:
        envelope = _envelope_of(req, document)
        return read_operation(envelope, naming, targets(), source=SOURCE, now=now, trace=trace)

    operation = read_body(req, read_posted)
    if who.known_name is not None:
        operation = replace(operation, submitted_by=who.known_name)
    admission = http_admission()
    async with admission.admitted(hub):
        result = await submit(hub, operation)
    if isinstance(result, Started):
        admission.monitor.note_start(operation)
    return await _answer_to_submission(req, hub, operation, result)


@routes.post(
    "operations/enqueue",
    body=OperationRequest,
    for_callers=True,
    takes_cloud_events=True,
    source=QUEUE_SOURCE,
    parameters=(KEY,),
    answers=accepted(
        AcceptedOperation, "It is on the queue, and starts when its turn comes.", "Location", "Retry-After"
    ),
)
async def enqueue_operation(req: func.HttpRequest) -> func.HttpResponse:
    """Put an operation on the queue, also while the task hub is away."""
    try:
        operation = await enqueue(read_submission(req), clock.now())
    except MessageRefusedError as error:
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), type_=TOO_LARGE)
    url = f"{url_of(req).removesuffix(_ENQUEUE)}/{operation.operation_id}"
    return _accepted_answer(operation, url, OperationState.PENDING, {"Retry-After": str(RETRY_LATER_SECONDS)})


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
    seconds = preferred_wait_seconds(request)
    if seconds > 0 and (ended := await end_within(hub, operation.operation_id, seconds)) is not None:
        applied = {**headers, "Preference-Applied": f"wait={seconds:.0f}"}
        return json_answer(ended, headers=applied)
    url = f"{url_of(request)}/{operation.operation_id}"
    more = {"Retry-After": str(_POLL_SECONDS), **headers, **unreadable_wait(request)}
    return _accepted_answer(operation, url, state, more)


def _accepted_answer(
    operation: OperationInput, url: str, state: OperationState, headers: dict[str, str]
) -> func.HttpResponse:
    answer = AcceptedOperation(
        operation_id=operation.operation_id, key=operation.key, status=state, status_url=url
    )
    return json_answer(answer, HTTPStatus.ACCEPTED, {"Location": url, **headers})
