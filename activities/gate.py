"""An attempt's way through the gate of its dependency, and what it says of the dependency afterwards."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from engine.circuit import Permitted, Verdict, verdict_of
from engine.dependency import Dependency
from engine.gate import Stop, Ticket
from engine.operation import AttemptOutcome, OperationInput
from engine.policy import RetryPolicy
from engine.vocabulary import Category
from stores import clock
from stores.circuit_copy import CircuitCopy
from stores.circuits import circuit_of

type Attempt = Callable[[], Awaitable[AttemptOutcome]]


async def through_gate(
    hub: str,
    dependency: Dependency | None,
    operation: OperationInput,
    *,
    number: int,
    ticket: Ticket,
    attempt: Attempt,
) -> AttemptOutcome | Stop:
    """Make an attempt if the retry budget and the circuit let it through, and tell the circuit how it ended.

    Args:
        hub: Configuration of the durable client.
        dependency: What it calls; None when it is not configured here any more: the attempt says so.
        operation: Whose attempt it is.
        number: Which one, from 1.
        ticket: What the operation brings to the gate.
        attempt: Makes it.
    """
    circuit = None if dependency is None else circuit_of(hub, dependency)
    if circuit is None:
        return await attempt()
    answer = await circuit.enter(operation.operation_id, number, ticket)
    if not isinstance(answer, Permitted):
        return answer
    return await _told(circuit, answer, operation.policy, attempt)


async def _told(
    circuit: CircuitCopy, permitted: Permitted, policy: RetryPolicy, attempt: Attempt
) -> AttemptOutcome:
    try:
        outcome = await attempt()
    except BaseException:
        # Our own storage failed, or the host gave up on us: that says nothing of the dependency, but a probe
        # that was lent must be given back.
        await circuit.leave(permitted, Verdict.SILENT, duration_seconds=0.0)
        raise
    await circuit.leave(
        permitted,
        verdict_on(outcome),
        duration_seconds=outcome.duration_ms / 1000,
        throttled_until=pause_asked_by(outcome, policy, clock.now()),
    )
    return outcome


def verdict_on(outcome: AttemptOutcome) -> Verdict:
    """Judge the dependency by an attempt; one that never left this side says nothing."""
    return verdict_of(outcome.category, outcome.status_code) if outcome.counted else Verdict.SILENT


def pause_asked_by(outcome: AttemptOutcome, policy: RetryPolicy, now: datetime) -> datetime | None:
    """Tell until when a dependency wants to be left alone by everybody; None when it does not.

    As long as an operation itself would wait for it: within `max_retry_after_seconds`, and not at all when
    the policy does not respect such wishes.
    """
    hint = outcome.retry_hint
    if outcome.category is not Category.THROTTLED or hint is None or not hint.is_usable:
        return None
    if not policy.respect_retry_after:
        return None
    return now + timedelta(seconds=min(hint.delay_seconds, policy.max_retry_after_seconds))
