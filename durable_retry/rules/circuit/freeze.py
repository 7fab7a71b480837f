"""A freeze: a person holds every dependency at once, and lets what waits go in waves.

The circuit of each dependency has it, beside its own state, so each worker reads it with its copy.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry.base.json_forms import JsonShape, MsInstant
from durable_retry.base.text import deterministic_fraction, time_text


@dataclass(frozen=True, slots=True)
class Freeze(JsonShape):
    """Signal `freeze`: the latest state of a freeze."""

    since: MsInstant  # when somebody asked for it, aware UTC; names it
    at: MsInstant  # when it got this state
    by: str
    reason: str
    until: MsInstant | None = None  # when it ends by itself; None for never
    # Whether the deadlines of operations that wait for its end stop; None means that they go on.
    stops_deadline: bool | None = None
    # The share of the operations that a thaw lets through, in (0, 1]; None before one.
    share: float | None = None

    def then(self, now: datetime, **changes: Any) -> Self:
        """Return its next state, which is later than this one whatever the clocks say."""
        return replace(self, at=max(now, self.at + timedelta(milliseconds=1)), **changes)

    def is_before(self, other: Self) -> bool:
        """Whether the other is a later state of the same freeze, or a later freeze."""
        return (self.since, self.at) < (other.since, other.at)

    def ended_at(self, now: datetime) -> datetime | None:
        """Return when it ended; None while it goes on."""
        return self.until if self.until is not None and self.until <= now else None

    def lets_through(self, operation_id: str, now: datetime) -> bool:
        """Whether it lets an operation go: the same ones on every machine, and in every later wave."""
        is_over = self.ended_at(now) is not None
        return is_over or (self.share is not None and self.place_of(operation_id) <= self.share)

    def place_of(self, operation_id: str) -> float:
        """Return the least share, in [0, 1), that lets an operation go; spread evenly over operations."""
        return deterministic_fraction("thaw", operation_id, self.since.isoformat())

    def part_of(self, waiting: int) -> int:
        """Return how many of so many waiting operations it lets go."""
        return ceil(waiting * (self.share or 0.0))

    @property
    def why(self) -> str:
        """Why an operation waits for its end."""
        return f"held by {self.by} since {time_text(self.since)}: {self.reason}"


class FreezeFigures(Answer):
    """How everything is held."""

    by: str = Field(description="Who asked for it.")
    since: Instant = Field(description="Since when.")
    reason: str = Field(description="Why, or what stopped the thaw.")
    until: Instant | None = Field(description="When it ends by itself; null for never.")
    share: float | None = left_out("The share of operations that a thaw lets through. Left out before it.")
