"""The wait after a failed attempt: strategy, cap and jitter.

The formulas of jitter are those of Brooker, "Exponential Backoff And Jitter" (AWS, 2015). The draw is always
made inside the cap. Cutting a draw at the cap instead would let every caller at the cap return at the same
time.
"""

from dataclasses import dataclass
from math import inf, log
from typing import assert_never

from durable_retry.base.text import deterministic_fraction, seconds_text
from durable_retry.rules.retry.policy import RetryPolicy


@dataclass(frozen=True, slots=True)
class WaitBounds:
    """The bounds of a wait, in seconds; `least` <= `most`."""

    least: float
    most: float

    def at(self, share: float) -> float:
        """Return the point at `share` (0 to 1) of the way from least to most."""
        return min(self.most, self.least + share * (self.most - self.least))


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait in seconds and the reasons for its length."""

    delay_seconds: float
    reasons: tuple[str, ...]


def backoff(policy: RetryPolicy, operation_id: str, attempt: int) -> Backoff:
    """Return the wait after a failed attempt, whose number from 1 may have any size.

    The draw depends on the operation's id and the attempt alone.
    """
    bounds = bounds_of(policy, attempt)
    # A replay must come to the same wait, so a hash takes the place of a random draw.
    delay = bounds.at(deterministic_fraction("backoff", operation_id, str(attempt)))
    reasons = [f"{policy.strategy} {seconds_text(ceiling_seconds(policy, attempt))}"]
    if policy.jitter != "none":
        reasons.append(f"{policy.jitter} jitter")
    return Backoff(delay, tuple(reasons))


def ceiling_seconds(policy: RetryPolicy, attempt: int) -> float:
    """Return the wait after an attempt (from 1, any size) before jitter, in seconds."""
    match policy.strategy:
        case "exponential":
            return _exponential_seconds(policy, attempt)
        case "linear":
            return min(policy.max_seconds, policy.initial_seconds * attempt)
        case "fixed":
            return min(policy.max_seconds, policy.initial_seconds)
        case "schedule":
            return _scheduled_seconds(policy, attempt)
        case _ as never:
            assert_never(never)


def bounds_of(policy: RetryPolicy, attempt: int) -> WaitBounds:
    ceiling = ceiling_seconds(policy, attempt)
    match policy.jitter:
        case "none":
            return WaitBounds(ceiling, ceiling)
        case "full":
            return WaitBounds(0.0, ceiling)
        case "equal":
            return WaitBounds(ceiling / 2, ceiling)
        case _ as never:
            assert_never(never)


def _exponential_seconds(policy: RetryPolicy, attempt: int) -> float:
    if policy.initial_seconds == 0 or policy.max_seconds == 0:
        return 0.0
    if policy.initial_seconds >= policy.max_seconds:
        return policy.max_seconds
    # Compared as logarithms, and the power computed below the cap only: 2.0 ** 1024 overflows a float, and
    # 10 ** 9 never ends.
    growth = log(policy.max_seconds) - log(policy.initial_seconds)
    limit = growth / log(policy.factor) if policy.factor > 1 else inf
    if attempt - 1 >= limit:
        return policy.max_seconds
    return min(policy.max_seconds, policy.initial_seconds * policy.factor ** (attempt - 1))


def _scheduled_seconds(policy: RetryPolicy, attempt: int) -> float:
    if not policy.schedule_seconds:
        return 0.0
    return policy.schedule_seconds[min(attempt, len(policy.schedule_seconds)) - 1]
