"""Which operations may probe a half-open circuit."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from durable_retry.engine.base.json_record import JsonRecord, MsInstant
from durable_retry.engine.circuit.breaker import Breaker, Lease, advanced, corrected
from durable_retry.engine.circuit.settings import CircuitSettings
from durable_retry.engine.circuit.snapshot import (
    ALL_PROBES_UNDER_WAY,
    RECHECK,
    THROTTLED,
    Permitted,
    Refused,
    refused,
)
from durable_retry.engine.circuit.states import CircuitState

SHORTEST_LEASE_SECONDS = 1.0
LONGEST_LEASE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ProbeRequest(JsonRecord):
    """The request of an operation to probe a half-open circuit.

    Attributes:
        operation_id: Of the operation.
        attempt: Number of the attempt that would probe, from 1; a repeated request for it gets the same
            lease.
        at: When it was made, aware UTC.
        lease_seconds: The longest that its call can take: the time limit of an attempt, and room for
            transport. After that the probe is free again. Limited to 1 s to 1 hour.
    """

    operation_id: str
    attempt: int
    at: MsInstant
    lease_seconds: float

    @property
    def lease_id(self) -> str:
        """The name of the lease: one per attempt."""
        return f"{self.operation_id}:{self.attempt}"


def probes_free(breaker: Breaker, settings: CircuitSettings) -> int:
    """Return how many probes may start: successes and probes in flight never exceed `half_open_calls`."""
    if breaker.state is not CircuitState.HALF_OPEN:
        return 0
    return max(0, settings.half_open_calls - breaker.probe_successes - len(breaker.leases))


def probe_requested(
    breaker: Breaker, request: ProbeRequest, settings: CircuitSettings
) -> tuple[Breaker, Permitted | Refused]:
    """Grant a lease, or return when to ask again.

    The circuit may have changed since the worker read it: closed permits without a lease, open and forced
    open refuse.
    """
    breaker = advanced(corrected(breaker, request.at), request.at)
    now = breaker.clock or request.at
    found = _obstacle(breaker, now, settings)
    if found is not None:
        return breaker, refused(request.operation_id, found[0], breaker.waiting, found[1])
    if breaker.state is not CircuitState.HALF_OPEN:
        return breaker, Permitted(epoch=breaker.epoch)
    for lease in breaker.leases:
        if lease.lease_id == request.lease_id:
            return breaker, _permitted(breaker, lease)
    if probes_free(breaker, settings) == 0:
        return breaker, refused(request.operation_id, now + RECHECK, breaker.waiting, ALL_PROBES_UNDER_WAY)
    seconds = min(max(request.lease_seconds, SHORTEST_LEASE_SECONDS), LONGEST_LEASE_SECONDS)
    lease = Lease(request.lease_id, now + timedelta(milliseconds=round(seconds * 1000)))
    return replace(breaker, leases=(*breaker.leases, lease)), _permitted(breaker, lease)


def _obstacle(breaker: Breaker, now: datetime, settings: CircuitSettings) -> tuple[datetime, str] | None:
    if breaker.state is CircuitState.FORCED_OPEN:
        until = now + timedelta(seconds=settings.max_break_seconds)
        return min(until, breaker.expires_at or until), f"the circuit is held open: {breaker.reason}"
    if breaker.state is CircuitState.OPEN:
        return breaker.retry_at or now + RECHECK, f"the circuit is open: {breaker.reason}"
    if breaker.throttled_until is not None and breaker.is_throttled(now):
        return breaker.throttled_until, THROTTLED
    return None


def _permitted(breaker: Breaker, lease: Lease) -> Permitted:
    return Permitted(breaker.epoch, lease_id=lease.lease_id, lease_expires_at=lease.expires_at)
