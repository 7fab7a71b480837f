"""Manual control of a circuit: open, close, disable, reset."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, assert_never

from durable_retry.engine.base.instants import from_ms, to_ms
from durable_retry.engine.base.json_record import Form, JsonRecord, MsInstant
from durable_retry.engine.circuit.audit import BY_CHARACTERS, REASON_CHARACTERS, AuditEntry, ManualControl
from durable_retry.engine.circuit.breaker import Breaker, advanced, corrected, freed, moved
from durable_retry.engine.circuit.retry_budget import Budget
from durable_retry.engine.circuit.states import CircuitMove


@dataclass(frozen=True, slots=True)
class ManualAction(JsonRecord):
    """One use of manual control.

    Attributes:
        control: What to do; stored as `hand`.
        at: When, aware UTC.
        by: Who.
        reason: Why.
        for_seconds: How long opening or disabling lasts, above 0; None means until the next manual control.
            Ignored for closing and resetting, which have no duration.
    """

    control: Annotated[ManualControl, Form(name="hand")]
    at: MsInstant
    by: str
    reason: str
    for_seconds: float | None = None


def apply_manual_action(breaker: Breaker, action: ManualAction) -> Breaker:
    """Apply a manual control and record it. A message that arrives twice is applied once.

    An action that arrives after a later one is recorded only: the latest action of a person wins.
    """
    until = _until(action)
    entry = AuditEntry(
        at=from_ms(to_ms(action.at)),
        control=action.control,
        by=action.by[:BY_CHARACTERS],
        reason=action.reason[:REASON_CHARACTERS],
        until=until,
    )
    if entry in breaker.audit.entries:
        return breaker
    breaker = advanced(corrected(breaker, action.at), action.at)
    if not breaker.audit.has_later_than(entry):
        breaker = _changed(breaker, entry, breaker.clock or action.at)
    # A control whose time was over before its message arrived ends at once.
    return advanced(replace(breaker, audit=breaker.audit.with_entry(entry)), action.at)


def _until(action: ManualAction) -> datetime | None:
    if action.for_seconds is None or action.control in {ManualControl.CLOSE, ManualControl.RESET}:
        return None
    return from_ms(to_ms(action.at + timedelta(seconds=action.for_seconds)))


def _changed(breaker: Breaker, entry: AuditEntry, now: datetime) -> Breaker:
    match entry.control:
        case ManualControl.OPEN:
            return _held_open(breaker, entry, now)
        case ManualControl.DISABLE:
            free = freed(breaker, CircuitMove.DISABLE, now, reason=entry.reason, by=entry.by)
            return replace(free, expires_at=entry.until)
        case ManualControl.CLOSE:
            return freed(breaker, CircuitMove.CLOSE, now, reason=entry.reason, by=entry.by)
        case ManualControl.RESET:
            return _reset(freed(breaker, CircuitMove.RESET, now, reason=entry.reason, by=entry.by), now)
        case _ as never:
            assert_never(never)


def _held_open(breaker: Breaker, entry: AuditEntry, now: datetime) -> Breaker:
    return replace(
        moved(breaker, CircuitMove.FORCE_OPEN, now, reason=entry.reason, by=entry.by),
        opened_at=now,
        retry_at=None,
        reopened_at=None,
        draining_since=None,
        expires_at=entry.until,
    )


def _reset(breaker: Breaker, now: datetime) -> Breaker:
    """Start anew, keeping the epoch, the audit trail, the counted reports and the waiting operations."""
    was_throttled = breaker.is_throttled(now)
    return replace(
        breaker,
        throttled_until=None,
        budget=Budget(),
        reopened_at=now if was_throttled else breaker.reopened_at,
        draining_since=now if was_throttled else breaker.draining_since,
    )
