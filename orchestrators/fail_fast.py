"""The end of an operation in a call whose circuit opens before it has ended."""

from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.hub.turns import Turns
from durable_retry.rules.retry.decide import DeadLetter, Decision, Wait
from durable_retry.rules.retry.history import WaitKind

from .run import Run


def in_place_of(run: Run, decision: Decision) -> Turns[Decision]:
    """Return how the operation of a call ends in place of a wait for its circuit: its caller may fall back.

    Other operations were accepted, so they wait. Any other decision is returned as it is.
    """
    yield from ()
    if not isinstance(decision, Wait) or decision.kind is not WaitKind.CIRCUIT:
        return decision
    if run.operation.source != "call":
        return decision
    return DeadLetter(Category.CIRCUIT_OPEN, DeadLetterReason.CIRCUIT_OPEN, "; ".join(decision.reasons))
