"""The spans of the app, each made where its work is done and never in an orchestrator.

    caller ── submit ─┬─ attempt 1 ── GET          what is sent downstream carries this one as its parent
                      ├─ attempt 2 ── GET
                      └─ operation                 made once, when the operation has ended

Where the host makes spans as well, those of the same trace take ours in between; see
docs/decisions/spans-without-an-orchestrator.md.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engine.instants import from_rfc3339
from engine.operation import AttemptOutcome, OperationInput
from engine.trace_context import TRACEPARENT, TRACESTATE, TraceContext
from engine.vocabulary import OperationState
from telemetry.attributes import (
    ATTEMPT,
    ATTEMPT_COUNT,
    CATEGORY,
    DEAD_LETTER_ID,
    DEAD_LETTER_REASON,
    ERROR_TYPE,
    HTTP_STATUS,
    OUTCOME,
    SOURCE,
    STATUS,
    WAIT_KIND,
    WAIT_REASONS,
    WAIT_SECONDS,
    dependency_label,
    fields_in,
    fields_of,
    present,
)
from telemetry.metrics import SCOPE

_PROPAGATOR: Final = TraceContextTextMapPropagator()

_tracer: Tracer = trace.get_tracer(SCOPE)


@contextmanager
def using(provider: TracerProvider) -> Iterator[None]:
    """Make spans with another provider for a while; for tests."""
    global _tracer  # noqa: PLW0603 - the process's one tracer
    previous = _tracer
    _tracer = provider.get_tracer(SCOPE)
    try:
        yield
    finally:
        _tracer = previous


@contextmanager
def submission(operation: OperationInput) -> Iterator[tuple[Span, OperationInput]]:
    """Make the span of handing an operation in.

    Yields:
        The span, and the operation with this place in the trace: what it does later hangs on it. Without the
        SDK that place is the caller's own, so that the trace goes through an app that is silent.
    """
    with _span(
        f"submit {operation.dependency}",
        operation.trace,
        SpanKind.PRODUCER,
        fields_of(operation, {SOURCE: operation.source}),
    ) as span:
        yield span, replace(operation, trace=current_place())


@contextmanager
def attempt(operation: OperationInput, number: int) -> Iterator[Span]:
    """Make the span of one attempt, beneath the submission; `attempt_ended` says how it ended.

    Args:
        operation: Whose.
        number: Which, from 1.
    """
    name = f"attempt {dependency_label(operation.dependency)}"
    with _span(name, operation.trace, SpanKind.INTERNAL, fields_of(operation, {ATTEMPT: number})) as span:
        yield span


def attempt_ended(span: Span, outcome: AttemptOutcome, outcome_name: str) -> None:
    """Say on the span of an attempt how it ended."""
    span.set_attributes(present({OUTCOME: outcome_name, HTTP_STATUS: outcome.status_code}))
    if outcome.category is not None:
        span.set_attribute(CATEGORY, outcome.category.value)
        _failed(span, outcome.category.value, outcome.error)


@contextmanager
def call(method: str, server: str, port: int | None, headers: MutableMapping[str, str]) -> Iterator[Span]:
    """Make the span of one HTTP request, and put its place into the request's headers.

    Named after the method alone, and without the URL: a path or a query can hold what nobody else should
    read. Source: "Semantic conventions for HTTP spans", HTTP client.

    Args:
        method: `GET`, ...
        server: Host name or address.
        port: None for the scheme's own.
        headers: Of the request; it is given `traceparent` unless whoever submitted it wrote one.
    """
    attributes = present({"http.request.method": method, "server.address": server, "server.port": port})
    with _tracer.start_as_current_span(
        method,
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        if TRACEPARENT not in headers:
            _PROPAGATOR.inject(headers)
        try:
            yield span
        except BaseException as error:
            _failed(span, type(error).__name__)  # The text of an error can hold a URL.
            raise


def call_answered(span: Span, status_code: int) -> None:
    """Say on the span of an HTTP request what came back."""
    span.set_attribute(HTTP_STATUS, status_code)
    if status_code >= HTTPStatus.BAD_REQUEST:  # The semantic conventions: for a client, 4xx is an error too.
        _failed(span, str(status_code))


def operation_ended(document: Mapping[str, Any], place: TraceContext | None) -> None:
    """Make the span of a whole operation, from its acceptance to its end, with an event for every wait.

    Args:
        document: Its last status document.
        place: The submission's.
    """
    status, letter = document["status"], document["dead_letter"] or {}
    details = {
        SOURCE: document["source"],
        STATUS: status,
        CATEGORY: letter.get("category"),
        ATTEMPT_COUNT: document["attempt_count"],
        DEAD_LETTER_ID: letter.get("id"),
        DEAD_LETTER_REASON: letter.get("reason"),
    }
    span = _tracer.start_span(
        f"operation {document['dependency']}",
        context=_context_at(place),
        attributes=fields_in(document, details),
        start_time=_nanoseconds(from_rfc3339(document["created_at"])),
    )
    for at, attributes in _waits_in(document):
        span.add_event("wait", attributes, timestamp=_nanoseconds(at))
    if status == OperationState.DEAD_LETTERED:
        _failed(span, letter.get("category", status), letter.get("reason"))
    span.end(_nanoseconds(from_rfc3339(document["updated_at"])))


@contextmanager
def at(place: TraceContext | None) -> Iterator[None]:
    """Let what is logged meanwhile belong to a place; without one, to none."""
    token = attach(_context_at(place))
    try:
        yield
    finally:
        detach(token)


def current_place() -> TraceContext | None:
    """Return the present place in a trace; None outside of any."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return TraceContext.from_json(carrier)


@contextmanager
def _span(
    name: str, place: TraceContext | None, kind: SpanKind, attributes: dict[str, Any]
) -> Iterator[Span]:
    """Make a span beneath the host's own when that belongs to the same trace, else beneath `place`.

    A host's span of another trace (a timer's, a queue's) is linked: both traces are then found from either.
    """
    ambient = trace.get_current_span().get_span_context()
    if place is None or (ambient.is_valid and trace.format_trace_id(ambient.trace_id) == place.trace_id):
        context, links = None, []
    else:
        context, links = _context_at(place), [Link(ambient)] if ambient.is_valid else []
    with _tracer.start_as_current_span(
        name, context=context, kind=kind, attributes=attributes, links=links
    ) as span:
        yield span


def _failed(span: Span, error_type: str, told: str | None = None) -> None:
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, told))


def _context_at(place: TraceContext | None) -> Context:
    carrier = {} if place is None else {TRACEPARENT: place.traceparent, TRACESTATE: place.tracestate}
    return _PROPAGATOR.extract(carrier, Context())


def _waits_in(document: Mapping[str, Any]) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Give when each wait began that the document still knows of, with why it was that long."""
    for item in document["attempts"]:
        if item["next_delay_seconds"] is not None:
            began_at = from_rfc3339(item["started_at"]) + timedelta(milliseconds=item["duration_ms"])
            yield began_at, _wait("retry", item["next_delay_seconds"], item["delay_reasons"])
    for item in document.get("waits", ()):
        began_at = from_rfc3339(item["began_at"])
        seconds = (from_rfc3339(item["until"]) - began_at).total_seconds()
        yield began_at, _wait(item["kind"], seconds, item["delay_reasons"])


def _wait(kind: str, seconds: float, reasons: list[str]) -> dict[str, Any]:
    return {WAIT_KIND: kind, WAIT_SECONDS: seconds, WAIT_REASONS: reasons}


def _nanoseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1_000
