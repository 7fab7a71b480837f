"""Who may probe a half-open circuit."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from engine.circuit.breaker import Breaker, Lease, advanced, corrected
from engine.circuit.settings import CircuitSettings
from engine.circuit.snapshot import ALL_PROBES_UNDER_WAY, RECHECK, THROTTLED, Permitted, Refused, refused
from engine.circuit.states import CircuitState
from engine.sliding_window import from_ms, to_ms

SHORTEST_LEASE_SECONDS = 1.0
LONGEST_LEASE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """An operation asks to go through a half-open circuit.

    Attributes:
        operation_id: who asks.
        attempt: number of the attempt that would probe, 1-based; asking twice for it gives the same lease.
        at: when it asks.
        lease_seconds: how long its call can take at most: the time limit of an attempt and some room for
            its transport. Without a result by then the probe is free again. Held between 1 s and an hour.
    """

    operation_id: str
    attempt: int
    at: datetime
    lease_seconds: float

    def to_json(self) -> dict[str, Any]:
        """For a call of the entity; the instant in milliseconds since 1970."""
        return {
            "operation_id": self.operation_id,
            "attempt": self.attempt,
            "at": to_ms(self.at),
            "lease_seconds": self.lease_seconds,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "ProbeRequest":
        """Read `to_json`."""
        return cls(
            operation_id=document["operation_id"],
            attempt=document["attempt"],
            at=from_ms(document["at"]),
            lease_seconds=document["lease_seconds"],
        )

    @property
    def lease_id(self) -> str:
        """Name of the lease: one per attempt."""
        return f"{self.operation_id}:{self.attempt}"


def probes_free(breaker: Breaker, settings: CircuitSettings) -> int:
    """Probes that may still start: successes so far and probes in flight never exceed `half_open_calls`."""
    if breaker.state is not CircuitState.HALF_OPEN:
        return 0
    return max(0, settings.half_open_calls - breaker.probe_successes - len(breaker.leases))


def probe_requested(
    breaker: Breaker, request: ProbeRequest, settings: CircuitSettings
) -> tuple[Breaker, Permitted | Refused]:
    """Grant a lease, or say when to come back.

    By the time the question arrives the circuit may be anything: closed permits without a lease, open and
    forced open refuse.
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
