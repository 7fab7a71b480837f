"""Counts of operations: by state, by time of acceptance, and by dependency."""

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from durable_retry.engine.base.enums import FINISHED, OperationState
from durable_retry.engine.base.instants import to_rfc3339

WINDOW_PARTS: Final = 48
"""Parts of a window: half hours of a day."""

UNFINISHED: Final = tuple(state for state in OperationState if state not in FINISHED)


@dataclass(frozen=True, slots=True)
class Window:
    """A period in equal parts.

    Attributes:
        begins_at: Aware UTC.
        seconds: Its length.
    """

    begins_at: datetime
    seconds: float

    @classmethod
    def before(cls, now: datetime, seconds: float) -> Self:
        """Return the window whose last part contains `now`.

        The parts begin at whole multiples of their length, so that operations stay in their part from one
        request to the next.
        """
        width = seconds / WINDOW_PARTS
        # The end is the next multiple of the width after now, so now is inside the last part.
        ends = math.floor(now.timestamp() / width + 1) * width
        return cls(datetime.fromtimestamp(ends - seconds, UTC), seconds)

    @property
    def bucket_seconds(self) -> float:
        """The length of one part."""
        return self.seconds / WINDOW_PARTS

    @property
    def ends_at(self) -> datetime:
        """Aware UTC instant."""
        return self.begins_at + timedelta(seconds=self.seconds)

    def place(self, instant: datetime) -> int:
        """Return the index of the part of an instant; the nearest one for an instant outside."""
        passed = (instant - self.begins_at).total_seconds()
        return min(WINDOW_PARTS - 1, max(0, math.floor(passed / self.bucket_seconds)))


@dataclass(slots=True)
class Share:
    """The operations of one dependency.

    Attributes:
        states: How many are in each state.
        tried: How many made at least one attempt.
        attempts: Attempts of all of them.
    """

    states: Counter[OperationState] = field(default_factory=Counter)
    tried: int = 0
    attempts: int = 0

    def add(self, state: OperationState, attempts: int) -> None:
        """Count one operation."""
        self.states[state] += 1
        self.tried += attempts > 0
        self.attempts += attempts

    @property
    def amplification(self) -> float | None:
        """Attempts per operation that made one; None when none did."""
        return None if self.tried == 0 else self.attempts / self.tried

    def to_json(self) -> dict[str, Any]:
        """Return the form of the API."""
        return {
            "operations": self.states.total(),
            "attempts": self.attempts,
            "amplification": self.amplification,
            "by_status": by_status(self.states),
        }


@dataclass(slots=True)
class Counters:
    """Counts of the operations of a window; an operation's dependency is known after its first turn."""

    window: Window
    whole: Share = field(default_factory=Share)
    dependencies: dict[str, Share] = field(default_factory=dict)
    buckets: list[Counter[OperationState]] = field(
        default_factory=lambda: [Counter() for _ in range(WINDOW_PARTS)]
    )

    def add(self, state: OperationState, created_at: datetime, dependency: str | None, attempts: int) -> None:
        """Count one operation."""
        self.whole.add(state, attempts)
        self.buckets[self.window.place(created_at)][state] += 1
        if dependency is not None:
            self.dependencies.setdefault(dependency, Share()).add(state, attempts)

    def to_json(self) -> dict[str, Any]:
        """Return the form of the API."""
        width = timedelta(seconds=self.window.bucket_seconds)
        return {
            "from": to_rfc3339(self.window.begins_at),
            "to": to_rfc3339(self.window.ends_at),
            **self.whole.to_json(),
            "by_dependency": {name: share.to_json() for name, share in sorted(self.dependencies.items())},
            "bucket_seconds": self.window.bucket_seconds,
            "buckets": [
                {"from": to_rfc3339(self.window.begins_at + at * width), "by_status": by_status(states)}
                for at, states in enumerate(self.buckets)
            ],
        }


def by_status(
    states: Counter[OperationState], shown: tuple[OperationState, ...] = tuple(OperationState)
) -> dict[str, int]:
    """Return a count for each state, zeros included."""
    return {state.value: states[state] for state in shown}
