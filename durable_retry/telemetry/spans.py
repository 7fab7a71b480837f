"""The spans of work, and the attribute names that spans, metrics and log lines share.

Spans are created where the work is done and never in an orchestrator.

    caller ── submit ─┬─ attempt 1 ── GET          the parent in the `traceparent` sent downstream
                      ├─ attempt 2 ── GET
                      └─ operation                 created when it has ended, by the feature `recording`

The host's own spans of the same trace are parents and children of ours; see
docs/decisions/spans-without-an-orchestrator.md.

docs/observability.md describes each attribute. Labels of metrics come from closed sets and from
dependencies.toml only. Ids and keys are on spans and in log lines only, where they create no time series.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from durable_retry.base.names import QUEUE_PREFIX
from durable_retry.base.trace_context import TRACEPARENT, TraceContext, trace_in
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import AttemptOutcome

SCOPE: Final = "durable_retry"
"""Name of the instrumentation scope of all metrics and spans."""

DEPENDENCY: Final = "durable_retry.dependency"
SOURCE: Final = "durable_retry.source"
OUTCOME: Final = "durable_retry.outcome"
CIRCUIT_STATE: Final = "durable_retry.circuit.state"
CATEGORY: Final = "durable_retry.category"
ERROR_TYPE: Final = "error.type"
"""On a failed span, as in the semantic conventions. Application Insights drops it, so the category has a name
of its own."""
HTTP_STATUS: Final = "http.response.status_code"
OPERATION_ID: Final = "durable_retry.operation.id"
KEY: Final = "durable_retry.operation.key"
CORRELATION_ID: Final = "durable_retry.correlation_id"
ATTEMPT: Final = "durable_retry.attempt.number"
DEAD_LETTER_ID: Final = "durable_retry.dead_letter.id"
DEAD_LETTER_REASON: Final = "durable_retry.dead_letter.reason"

QUEUE: Final = QUEUE_PREFIX.rstrip(":")
"""Label of all queues in place of a dependency: callers choose queue names, so no name is a label."""

IDENTIFYING: Final = {
    OPERATION_ID: "operation_id",
    KEY: "key",
    DEPENDENCY: "dependency",
    CORRELATION_ID: "correlation_id",
}
"""Attributes that identify an operation, with the names of its fields."""


def fields_of(operation: OperationInput, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the attributes that identify an operation, for a span or the `extra` of a log line.

    None values are dropped.
    """
    return present(
        {name: getattr(operation, field) for name, field in IDENTIFYING.items()} | dict(more or {})
    )


def dependency_label(name: str) -> str:
    """Return the label of a dependency or of an event's destination."""
    return QUEUE if name.startswith(QUEUE_PREFIX) else name


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop None values: attributes have no null."""
    return {name: value for name, value in fields.items() if value is not None}


_PROPAGATOR: Final = TraceContextTextMapPropagator()
_PROCESS_TRACER: Final = trace.get_tracer(SCOPE)

_tracer: Tracer = _PROCESS_TRACER

_NO_SPAN: Final = nullcontext(INVALID_SPAN)


def tracer() -> Tracer:
    """Return the present tracer, which makes the spans; `using` replaces it."""
    return _tracer


@contextmanager
def using(provider: TracerProvider) -> Iterator[None]:
    """Use another provider inside the block; for tests."""
    global _tracer  # noqa: PLW0603 - the process's one tracer
    previous = _tracer
    _tracer = provider.get_tracer(SCOPE)
    try:
        yield
    finally:
        _tracer = previous


def submission(operation: OperationInput) -> AbstractContextManager[tuple[Span, OperationInput]]:
    """Give the span of a submission, and the operation with its trace context, the parent of later spans.

    Without the SDK that is the caller's own context, so that the trace passes through an app without
    telemetry.
    """
    if operation.trace is None and nobody_traces():
        return nullcontext((INVALID_SPAN, operation))
    return _submission_span(operation)


@contextmanager
def _submission_span(operation: OperationInput) -> Iterator[tuple[Span, OperationInput]]:
    with _span_under(
        f"submit {operation.dependency}",
        operation.trace,
        SpanKind.PRODUCER,
        fields_of(operation, {SOURCE: operation.source}),
    ) as span:
        context = None if span is INVALID_SPAN else current_context()
        yield span, operation if context == operation.trace else replace(operation, trace=context)


def attempt(operation: OperationInput, number: int) -> AbstractContextManager[Span]:
    """Create the span of one attempt, child of the submission; `attempt_ended` sets its outcome."""
    if operation.trace is None and nobody_traces():
        return _NO_SPAN
    name = f"attempt {dependency_label(operation.dependency)}"
    return _span_under(name, operation.trace, SpanKind.INTERNAL, fields_of(operation, {ATTEMPT: number}))


SUCCESS: Final = "success"
FAILURE: Final = "failure"
NOT_SENT: Final = "not_sent"
"""Outcomes of attempts. `not_sent`: never sent, the attempt is made again under its number."""


def outcome_name(outcome: AttemptOutcome) -> str:
    """Return the outcome's name in metrics and on spans."""
    if outcome.category is None:
        return SUCCESS
    return NOT_SENT if outcome.never_left else FAILURE


