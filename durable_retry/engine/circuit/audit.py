"""The record of manual control of a circuit."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from durable_retry.engine.base.instants import (
    from_ms,
    optional_from_ms,
    optional_to_ms,
    optional_to_rfc3339,
    to_ms,
    to_rfc3339,
)

KEPT_ENTRIES = 50
KEPT_BYTES = 4_000
"""The trail is part of a state that workers read every second; long reasons leave room for fewer entries."""
REASON_CHARACTERS = 200
BY_CHARACTERS = 64


class ManualControl(StrEnum):
    """What a person can do to a circuit."""

    OPEN = "open"
    CLOSE = "close"
    DISABLE = "disable"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One use of manual control.

    Attributes:
        at: When, aware UTC.
        control: What was done.
        by: Who, cut to 64 characters.
        reason: Why, cut to 200 characters.
        until: When it ends by itself; None means never.
    """

    at: datetime
    control: ManualControl
    by: str
    reason: str
    until: datetime | None

    def to_row(self) -> list[Any]:
        """Return the stored row."""
        return [to_ms(self.at), str(self.control), self.by, self.reason, optional_to_ms(self.until)]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """Read the stored row."""
        return cls(from_ms(row[0]), ManualControl(row[1]), row[2], row[3], optional_from_ms(row[4]))

    def to_view(self) -> dict[str, Any]:
        """Return the form of the API."""
        return {
            "at": to_rfc3339(self.at),
            "action": str(self.control),
            "by": self.by,
            "reason": self.reason,
            "until": optional_to_rfc3339(self.until),
        }


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """The latest entries, oldest first: at most 50, and at most 4,000 bytes of JSON."""

    entries: tuple[AuditEntry, ...] = ()

    def to_json(self) -> list[list[Any]]:
        """Return the stored rows."""
        return [entry.to_row() for entry in self.entries]

    @classmethod
    def from_json(cls, rows: Iterable[Sequence[Any]]) -> Self:
        """Read the stored rows."""
        return cls(tuple(AuditEntry.from_row(row) for row in rows))

    def has_later_than(self, entry: AuditEntry) -> bool:
        """Return whether a later entry exists."""
        return any(entry.at < other.at for other in self.entries)

    def with_entry(self, entry: AuditEntry) -> "AuditTrail":
        """Return the trail with one more entry, sorted by time; the oldest go when there is no room."""
        kept = sorted([*self.entries, entry], key=lambda each: each.at)[-KEPT_ENTRIES:]
        while len(kept) > 1 and _size(kept) > KEPT_BYTES:
            del kept[0]
        return AuditTrail(tuple(kept))


def _size(entries: list[AuditEntry]) -> int:
    return len(json.dumps([entry.to_row() for entry in entries]))
