from datetime import timedelta
from typing import Any, Final

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.rules.facts import AttemptEnded, Fact, OperationEnded, SubmissionOutcome, Submitted
from durable_retry_console.metrics.counts import COUNTED, Counts, summed
from tests.support.builders import NOON, an_operation, an_outcome

STARTED: Final = Submitted(an_operation(), SubmissionOutcome.STARTED)


def counted(*given: Fact) -> Counts:
    """What counts of facts, whatever the dependency."""
    return summed(COUNTED[type(fact)](fact)[1] for fact in given)


def attempt_ended(duration_ms: float, category: Category | None = None, **more: Any) -> AttemptEnded:
    """An attempt at `payments` ended."""
    outcome = an_outcome(category, duration_ms=duration_ms, **more)
    return AttemptEnded(an_operation(), outcome, was_held=False)


def operation_ended(seconds: float, **more: Any) -> OperationEnded:
    """An operation at `payments` succeeded so long after its acceptance."""
    instants = {"created_at": to_rfc3339(NOON), "updated_at": to_rfc3339(NOON + timedelta(seconds=seconds))}
    return OperationEnded({"dependency": "payments", "status": "succeeded", **instants, **more}, None)
