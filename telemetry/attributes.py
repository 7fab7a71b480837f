"""Names of what spans, metrics and log lines carry; docs/observability.md says what each is.

Labels of metrics come from closed sets and from dependencies.toml only. Ids and keys stand on spans and in
log lines, where they make no series.
"""

from collections.abc import Mapping
from typing import Any, Final

from engine.operation import OperationInput
from engine.outbox import QUEUE_PREFIX

DEPENDENCY: Final = "durable_retry.dependency"
SOURCE: Final = "durable_retry.source"
OUTCOME: Final = "durable_retry.outcome"
STATUS: Final = "durable_retry.operation.status"
WAIT_KIND: Final = "durable_retry.wait.kind"
CIRCUIT_STATE: Final = "durable_retry.circuit.state"
CIRCUIT_STATE_BEFORE: Final = "durable_retry.circuit.previous_state"
CATEGORY: Final = "durable_retry.category"
ERROR_TYPE: Final = "error.type"
"""Of a span that failed, as the semantic conventions have it. Application Insights keeps it on no span, so a
category has a name of its own."""
HTTP_STATUS: Final = "http.response.status_code"

OPERATION_ID: Final = "durable_retry.operation.id"
KEY: Final = "durable_retry.operation.key"
CORRELATION_ID: Final = "durable_retry.correlation_id"
ATTEMPT: Final = "durable_retry.attempt.number"
ATTEMPT_COUNT: Final = "durable_retry.attempt.count"
DEAD_LETTER_ID: Final = "durable_retry.dead_letter.id"
DEAD_LETTER_REASON: Final = "durable_retry.dead_letter.reason"
WAIT_SECONDS: Final = "durable_retry.wait.seconds"
WAIT_REASONS: Final = "durable_retry.wait.reasons"

QUEUE: Final = QUEUE_PREFIX.rstrip(":")
"""Stands for all queues where a dependency is named: a queue's own name is the caller's to choose."""

_NAMES: Final = {
    OPERATION_ID: "operation_id",
    KEY: "key",
    DEPENDENCY: "dependency",
    CORRELATION_ID: "correlation_id",
}


def fields_of(operation: OperationInput, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what names an operation: attributes of a span, or the `extra` of a log line.

    Args:
        operation: Which.
        more: Further attributes; what is None is left out.
    """
    return present({name: getattr(operation, field) for name, field in _NAMES.items()} | dict(more or {}))


def fields_in(document: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the same of an operation of which only the status document is at hand."""
    return present({name: document[field] for name, field in _NAMES.items()} | dict(more or {}))


def dependency_label(name: str) -> str:
    """Return a dependency, or where an event goes, as a label."""
    return QUEUE if name.startswith(QUEUE_PREFIX) else name


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has no value: an attribute has no null."""
    return {name: value for name, value in fields.items() if value is not None}
