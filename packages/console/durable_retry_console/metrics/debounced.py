"""What became of operations with a debounce key, per minute; imported where the app has that feature."""

from durable_retry.features.debounce.rules import debounce_outcome
from durable_retry.rules.facts import OperationEnded
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.metrics.minutes import MINUTES


def record_facts() -> None:
    subscribe(OperationEnded, _count_end)


def _count_end(fact: OperationEnded) -> None:
    if (outcome := debounce_outcome(fact.document)) is not None:
        MINUTES.count(fact.document["dependency"], {f"debounce|{outcome}": 1})
