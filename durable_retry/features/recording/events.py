"""Facts of operations and circuits (`rules.facts`), each recorded in metrics, log and trace.

Log lines carry the ids as attributes (`extra`) for searching.
"""

import logging

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OperationState, Priority
from durable_retry.base.text import counted
from durable_retry.features.recording import metrics, spans
from durable_retry.features.recording.spans import (
    ATTEMPT_COUNT,
    CIRCUIT_OF,
    CIRCUIT_STATE_BEFORE,
    PRIORITY,
    STATUS,
    WAIT_KIND,
    WAIT_REASONS,
    WAIT_SECONDS,
    fields_in,
)
from durable_retry.rules.facts import (
    ActedOn,
    AttemptEnded,
    CircuitBypassed,
    CircuitChanged,
    DeliveryEnded,
    OperationEnded,
    RetryPostponed,
    Submitted,
    WaitBegun,
    WaitEnded,
)
from durable_retry.rules.operations.status import lasted_seconds
from durable_retry.telemetry.facts import subscribe
from durable_retry.telemetry.metrics import record
from durable_retry.telemetry.spans import (
    ATTEMPT,
    CATEGORY,
    CIRCUIT_STATE,
    DEAD_LETTER_ID,
    DEAD_LETTER_REASON,
    DEPENDENCY,
    HTTP_STATUS,
    OUTCOME,
    SOURCE,
    dependency_label,
    fields_of,
    outcome_name,
    present,
)

_log = logging.getLogger(__name__)


def record_facts() -> None:
    """Subscribe to what metrics, log and trace show."""
    subscribe(Submitted, submitted)
    subscribe(AttemptEnded, attempted)
    subscribe(DeliveryEnded, attempted)
    subscribe(WaitBegun, wait_begun)
    subscribe(WaitEnded, wait_ended)
    subscribe(ActedOn, acted_on)
    subscribe(OperationEnded, operation_ended)
    subscribe(CircuitChanged, circuit_changed)
    subscribe(CircuitBypassed, circuit_bypassed)
    subscribe(RetryPostponed, retry_postponed)


def submitted(fact: Submitted) -> None:
    """Record a submission."""
    operation, outcome = fact.operation, fact.outcome.value
    labels = {DEPENDENCY: operation.dependency, SOURCE: operation.source, OUTCOME: outcome}
    record(metrics.SUBMISSIONS, 1, labels | {PRIORITY: operation.priority or Priority.NORMAL})
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "operation %s (key %s): %s",
            operation.operation_id,
            operation.key,
            outcome,
            extra=fields_of(operation, {SOURCE: operation.source, OUTCOME: outcome}),
        )


def attempted(fact: AttemptEnded | DeliveryEnded) -> None:
    """Record an attempt that has ended."""
    operation, outcome = fact.operation, fact.outcome
    name = outcome_name(outcome)
    category = None if outcome.category is None else outcome.category.value
    dependency = dependency_label(operation.dependency)
    labels = {DEPENDENCY: dependency, OUTCOME: name, CATEGORY: category}
    record(metrics.ATTEMPT_DURATION, outcome.duration_ms / 1_000, present(labels))
    if outcome.counted and outcome.number > 1:
        record(metrics.RETRIES, 1, {DEPENDENCY: dependency})
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
            {ATTEMPT: outcome.number, OUTCOME: name, CATEGORY: category, HTTP_STATUS: outcome.status_code},
        ),
    )


def wait_begun(fact: WaitBegun) -> None:
    """Log that an operation waits, in the trace of its submission: an orchestrator's turn may have none."""
    operation = fact.operation
    details = {WAIT_KIND: fact.kind, WAIT_REASONS: "; ".join(fact.reasons) or None}
    with spans.at(operation.trace):
        _log.info(
            "operation %s (key %s): waits until %s (%s)",
            operation.operation_id,
            operation.key,
            to_rfc3339(fact.until),
            fact.kind,
            extra=fields_of(operation, details),
        )


def wait_ended(fact: WaitEnded) -> None:
    """Record the length of a wait that is over, in the trace of its submission."""
    with spans.at(fact.operation.trace):
        _record_wait(fact)


def _record_wait(fact: WaitEnded) -> None:
    operation = fact.operation
    labels = {DEPENDENCY: operation.dependency, WAIT_KIND: fact.kind}
    labels[PRIORITY] = operation.priority or Priority.NORMAL
    record(metrics.WAIT_DURATION, fact.seconds, labels)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "operation %s (key %s): waited %.1f s (%s)",
            operation.operation_id,
            operation.key,
            fact.seconds,
            fact.kind,
            extra=fields_of(operation, {WAIT_KIND: fact.kind, WAIT_SECONDS: fact.seconds}),
        )


def acted_on(fact: ActedOn) -> None:
    """Log what somebody asked of an operation."""
    document = fact.document
    _log.info(
        "operation %s (key %s): %s, asked for by %s",
        document["operation_id"],
        document["key"],
        fact.action,
        fact.by or "nobody by name",
        extra=fields_in(document),
    )


def operation_ended(fact: OperationEnded) -> None:
    """Record how an operation ended, in the trace of its submission."""
    with spans.at(fact.trace):
        _record_end(fact)


def _record_end(fact: OperationEnded) -> None:
    document, trace = fact.document, fact.trace
    status, letter = document["status"], document["dead_letter"] or {}
    seconds = lasted_seconds(document)
    dependency = document["dependency"]
    labels = {DEPENDENCY: dependency, STATUS: status, PRIORITY: document.get("priority") or Priority.NORMAL}
    record(metrics.OPERATION_DURATION, seconds, labels)
    spans.operation_ended(document, trace)
    details = {
        STATUS: status,
        ATTEMPT_COUNT: document["attempt_count"],
        DEAD_LETTER_ID: letter.get("id"),
        DEAD_LETTER_REASON: letter.get("reason"),
    }
    _log.log(
        logging.WARNING if status == OperationState.DEAD_LETTERED else logging.INFO,
        "operation %s (key %s): %s after %s in %.1f s",
        document["operation_id"],
        document["key"],
        status,
        counted(document["attempt_count"], "attempt"),
        seconds,
        extra=fields_in(document, details),
    )


def circuit_changed(fact: CircuitChanged) -> None:
    """Record a state change of a circuit."""
    before, after = fact.before, fact.after
    of = "dependency" if fact.limit_key is None else "limit_key"
    states = {CIRCUIT_STATE_BEFORE: before.value, CIRCUIT_STATE: after.value}
    labels = {DEPENDENCY: fact.dependency, CIRCUIT_OF: of, **states}
    record(metrics.CIRCUIT_MOVES, 1, labels)
    _log.warning("circuit of %s: %s, was %s: %s", fact.circuit, after, before, fact.evidence, extra=labels)


def circuit_bypassed(fact: CircuitBypassed) -> None:
    """Count an attempt made without the circuit; the circuit cache logs why."""
    record(metrics.FAILED_OPEN_CALLS, 1, {DEPENDENCY: fact.dependency})


def retry_postponed(fact: RetryPostponed) -> None:
    """Count a retry that the retry budget postponed."""
    record(metrics.POSTPONEMENTS, 1, {DEPENDENCY: fact.dependency})
