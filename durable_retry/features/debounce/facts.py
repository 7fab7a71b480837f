"""What is counted of operations with a debounce key."""

from typing import Final

from durable_retry.features.debounce.rules import debounce_outcome
from durable_retry.rules.facts import OperationEnded
from durable_retry.telemetry.facts import subscribe
from durable_retry.telemetry.metrics import Metric, MetricKind, record
from durable_retry.telemetry.spans import DEPENDENCY, OUTCOME

DEBOUNCED: Final = Metric(
    "durable_retry.debounced",
    MetricKind.COUNTER,
    "{operation}",
    (DEPENDENCY, OUTCOME),
    "Operations with a debounce key that ended: replaced by a later one, or ran.",
)


def record_facts() -> None:
    """Subscribe to the ends of operations."""
    subscribe(OperationEnded, count_end)


def count_end(fact: OperationEnded) -> None:
    """Count an operation that ran, or that a later one replaced."""
    outcome = debounce_outcome(fact.document)
    if outcome is not None:
        labels = {DEPENDENCY: fact.document["dependency"], OUTCOME: outcome}
        record(DEBOUNCED, 1, labels)
