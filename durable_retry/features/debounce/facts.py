"""What is counted of operations with a debounce key."""

from durable_retry.features.debounce.rules import debounce_outcome
from durable_retry.rules.facts import OperationEnded
from durable_retry.telemetry import metrics
from durable_retry.telemetry.facts import subscribe
from durable_retry.telemetry.spans import DEPENDENCY, OUTCOME


def record_facts() -> None:
    """Subscribe to the ends of operations."""
    subscribe(OperationEnded, count_end)


def count_end(fact: OperationEnded) -> None:
    """Count an operation that ran, or that a later one replaced."""
    outcome = debounce_outcome(fact.document)
    if outcome is not None:
        labels = {DEPENDENCY: fact.document["dependency"], OUTCOME: outcome}
        metrics.record(metrics.DEBOUNCED, 1, labels)
