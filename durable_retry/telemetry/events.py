"""Events of operations and circuits, each recorded in metrics, log and trace.

Log lines carry the ids as attributes (`extra`) for searching. None of these functions is called while an
orchestrator replays.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from durable_retry.engine.base.json_forms import TraceContext, from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.circuit import CircuitState
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.telemetry import metrics, spans
from durable_retry.telemetry.minutes import MINUTES
from durable_retry.telemetry.spans import (
    ATTEMPT,
    ATTEMPT_COUNT,
    CATEGORY,
    CIRCUIT_STATE,
    CIRCUIT_STATE_BEFORE,
    DEAD_LETTER_ID,
    DEAD_LETTER_REASON,
    DEPENDENCY,
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

SUCCESS: Final = "success"
FAILURE: Final = "failure"
NOT_SENT: Final = "not_sent"
"""Outcomes of attempts. `not_sent`: never sent, the attempt is made again under its number."""

_OPEN: Final = frozenset({CircuitState.OPEN, CircuitState.FORCED_OPEN})

STARTED: Final = "started"
"""Outcome of a submission that was accepted as a new operation."""

_log = logging.getLogger(__name__)


def submitted(operation: OperationInput, outcome: str) -> None:
    """Record a submission.

    Args:
        operation: The submitted operation.
        outcome: `started`, `replayed` (the key was used for the same before) or `key_reused` (for another).
    """
    labels = {DEPENDENCY: operation.dependency, SOURCE: operation.source, OUTCOME: outcome}
    metrics.record(metrics.SUBMISSIONS, 1, labels)
    if outcome == STARTED:
        MINUTES.started(operation.dependency)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "operation %s (key %s): %s",
            operation.operation_id,
            operation.key,
            outcome,
            extra=fields_of(operation, {SOURCE: operation.source, OUTCOME: outcome}),
        )


def outcome_name(outcome: AttemptOutcome) -> str:
    """Return the outcome's name in metrics and on spans."""
    if outcome.category is None:
        return SUCCESS
    return FAILURE if outcome.counted else NOT_SENT


def attempted(operation: OperationInput, outcome: AttemptOutcome) -> None:
    """Record an attempt that has ended."""
    name = outcome_name(outcome)
    category = None if outcome.category is None else outcome.category.value
    dependency = dependency_label(operation.dependency)
    labels = {DEPENDENCY: dependency, OUTCOME: name, CATEGORY: category}
    metrics.record(metrics.ATTEMPT_DURATION, outcome.duration_ms / 1_000, present(labels))
    if outcome.counted and outcome.number > 1:
        metrics.record(metrics.RETRIES, 1, {DEPENDENCY: dependency})
    MINUTES.attempted(dependency, outcome.number, category, outcome.duration_ms, counted=name != NOT_SENT)
    level = logging.DEBUG if category is None else logging.INFO
    if not _log.isEnabledFor(level):
        return
    _log.log(
        level,
        "operation %s (key %s): attempt %d of %s: %s",
        operation.operation_id,
        operation.key,
        outcome.number,
        operation.dependency,
        category or name,
        extra=fields_of(
            operation,
            {
                ATTEMPT: outcome.number,
                OUTCOME: name,
                CATEGORY: category,
                HTTP_STATUS: outcome.status_code,
            },
        ),
    )


def wait_begun(operation: OperationInput, kind: str, until: datetime, reasons: tuple[str, ...]) -> None:
    """Record that an operation waits.

    Args:
        operation: The operation.
        kind: `retry`, `circuit`, `retry_budget` or `limit`.
        until: Planned end of the wait.
        reasons: Of the wait's length.
    """
    _log.info(
        "operation %s (key %s): waits until %s (%s)",
        operation.operation_id,
        operation.key,
        to_rfc3339(until),
        kind,
        extra=fields_of(operation, {WAIT_KIND: kind, WAIT_REASONS: "; ".join(reasons) or None}),
    )


def wait_over(operation: OperationInput, kind: str, seconds: float) -> None:
    """Record how long a wait was.

    Args:
        operation: The operation.
        kind: As of `wait_begun`.
        seconds: Actual length.
    """
    metrics.record(metrics.WAIT_DURATION, seconds, {DEPENDENCY: operation.dependency, WAIT_KIND: kind})
    MINUTES.waited(operation.dependency, kind, seconds)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "operation %s (key %s): waited %.1f s (%s)",
            operation.operation_id,
            operation.key,
            seconds,
            kind,
            extra=fields_of(operation, {WAIT_KIND: kind, WAIT_SECONDS: seconds}),
        )


def operation_ended(document: Mapping[str, Any], trace: TraceContext | None) -> None:
    """Record how an operation ended; never raises.

    Args:
        document: Its last status document.
        trace: Trace context of its submission; None without tracing.
    """
    try:
        with spans.at(trace):
            _record_end(document, trace)
    except Exception:  # noqa: BLE001 - telemetry must not undo the completion that it reports
        _log.exception("recording the end of operation %s failed", document.get("operation_id"))


def _record_end(document: Mapping[str, Any], trace: TraceContext | None) -> None:
    status, letter = document["status"], document["dead_letter"] or {}
    seconds = (from_rfc3339(document["updated_at"]) - from_rfc3339(document["created_at"])).total_seconds()
    labels = {DEPENDENCY: document["dependency"], STATUS: status}
    metrics.record(metrics.OPERATION_DURATION, seconds, labels)
    MINUTES.ended(document["dependency"], status, seconds)
    spans.operation_ended(document, trace)
    details = {
        STATUS: status,
        ATTEMPT_COUNT: document["attempt_count"],
        DEAD_LETTER_ID: letter.get("id"),
        DEAD_LETTER_REASON: letter.get("reason"),
    }
    _log.log(
        logging.WARNING if status == OperationState.DEAD_LETTERED else logging.INFO,
        "operation %s (key %s): %s after %d attempts in %.1f s",
        document["operation_id"],
        document["key"],
        status,
        document["attempt_count"],
        seconds,
        extra=fields_in(document, details),
    )


def circuit_moved(dependency: str, before: CircuitState, after: CircuitState, reason: str) -> None:
    """Record a state change of a circuit.

    Args:
        dependency: Its name.
        before: Previous state.
        after: New state.
        reason: Why, for a person.
    """
    labels = {DEPENDENCY: dependency, CIRCUIT_STATE_BEFORE: before.value, CIRCUIT_STATE: after.value}
    metrics.record(metrics.CIRCUIT_MOVES, 1, labels)
    if after in _OPEN:
        MINUTES.opened(dependency)
    _log.warning("circuit of %s: %s, was %s: %s", dependency, after, before, reason, extra=labels)


def circuit_failed_open(dependency: str) -> None:
    """Count an attempt made without the circuit; the circuit cache logs why."""
    metrics.record(metrics.FAILED_OPEN_CALLS, 1, {DEPENDENCY: dependency})


def retry_postponed(dependency: str) -> None:
    """Count a retry that the retry budget postponed."""
    metrics.record(metrics.POSTPONEMENTS, 1, {DEPENDENCY: dependency})
