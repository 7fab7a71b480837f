"""An attempt as those see it who watch: its span, its metric and its log line."""

from collections.abc import Awaitable, Callable

from engine.operation import AttemptOutcome, OperationInput
from telemetry import happenings, spans


async def observed(
    operation: OperationInput, number: int, attempt: Callable[[], Awaitable[AttemptOutcome]]
) -> AttemptOutcome:
    """Make an attempt, and tell how it ended. An execution that is repeated is told again: the call was made.

    Args:
        operation: Whose attempt it is.
        number: Which one, from 1.
        attempt: Makes it.
    """
    with spans.attempt(operation, number) as span:
        outcome = await attempt()
        spans.attempt_ended(span, outcome, happenings.outcome_name(outcome))
        happenings.attempted(operation, outcome)
    return outcome
