"""Attribute names of spans, metrics and log lines; docs/observability.md describes each.

Labels of metrics come from closed sets and from dependencies.toml only. Ids and keys are on spans and in
log lines only, where they create no time series.
"""

from collections.abc import Mapping
from typing import Any, Final

from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.outbox import QUEUE_PREFIX

DEPENDENCY: Final = "durable_retry.dependency"
SOURCE: Final = "durable_retry.source"
OUTCOME: Final = "durable_retry.outcome"
STATUS: Final = "durable_retry.operation.status"
WAIT_KIND: Final = "durable_retry.wait.kind"
CIRCUIT_STATE: Final = "durable_retry.circuit.state"
CIRCUIT_STATE_BEFORE: Final = "durable_retry.circuit.previous_state"
CATEGORY: Final = "durable_retry.category"
ERROR_TYPE: Final = "error.type"
"""On a failed span, as in the semantic conventions. Application Insights drops it, so the category has a name
of its own."""
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
"""Label of all queues in place of a dependency: callers choose queue names, so no name is a label."""

_NAMES: Final = {
    OPERATION_ID: "operation_id",
    KEY: "key",
    DEPENDENCY: "dependency",
    CORRELATION_ID: "correlation_id",
}


def fields_of(operation: OperationInput, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the attributes that identify an operation, for a span or the `extra` of a log line.

    Args:
        operation: The operation.
        more: Further attributes; None values are dropped.
    """
    return present({name: getattr(operation, field) for name, field in _NAMES.items()} | dict(more or {}))


def fields_in(document: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the same from a status document."""
    return present({name: document[field] for name, field in _NAMES.items()} | dict(more or {}))


def dependency_label(name: str) -> str:
    """Return the label of a dependency or of an event's destination."""
    return QUEUE if name.startswith(QUEUE_PREFIX) else name


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop None values: attributes have no null."""
    return {name: value for name, value in fields.items() if value is not None}
