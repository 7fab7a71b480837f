"""How long to wait after a failed attempt: strategy, cap and jitter.

The formulas of the jitters are those of Brooker, "Exponential Backoff And Jitter" (AWS, 2015). The draw is
always made inside the cap: a draw that is cut at the cap would make every caller at the cap return at once.
"""

from dataclasses import dataclass
from math import inf, log
from typing import assert_never

from engine.policy import RetryPolicy
from engine.spread import fraction_of
from engine.wording import seconds_text


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between what a wait is drawn, in seconds; `least` <= `most`."""

    least: float
    most: float

    def at(self, share: float) -> float:
        """Give the point that lies at `share` (0 to 1) of the way from least to most."""
        return min(self.most, self.least + share * (self.most - self.least))


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait in seconds and why it is that long."""

    delay_seconds: float
    reasons: tuple[str, ...]


def backoff(
    policy: RetryPolicy,
    operation_id: str,
    attempt: int,
    previous_delay_seconds: float | None = None,
) -> Backoff:
    """Give the wait after a failed attempt.

    Args:
        policy: Strategy, cap and jitter.
        operation_id: Whose; the draw depends on it and on the attempt alone.
        attempt: The one that failed, from 1; any size.
        previous_delay_seconds: The wait before that attempt, for `decorrelated`; None before the first wait.
    """
    bounds = bounds_of(policy, attempt, previous_delay_seconds)
    delay = bounds.at(fraction_of("backoff", operation_id, str(attempt)))
    reasons = [f"{policy.strategy} {seconds_text(ceiling_seconds(policy, attempt))}"]
    if policy.jitter != "none":
        reasons.append(f"{policy.jitter} jitter")
    return Backoff(delay, tuple(reasons))


def ceiling_seconds(policy: RetryPolicy, attempt: int) -> float:
    """Give the wait after an attempt (from 1, any size) before jitter, in seconds."""
    match policy.strategy:
        case "exponential":
            return _exponential(policy, attempt)
        case "linear":
            return min(policy.max_seconds, policy.initial_seconds * attempt)
        case "fixed":
            return min(policy.max_seconds, policy.initial_seconds)
        case "schedule":
            return _scheduled(policy, attempt)
        case _ as never:
            assert_never(never)


def bounds_of(policy: RetryPolicy, attempt: int, previous_delay_seconds: float | None = None) -> Bounds:
    """Give the bounds that the wait after an attempt is drawn between."""
    ceiling = ceiling_seconds(policy, attempt)
    match policy.jitter:
        case "none":
            return Bounds(ceiling, ceiling)
        case "full":
            return Bounds(0.0, ceiling)
        case "equal":
            return Bounds(ceiling / 2, ceiling)
        case "decorrelated":
            return _decorrelated(policy, ceiling, previous_delay_seconds)
        case _ as never:
            assert_never(never)


def _exponential(policy: RetryPolicy, attempt: int) -> float:
    """Clamp the exponent before the power: 2.0 ** 1024 overflows a float, and 10 ** 9 takes for ever."""
    if policy.initial_seconds == 0 or policy.max_seconds == 0:
        return 0.0
    if policy.initial_seconds >= policy.max_seconds:
        return policy.max_seconds
    growth = log(policy.max_seconds) - log(policy.initial_seconds)
    limit = growth / log(policy.factor) if policy.factor > 1 else inf
    if attempt - 1 >= limit:
        return policy.max_seconds
    return min(policy.max_seconds, policy.initial_seconds * policy.factor ** (attempt - 1))


def _scheduled(policy: RetryPolicy, attempt: int) -> float:
    if not policy.schedule_seconds:
        return 0.0
    return policy.schedule_seconds[min(attempt, len(policy.schedule_seconds)) - 1]


def _decorrelated(policy: RetryPolicy, ceiling: float, previous_delay_seconds: float | None) -> Bounds:
    """Initial to three times the previous wait; the cap is what the strategy can reach at all.

    A strategy that grows is replaced by the growth of the waits themselves; of others the wait is the cap.
    """
    grows = policy.strategy in {"exponential", "linear"}
    cap = policy.max_seconds if grows else ceiling
    previous = policy.initial_seconds if previous_delay_seconds is None else previous_delay_seconds
    most = min(cap, max(policy.initial_seconds, 3 * previous))
    return Bounds(min(policy.initial_seconds, most), most)
