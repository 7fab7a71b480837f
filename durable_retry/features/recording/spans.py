"""The span of a whole operation, and the trace that log lines belong to."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, Final

from opentelemetry.context import attach, detach

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.base.trace_context import TraceContext
from durable_retry.rules.operations.waits import waits_of
from durable_retry.telemetry.spans import (
    CATEGORY,
    DEAD_LETTER_ID,
    DEAD_LETTER_REASON,
    IDENTIFYING,
    SOURCE,
    mark_failed,
    nobody_traces,
    otel_context,
    present,
    tracer,
)

STATUS: Final = "durable_retry.operation.status"
WAIT_KIND: Final = "durable_retry.wait.kind"
PRIORITY: Final = "durable_retry.priority"
CIRCUIT_STATE_BEFORE: Final = "durable_retry.circuit.previous_state"
CIRCUIT_OF: Final = "durable_retry.circuit.of"
ATTEMPT_COUNT: Final = "durable_retry.attempt.count"
WAIT_SECONDS: Final = "durable_retry.wait.seconds"
WAIT_REASONS: Final = "durable_retry.wait.reasons"


def fields_in(document: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the attributes that identify an operation, from its status document; None values are dropped."""
    return present({name: document[field] for name, field in IDENTIFYING.items()} | dict(more or {}))


def operation_ended(document: Mapping[str, Any], parent: TraceContext | None) -> None:
    """Create the span of a whole operation, from acceptance to end, with an event for every wait."""
    if parent is None and nobody_traces():
        return
    status, letter = document["status"], document["dead_letter"] or {}
    details = {
        SOURCE: document["source"],
        STATUS: status,
        CATEGORY: letter.get("category"),
        ATTEMPT_COUNT: document["attempt_count"],
        DEAD_LETTER_ID: letter.get("id"),
        DEAD_LETTER_REASON: letter.get("reason"),
    }
    span = tracer().start_span(
        f"operation {document['dependency']}",
        context=otel_context(parent),
        attributes=fields_in(document, details),
        start_time=_epoch_nanoseconds(from_rfc3339(document["created_at"])),
    )
    for at, attributes in _waits_in(document):
        span.add_event("wait", attributes, timestamp=_epoch_nanoseconds(at))
    if status == OperationState.DEAD_LETTERED:
        mark_failed(span, letter.get("category", status), letter.get("reason"))
    span.end(_epoch_nanoseconds(from_rfc3339(document["updated_at"])))


def at(parent: TraceContext | None) -> AbstractContextManager[None]:
    """Attach a trace context inside the block; None attaches none."""
    return nullcontext() if parent is None and nobody_traces() else _attached_to(parent)


@contextmanager
def _attached_to(parent: TraceContext | None) -> Iterator[None]:
    token = attach(otel_context(parent))
    try:
        yield
    finally:
        detach(token)


def _waits_in(document: Mapping[str, Any]) -> Iterator[tuple[datetime, dict[str, Any]]]:
    for wait in waits_of(document):
        seconds = ((wait.until or wait.began_at) - wait.began_at).total_seconds()
        reasons = list(wait.delay_reasons)
        yield wait.began_at, {WAIT_KIND: wait.kind.value, WAIT_SECONDS: seconds, WAIT_REASONS: reasons}


def _epoch_nanoseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1_000
