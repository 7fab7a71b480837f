"""The end of an operation in a call whose circuit opens before it has ended."""

from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.rules.retry.decide import DeadLetter, Wait
from durable_retry.rules.retry.history import WaitKind

from .run import Run


def in_place_of(run: Run, wait: Wait) -> DeadLetter | None:
    """Return how the operation of a call ends in place of a wait for its circuit: its caller may fall back.

    Anyone else was answered that it is accepted.
    """
    if wait.kind is not WaitKind.CIRCUIT or run.operation.source != "call":
        return None
    return DeadLetter(Category.CIRCUIT_OPEN, DeadLetterReason.CIRCUIT_OPEN, "; ".join(wait.reasons))
