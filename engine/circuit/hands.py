"""What a person does to a circuit: open, close, disable, reset."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from engine.budget import Budget
from engine.circuit.audit import BY_CHARACTERS, REASON_CHARACTERS, AuditEntry, Hand
from engine.circuit.breaker import Breaker, advanced, corrected, freed, moved
from engine.circuit.states import Move
from engine.sliding_window import from_ms, to_ms


@dataclass(frozen=True, slots=True)
class HandAction:
    """One thing done by hand.

    Attributes:
        hand: what.
        at: when.
        by: who.
        reason: why.
        for_seconds: how long opening or disabling lasts, above 0; None = until another hand. Closing and
            resetting are moments and have no length: there it is ignored.
    """

    hand: Hand
    at: datetime
    by: str
    reason: str
    for_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For a signal; the instant in milliseconds since 1970."""
        return {
            "hand": str(self.hand),
            "at": to_ms(self.at),
            "by": self.by,
            "reason": self.reason,
            "for_seconds": self.for_seconds,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "HandAction":
        """Read `to_json`."""
        return cls(
            hand=Hand(document["hand"]),
            at=from_ms(document["at"]),
            by=document["by"],
            reason=document["reason"],
            for_seconds=document["for_seconds"],
        )


def handled(breaker: Breaker, action: HandAction) -> Breaker:
    """Do it, and note it in the trail. The same message arriving twice is done once.

    One that arrives after what was done later is noted only: what a person did last is what holds.
    """
    until = _until(action)
    entry = AuditEntry(
        at=from_ms(to_ms(action.at)),
        hand=action.hand,
        by=action.by[:BY_CHARACTERS],
        reason=action.reason[:REASON_CHARACTERS],
        until=until,
    )
    if entry in breaker.audit.entries:
        return breaker
    breaker = advanced(corrected(breaker, action.at), action.at)
    if not breaker.audit.is_outdone(entry):
        breaker = _changed(breaker, entry, breaker.clock or action.at)
    # A hold that was over before its message arrived ends at once.
    return advanced(replace(breaker, audit=breaker.audit.with_entry(entry)), action.at)


def _until(action: HandAction) -> datetime | None:
    if action.for_seconds is None or action.hand in {Hand.CLOSE, Hand.RESET}:
        return None
    return from_ms(to_ms(action.at + timedelta(seconds=action.for_seconds)))


def _changed(breaker: Breaker, entry: AuditEntry, now: datetime) -> Breaker:
    match entry.hand:
        case Hand.OPEN:
            return _held_open(breaker, entry, now)
        case Hand.DISABLE:
            free = freed(breaker, Move.DISABLE, now, reason=entry.reason, by=entry.by)
            return replace(free, expires_at=entry.until)
        case Hand.CLOSE:
            return freed(breaker, Move.CLOSE, now, reason=entry.reason, by=entry.by)
        case Hand.RESET:
            return _reset(freed(breaker, Move.RESET, now, reason=entry.reason, by=entry.by), now)
        case _ as never:
            assert_never(never)


def _held_open(breaker: Breaker, entry: AuditEntry, now: datetime) -> Breaker:
    return replace(
        moved(breaker, Move.FORCE_OPEN, now, reason=entry.reason, by=entry.by),
        opened_at=now,
        retry_at=None,
        reopened_at=None,
        draining_since=None,
        expires_at=entry.until,
    )


def _reset(breaker: Breaker, now: datetime) -> Breaker:
    """As new, but for what must outlive it: the epoch, the trail, whose reports were counted, who waits."""
    was_throttled = breaker.is_throttled(now)
    return replace(
        breaker,
        throttled_until=None,
        budget=Budget(),
        reopened_at=now if was_throttled else breaker.reopened_at,
        draining_since=now if was_throttled else breaker.draining_since,
    )
