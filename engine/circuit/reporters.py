"""Whose reports were counted, so that a report that is delivered twice counts once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.sliding_window import from_ms, to_ms

KEPT = 32
"""Reporters remembered, the most recently heard. A forgotten one's duplicates would count again."""
NAME_CHARACTERS = 32
"""Only so much of a reporter's name is kept and compared."""
LATE = 32
"""A report may be overtaken by this many later ones of its reporter and still count."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """What is remembered of one worker process.

    Attributes:
        name: its id.
        highest: highest sequence number counted.
        counted: bit k set = number `highest - k` was counted.
        seen_at: when it was last heard.
    """

    name: str
    highest: int
    counted: int
    seen_at: datetime

    def has(self, sequence: int) -> bool:
        """Whether this number was counted, or is too old to tell."""
        behind = self.highest - sequence
        return behind >= 0 and (behind >= LATE or bool(self.counted >> behind & 1))

    def with_number(self, sequence: int, at: datetime) -> "Reporter":
        """Remember a number that was not counted before."""
        ahead = sequence - self.highest
        if ahead > 0:
            counted = self.counted << min(ahead, LATE) | 1
            return Reporter(self.name, sequence, counted & (1 << LATE) - 1, at)
        return Reporter(self.name, self.highest, self.counted | 1 << -ahead, at)


@dataclass(frozen=True, slots=True)
class Reporters:
    """The reporters that are remembered, most recently heard last."""

    remembered: tuple[Reporter, ...] = ()

    def has_counted(self, name: str, sequence: int) -> bool:
        """Whether this report was counted before."""
        known = self._named(name)
        return known is not None and known.has(sequence)

    def with_report(self, name: str, sequence: int, at: datetime) -> "Reporters":
        """Remember a report that counts now."""
        known = self._named(name)
        fresh = Reporter(name[:NAME_CHARACTERS], sequence, 1, at)
        updated = fresh if known is None else known.with_number(sequence, at)
        others = tuple(reporter for reporter in self.remembered if reporter is not known)
        return Reporters((*others, updated)[-KEPT:])

    def highest(self, name: str) -> int:
        """The highest sequence number counted of a reporter; 0 = none is remembered."""
        known = self._named(name)
        return 0 if known is None else known.highest

    def active(self, since: datetime) -> int:
        """How many were heard since an instant."""
        return sum(reporter.seen_at >= since for reporter in self.remembered)

    def _named(self, name: str) -> Reporter | None:
        kept_name = name[:NAME_CHARACTERS]
        return next((reporter for reporter in self.remembered if reporter.name == kept_name), None)

    def to_rows(self) -> list[list[Any]]:
        """For the stored state."""
        return [[r.name, r.highest, r.counted, to_ms(r.seen_at)] for r in self.remembered]

    @classmethod
    def from_rows(cls, rows: list[list[Any]]) -> "Reporters":
        """Read `to_rows`."""
        return cls(tuple(Reporter(row[0], row[1], row[2], from_ms(row[3])) for row in rows))
