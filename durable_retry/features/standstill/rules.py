"""Tells messages that are lost from those that are queued, by how far the task hub's queues are.

Age is not loss: a message behind thousands of others is late, and comes. Where something is late, one
orchestration for the whole app, a *queue check*, goes through the same queues. Once it is through, every
message that was sent before it has been taken, or was lost.

    asked for ──> check asked ──> check through ──> the longest that it may take ──> `late_after`: lost
                                     └ before that it may be queued

A queue is first in first out, with two exceptions that `late_after` has room for: hosts take from it side by
side, and what a host that died had taken stays hidden for a while.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.json_forms import JsonShape

BETWEEN_CHECKS: Final = timedelta(seconds=50)
"""A check is asked once a minute at most, by a timer that is a little early or late."""

PATIENCE: Final = timedelta(minutes=10)
"""A check that takes longer is behind a backlog, or lost: another one is asked."""

CLOCKS_DIFFER: Final = timedelta(seconds=15)
"""The most by which the clocks of two hosts differ."""

MOST_CHECKS: Final = 32
"""So many are remembered; beyond that every second one of the older half is forgotten, not the first."""


@dataclass(frozen=True, slots=True)
class QueueCheck(JsonShape):
    """One check."""

    asked_at: datetime
    through_at: datetime | None = None  # None while it is under way


@dataclass(frozen=True, slots=True)
class Expected:
    """The next turn of an instance that has not ended."""

    since: datetime  # when what it waits for was asked for, or when its wait was over
    is_answer: bool = False  # whether it waits for an answer, which takes its time


@dataclass(frozen=True, slots=True)
class QueueChecks(JsonShape):
    """The latest checks, in the order in which they were asked."""

    checks: tuple[QueueCheck, ...] = ()

    def lost_since(
        self, expected: Expected, late_after: timedelta, longest: timedelta = timedelta()
    ) -> datetime | None:
        """Return from when on a turn that has not come is lost; None while its message may be queued.

        Args:
            late_after: How much later than a check an earlier message may still come.
            longest: How long an answer may take from its begin.
        """
        begun_by = self._begun_by(expected.since)
        if begun_by is None:
            return None
        if expected.is_answer:
            return begun_by + longest + late_after
        return max(begun_by, expected.since + late_after)

    def _begun_by(self, asked_at: datetime) -> datetime | None:
        return min(
            (
                check.through_at
                for check in self.checks
                if check.through_at is not None and check.asked_at > asked_at + CLOCKS_DIFFER
            ),
            default=None,
        )

    @property
    def under_way(self) -> tuple[QueueCheck, ...]:
        """Those that are not through."""
        return tuple(check for check in self.checks if check.through_at is None)

    def is_due(self, now: datetime) -> bool:
        """Whether another may be asked."""
        waits = any(now - check.asked_at < PATIENCE for check in self.under_way)
        return not waits and (not self.checks or now - self.checks[-1].asked_at >= BETWEEN_CHECKS)

    def asked(self, now: datetime) -> "QueueChecks":
        """Return them with one that is asked now."""
        half = MOST_CHECKS // 2
        past = self.checks if len(self.checks) < MOST_CHECKS else (*self.checks[:half:2], *self.checks[half:])
        return QueueChecks((*past, QueueCheck(now)))

    def through(self, check: QueueCheck, at: datetime | None) -> "QueueChecks":
        """Return them after one came through; without it where it failed (`at` is None)."""
        ended = () if at is None else (replace(check, through_at=max(at, check.asked_at)),)
        return QueueChecks(
            tuple(new for known in self.checks for new in (ended if known == check else (known,)))
        )
