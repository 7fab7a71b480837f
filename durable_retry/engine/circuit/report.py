"""The results that a worker reports to the shared circuit.

Each report is counted once, although it may be delivered twice: `Reporters` remembers which were counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, assert_never

from durable_retry.engine.base.enums import Category
from durable_retry.engine.base.instants import from_ms, to_ms
from durable_retry.engine.base.json_record import JsonRecord, MsInstant
from durable_retry.engine.base.sliding_window import SlidingWindow

_SERVER_ERRORS = 500


class CallHealth(StrEnum):
    """How the breaker counts a call."""

    SUCCESS = "success"
    FAILURE = "failure"
    SILENT = "silent"  # counts as neither call nor failure


def call_health(category: Category | None, status_code: int | None) -> CallHealth:
    """Return how a call counts, by its category; None is a success.

    A dependency that rejects a request is healthy. Throttling is an instruction and not a failure: it pauses
    the circuit and changes no ratio. An ambiguous outcome is a failure when it was a timeout, a broken
    connection (no status code) or a server error: the request's effect is unknown, but the dependency's
    trouble is not.
    """
    match category:
        case None | Category.MALFORMED | Category.UNAUTHORIZED | Category.NOT_FOUND | Category.BUSINESS_RULE:
            return CallHealth.SUCCESS
        case Category.TRANSIENT:
            return CallHealth.FAILURE
        case Category.AMBIGUOUS:
            return _health_of_ambiguous(status_code)
        case Category.THROTTLED | Category.CIRCUIT_OPEN | Category.DEADLINE_EXCEEDED:
            return CallHealth.SILENT
        case _ as never:
            assert_never(never)


def _health_of_ambiguous(status_code: int | None) -> CallHealth:
    if status_code is None or status_code >= _SERVER_ERRORS or status_code in {408, 425}:
        return CallHealth.FAILURE
    return CallHealth.SUCCESS


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The end of a probe.

    Attributes:
        lease_id: Of the lease that it ran under.
        epoch: In which it was permitted.
        health: SILENT returns the lease: the call never left, or was throttled.
    """

    lease_id: str
    epoch: int
    health: CallHealth

    def to_json(self) -> list[Any]:
        """Return the stored row."""
        return [self.lease_id, self.epoch, str(self.health)]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Self:
        """Read the stored row."""
        return cls(lease_id=row[0], epoch=row[1], health=CallHealth(row[2]))


@dataclass(frozen=True, slots=True)
class Report(JsonRecord):
    """The results of one worker since its last report.

    Attributes:
        reporter: Name of the worker process; 32 characters are kept.
        sequence: 1 for its first report, one more for each further one.
        at: When it was made, aware UTC.
        epoch: In which the counted calls were permitted.
        window: The calls, by the time they ended.
        trailing_failures: Failures since the last success, of this report alone.
        refused: Operations that began to wait for the circuit or for the end of a throttling pause.
        first_attempts: First attempts that started.
        retries: Retries that started, or that the retry budget promised.
        throttled_until: The dependency asked for no calls until then; None when it did not.
        probes: Probes that ended.
    """

    reporter: str
    sequence: int
    at: MsInstant
    epoch: int
    window: SlidingWindow
    trailing_failures: int = 0
    refused: int = 0
    first_attempts: int = 0
    retries: int = 0
    throttled_until: MsInstant | None = None
    probes: tuple[ProbeResult, ...] = ()


KEPT = 32
"""Reporters that are remembered, the most recent ones. Duplicates of a forgotten one would count again."""
NAME_CHARACTERS = 32
"""Only so much of a reporter's name is kept and compared."""
LATE = 32
"""A report may be overtaken by this many later ones of its reporter and still count."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """What is remembered of one worker process.

    Attributes:
        name: Its id.
        highest: The highest sequence number that was counted.
        counted: Bit k is set when number `highest - k` was counted.
        seen_at: When its latest report arrived.
    """

    name: str
    highest: int
    counted: int
    seen_at: datetime

    def has(self, sequence: int) -> bool:
        """Whether this number was counted, or is too old to say."""
        behind = self.highest - sequence
        # Too old to say means counted: counting calls twice would distort the ratio.
        return behind >= 0 and (behind >= LATE or bool(self.counted >> behind & 1))

    def with_number(self, sequence: int, at: datetime) -> "Reporter":
        """Return the reporter with a number that was not counted before."""
        ahead = sequence - self.highest
        if ahead > 0:
            # The shift is limited and the result masked: the integer stays at 32 bits.
            counted = self.counted << min(ahead, LATE) | 1
            return Reporter(self.name, sequence, counted & (1 << LATE) - 1, at)
        return Reporter(self.name, self.highest, self.counted | 1 << -ahead, at)


@dataclass(frozen=True, slots=True)
class Reporters:
    """The remembered reporters, the most recent last."""

    remembered: tuple[Reporter, ...] = ()

    def has_counted(self, name: str, sequence: int) -> bool:
        """Whether this report was counted before."""
        known = self._named(name)
        return known is not None and known.has(sequence)

    def with_report(self, name: str, sequence: int, at: datetime) -> "Reporters":
        """Return the reporters with a report that counts now."""
        known = self._named(name)
        fresh = Reporter(name[:NAME_CHARACTERS], sequence, 1, at)
        updated = fresh if known is None else known.with_number(sequence, at)
        others = tuple(reporter for reporter in self.remembered if reporter is not known)
        return Reporters((*others, updated)[-KEPT:])

    def highest(self, name: str) -> int:
        """Return the highest sequence number that was counted of a reporter; 0 when none is remembered."""
        known = self._named(name)
        return 0 if known is None else known.highest

    def active(self, since: datetime) -> int:
        """Return how many reported since an instant."""
        return sum(reporter.seen_at >= since for reporter in self.remembered)

    def _named(self, name: str) -> Reporter | None:
        kept_name = name[:NAME_CHARACTERS]
        return next((reporter for reporter in self.remembered if reporter.name == kept_name), None)

    def to_json(self) -> list[list[Any]]:
        """Return the stored rows."""
        return [[r.name, r.highest, r.counted, to_ms(r.seen_at)] for r in self.remembered]

    @classmethod
    def from_json(cls, rows: Iterable[Sequence[Any]]) -> Self:
        """Read the stored rows."""
        return cls(tuple(Reporter(row[0], row[1], row[2], from_ms(row[3])) for row in rows))
