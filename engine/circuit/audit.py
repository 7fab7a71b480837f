"""What was done to a circuit by hand."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.instants import optional_to_rfc3339, to_rfc3339
from engine.sliding_window import from_ms, optional_from_ms, optional_to_ms, to_ms

KEPT_ENTRIES = 50
KEPT_BYTES = 4_000
"""The trail is part of a state that workers read each second; long reasons push old entries out earlier."""
REASON_CHARACTERS = 200
BY_CHARACTERS = 64


class Hand(StrEnum):
    """What a person can do."""

    OPEN = "open"
    CLOSE = "close"
    DISABLE = "disable"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing done by hand.

    Attributes:
        at: when.
        hand: what.
        by: who, cut to 64 characters.
        reason: why, cut to 200 characters.
        until: when it ends by itself; None = never.
    """

    at: datetime
    hand: Hand
    by: str
    reason: str
    until: datetime | None

    def to_row(self) -> list[Any]:
        """For the stored state."""
        return [to_ms(self.at), str(self.hand), self.by, self.reason, optional_to_ms(self.until)]

    @classmethod
    def from_row(cls, row: list[Any]) -> "AuditEntry":
        """Read `to_row`."""
        return cls(from_ms(row[0]), Hand(row[1]), row[2], row[3], optional_from_ms(row[4]))

    def to_view(self) -> dict[str, Any]:
        """For the API."""
        return {
            "at": to_rfc3339(self.at),
            "action": str(self.hand),
            "by": self.by,
            "reason": self.reason,
            "until": optional_to_rfc3339(self.until),
        }


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """The last things done by hand, oldest first: at most 50, and at most 4,000 bytes of JSON."""

    entries: tuple[AuditEntry, ...] = ()

    def is_outdone(self, entry: AuditEntry) -> bool:
        """Tell whether something was done later than this."""
        return any(entry.at < other.at for other in self.entries)

    def with_entry(self, entry: AuditEntry) -> "AuditTrail":
        """With one more in its place; the oldest go when there is no room."""
        kept = sorted([*self.entries, entry], key=lambda each: each.at)[-KEPT_ENTRIES:]
        while len(kept) > 1 and _size(kept) > KEPT_BYTES:
            del kept[0]
        return AuditTrail(tuple(kept))


def _size(entries: list[AuditEntry]) -> int:
    return len(json.dumps([entry.to_row() for entry in entries]))
