"""Slowing calls down before a dependency refuses them: what is left of its rate limit lasts for the window.

    answer ──> RateLeft ──> Quota (the worker's, then the circuit's) ──half used up──> Pace ──> call_limiter

A dependency states in its answers how many calls are left in its present window. While more than half is
left, nothing is slowed. From then on the entity `call_limiter` spaces starts so that what is left lasts until
the window ends. No attempt fails by it: one whose deadline does not allow the wait goes at once.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant
from durable_retry.engine.base.json_forms import JsonShape, MsInstant, from_ms, to_ms
from durable_retry.engine.base.text import deterministic_fraction

LONGEST_WINDOW: Final = timedelta(days=1)
"""What is left counts for no longer: a window beyond this is taken for a mistake of the dependency."""
SLOWED_FROM: Final = 0.5
"""Calls are slowed when no more than this part of the limit is left."""


@dataclass(frozen=True, slots=True)
class RateLeft:
    """What an answer states of the dependency's rate limit."""

    remaining: float  # calls that are left in the present window, above 0
    seconds: float  # until the window ends, above 0
    limit: float | None = None  # calls in a whole window; None when the answer does not say


class QuotaDocument(Answer):
    """What is left of a dependency's own rate limit, as its latest answer stated."""

    remaining: float
    limit: Annotated[float, Field(description="Of a whole window: as stated, else the most that was seen.")]
    until: Annotated[Instant, Field(description="End of the window.")]
    starts_per_second: Annotated[
        float | None, Field(description="The pace; null while more than half is left.")
    ]


@dataclass(frozen=True, slots=True)
class Quota(JsonShape):
    """What was left of a dependency's rate limit when it last answered."""

    remaining: float  # calls, above 0
    limit: float  # calls in a whole window: as stated, else the most that was seen left
    seen_at: MsInstant  # when the answer came
    until: MsInstant  # end of the window; after it the quota says nothing

    @property
    def is_low(self) -> bool:
        """Whether calls are slowed."""
        return self.remaining <= self.limit * SLOWED_FROM

    @property
    def per_second(self) -> float:
        """Calls a second at which what was left lasts until the end of the window."""
        return self.remaining / (self.until - self.seen_at).total_seconds()

    def to_view(self) -> QuotaDocument:
        """Return the form of the API."""
        pace = round(self.per_second, 6) if self.is_low else None
        return QuotaDocument(
            remaining=self.remaining, limit=self.limit, until=self.until, starts_per_second=pace
        )


def quota_of(left: RateLeft, now: datetime, before: Quota | None) -> Quota:
    """Return the quota after an answer that came at `now`; None before it when nothing was known."""
    at = from_ms(to_ms(now))
    window = min(timedelta(seconds=left.seconds), LONGEST_WINDOW)
    most = max(left.remaining, 0.0 if before is None else before.limit)
    limit = most if left.limit is None else left.limit
    until = from_ms(to_ms(at + max(window, timedelta(milliseconds=1))))
    return Quota(left.remaining, limit, at, until)


def newest(now: datetime, *quotas: Quota | None) -> Quota | None:
    """Return the quota of the latest answer among those whose window has not ended; None without one."""
    valid = [quota for quota in quotas if quota is not None and quota.until > now]
    return max(valid, key=lambda quota: quota.seen_at, default=None)


@dataclass(frozen=True, slots=True)
class Pace(JsonShape):
    """How fast attempts may start while a quota is low."""

    seconds: float  # until the window ends, above 0
    reason: str  # why, a few words
    # No turn is reserved for later than this; None means the end of the window.
    longest_seconds: float | None = None
    # Whether an attempt whose deadline comes before its turn goes at once, since something is left. False
    # beside a configured rate, which nothing passes.
    may_be_passed: bool = True

    def within(self, longest_seconds: float) -> "Pace":
        """Return the pace with a bound on what it may delay one attempt."""
        return replace(self, longest_seconds=min(self.seconds, longest_seconds))

    @property
    def _longest_wait(self) -> float:
        return self.seconds if self.longest_seconds is None else self.longest_seconds

    def reserves(self, wait_seconds: float) -> bool:
        """Whether a turn so far ahead is reserved; later ones are counted when the quota is renewed."""
        return wait_seconds < self._longest_wait

    def ask_again_seconds(self, seed: str) -> float:
        """Return when an attempt without a turn asks again: after the longest wait, spread over as long."""
        return round(self._longest_wait * (1 + deterministic_fraction("pace", seed)), 3)


def pace_of(quota: Quota, now: datetime, *, may_be_passed: bool) -> Pace:
    """Return the pace of a low quota whose window has not ended, by the same clock as `now`."""
    seconds = (quota.until - now).total_seconds()
    reason = f"{quota.remaining:g} of {quota.limit:g} calls left for {seconds:.3g} s"
    return Pace(round(seconds, 3), reason, may_be_passed=may_be_passed)
