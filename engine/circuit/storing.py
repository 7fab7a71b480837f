"""The stored form of a circuit: small JSON, instants in milliseconds since 1970."""

from typing import Any

from engine.budget import Budget
from engine.circuit.audit import AuditEntry, AuditTrail
from engine.circuit.breaker import Breaker, Lease
from engine.circuit.reporters import Reporters
from engine.circuit.states import CircuitState
from engine.sliding_window import SlidingWindow, from_ms, optional_from_ms, optional_to_ms, to_ms

VERSION = 1


def breaker_to_json(breaker: Breaker) -> dict[str, Any]:
    """Write the whole state."""
    return {
        "version": VERSION,
        "state": str(breaker.state),
        "epoch": breaker.epoch,
        "clock": optional_to_ms(breaker.clock),
        "window": breaker.window.to_json(),
        "tripped_by": breaker.tripped_by.to_json(),
        "failures_in_a_row": breaker.failures_in_a_row,
        "opened_at": optional_to_ms(breaker.opened_at),
        "retry_at": optional_to_ms(breaker.retry_at),
        "reopenings": breaker.reopenings,
        "leases": [[lease.lease_id, to_ms(lease.expires_at)] for lease in breaker.leases],
        "probe_successes": breaker.probe_successes,
        "throttled_until": optional_to_ms(breaker.throttled_until),
        "waiting": breaker.waiting,
        "reopened_at": optional_to_ms(breaker.reopened_at),
        "draining_since": optional_to_ms(breaker.draining_since),
        "expires_at": optional_to_ms(breaker.expires_at),
        "reason": breaker.reason,
        "changed_by": breaker.changed_by,
        "audit": [entry.to_row() for entry in breaker.audit.entries],
        "reporters": breaker.reporters.to_rows(),
        "budget": breaker.budget.to_json(),
    }


def breaker_from_json(document: dict[str, Any] | None) -> Breaker:
    """Read `breaker_to_json`; None = nothing was ever stored.

    Raises:
        ValueError: if a later version of the engine wrote it.
    """
    if document is None:
        return Breaker()
    if document["version"] != VERSION:
        raise ValueError(f"a circuit of version {document['version']} cannot be read here")
    return Breaker(
        state=CircuitState(document["state"]),
        epoch=document["epoch"],
        clock=optional_from_ms(document["clock"]),
        window=SlidingWindow.from_json(document["window"]),
        # Not in what was stored before circuits kept it.
        tripped_by=SlidingWindow.from_json(document.get("tripped_by", document["window"] | {"rows": []})),
        failures_in_a_row=document["failures_in_a_row"],
        opened_at=optional_from_ms(document["opened_at"]),
        retry_at=optional_from_ms(document["retry_at"]),
        reopenings=document["reopenings"],
        leases=tuple(Lease(row[0], from_ms(row[1])) for row in document["leases"]),
        probe_successes=document["probe_successes"],
        throttled_until=optional_from_ms(document["throttled_until"]),
        waiting=document["waiting"],
        reopened_at=optional_from_ms(document["reopened_at"]),
        draining_since=optional_from_ms(document["draining_since"]),
        expires_at=optional_from_ms(document["expires_at"]),
        reason=document["reason"],
        changed_by=document["changed_by"],
        audit=AuditTrail(tuple(AuditEntry.from_row(row) for row in document["audit"])),
        reporters=Reporters.from_rows(document["reporters"]),
        budget=Budget.from_json(document["budget"]),
    )