def attempt_ended(span: Span, outcome: AttemptOutcome) -> None:
    if span is INVALID_SPAN:
        return
    span.set_attributes(present({OUTCOME: outcome_name(outcome), HTTP_STATUS: outcome.status_code}))
    if outcome.category is not None:
        span.set_attribute(CATEGORY, outcome.category.value)
        mark_failed(span, outcome.category.value, outcome.error)


def call(
    method: str, server: str, port: int | None, headers: MutableMapping[str, str]
) -> AbstractContextManager[Span]:
    """Create the span of one HTTP request, and inject its context into the request's headers.

    Named after the method alone, without the URL: a path or a query can contain confidential data. Source:
    "Semantic conventions for HTTP spans", HTTP client.
    """
    return _NO_SPAN if nobody_traces() else _call_span(method, server, port, headers)


@contextmanager
def _call_span(
    method: str, server: str, port: int | None, headers: MutableMapping[str, str]
) -> Iterator[Span]:
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
            mark_failed(span, type(error).__name__)  # The text of an error can contain a URL.
            raise


def call_answered(span: Span, status_code: int) -> None:
    """Set the status on the span of an HTTP request."""
    span.set_attribute(HTTP_STATUS, status_code)
    if status_code >= HTTPStatus.BAD_REQUEST:  # The semantic conventions: for a client, 4xx is an error too.
        mark_failed(span, str(status_code))


def current_context() -> TraceContext | None:
    """Return the current trace context; None when there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return trace_in(carrier)


@contextmanager
def _span_under(
    name: str, parent: TraceContext | None, kind: SpanKind, attributes: dict[str, Any]
) -> Iterator[Span]:
    """Create a span under the host's own when that is of the same trace, else under `parent`.

    A host's span of another trace (a timer's, a queue's) is linked, so that each trace leads to the other.
    """
    ambient = trace.get_current_span().get_span_context()
    if parent is None or (ambient.is_valid and trace.format_trace_id(ambient.trace_id) == parent.trace_id):
        context, links = None, []
    else:
        context, links = otel_context(parent), [Link(ambient)] if ambient.is_valid else []
    with _tracer.start_as_current_span(
        name, context=context, kind=kind, attributes=attributes, links=links
    ) as span:
        yield span


def nobody_traces() -> bool:
    """Whether there is neither the SDK nor a current span: then a new span would only cost time."""
    if _tracer is not _PROCESS_TRACER or (get_current() and trace.get_current_span() is not INVALID_SPAN):
        return False
    return isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def mark_failed(span: Span, error_type: str, description: str | None = None) -> None:
    """Say on a span that it failed, and why."""
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, description))


def otel_context(parent: TraceContext | None) -> Context:
    """Return a trace context in the form of OpenTelemetry's API; None gives an empty one."""
    carrier = {} if parent is None else parent.to_json()
    return _PROPAGATOR.extract(carrier, Context())
