"""The wait after a failed attempt: strategy, cap and jitter.

The formulas of jitter are those of Brooker, "Exponential Backoff And Jitter" (AWS, 2015). The draw is always
made inside the cap. Cutting a draw at the cap instead would let every caller at the cap return at the same
time.

`Preview` is what a policy would do: the answer of `POST /api/policies/preview`.
"""

from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Final, assert_never

from pydantic import Field

from durable_retry.base.answers import Answer
from durable_retry.base.text import deterministic_fraction, seconds_text
from durable_retry.rules.limits.settings import LimitSettings
from durable_retry.rules.retry.policy import UNLIMITED, RetryPolicy, Timeouts, policy_warnings


@dataclass(frozen=True, slots=True)
class Bounds:
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


def bounds_of(policy: RetryPolicy, attempt: int) -> Bounds:
    ceiling = ceiling_seconds(policy, attempt)
    match policy.jitter:
        case "none":
            return Bounds(ceiling, ceiling)
        case "full":
            return Bounds(0.0, ceiling)
        case "equal":
            return Bounds(ceiling / 2, ceiling)
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


MAX_WAITS: Final = 100
"""How many waits are listed; a policy may have a billion."""


class PolicyWait(Answer):
    """The wait after one attempt.

    Attributes:
        after_attempt: From 1.
        least_seconds: The shortest.
        expected_seconds: The mean.
        most_seconds: The longest, unless the dependency asks for more.
    """

    after_attempt: int
    least_seconds: float
    expected_seconds: float
    most_seconds: float


class PolicyTotal(Answer):
    """All waits together, and all attempts when each takes its whole timeout."""

    least_seconds: float
    expected_seconds: float
    most_seconds: float
    attempts_at_most_seconds: float


class PolicyLimits(Answer):
    """What the limits of a dependency let through; null means no limit."""

    at_once: Annotated[int | None, Field(description="Attempts at once, fleet-wide.")]
    starts_per_second: Annotated[float | None, Field(description="Starts per second, fleet-wide.")]
    slowest_per_second: Annotated[
        float | None, Field(description="Attempts a second when each takes its whole timeout.")
    ]


class PolicyPreview(Answer):
    """What a policy would do.

    Attributes:
        waits: At most 100; with unlimited attempts, those before the deadline.
        waits_complete: Whether these are all.
        deadline_seconds: 0 means none.
        fits_deadline: Whether the longest waits and the longest attempts together end before it.
        warnings: What is allowed and may not be meant, each a sentence that begins with its key.
    """

    waits: tuple[PolicyWait, ...]
    waits_complete: bool
    total: PolicyTotal
    deadline_seconds: float
    fits_deadline: bool
    warnings: tuple[str, ...]
    limits: Annotated[PolicyLimits | None, Field(description="null without a dependency")]


def preview(policy: RetryPolicy, timeouts: Timeouts, limits: PolicyLimits | None = None) -> PolicyPreview:
    """List the waits of a policy when every attempt fails and the dependency asks for nothing."""
    waits = _waits_of_policy(policy, timeouts)
    is_complete = len(waits) < MAX_WAITS or not policy.allows_another(len(waits) + 1)
    total = PolicyTotal(
        least_seconds=sum(wait.least_seconds for wait in waits),
        expected_seconds=sum(wait.expected_seconds for wait in waits),
        most_seconds=sum(wait.most_seconds for wait in waits),
        attempts_at_most_seconds=timeouts.attempt_seconds * (len(waits) + 1),
    )
    # Unlimited attempts end with the deadline, so they fit by themselves.
    is_endless = timeouts.deadline_seconds == 0 or policy.max_attempts == UNLIMITED
    seconds = total.most_seconds + total.attempts_at_most_seconds
    warnings = policy_warnings(policy, timeouts.deadline_seconds)
    return PolicyPreview(
        waits=waits,
        waits_complete=is_complete,
        total=total,
        deadline_seconds=timeouts.deadline_seconds,
        fits_deadline=is_endless or (is_complete and seconds <= timeouts.deadline_seconds),
        warnings=tuple(f"{key}: {detail}" for key, detail in warnings),
        limits=limits,
    )


def limits_shown(limits: LimitSettings, attempt_seconds: float) -> PolicyLimits:
    """Return what limits let through when each attempt takes its whole timeout."""
    rates = [limits.rate_per_second] if limits.rate_per_second > 0 else []
    if limits.max_concurrency > 0:
        rates.append(limits.max_concurrency / attempt_seconds)
    return PolicyLimits(
        at_once=limits.max_concurrency or None,
        starts_per_second=limits.rate_per_second or None,
        slowest_per_second=round(min(rates), 3) if rates else None,
    )


def _waits_of_policy(policy: RetryPolicy, timeouts: Timeouts) -> tuple[PolicyWait, ...]:
    waits: list[PolicyWait] = []
    least_elapsed = 0.0
    while len(waits) < MAX_WAITS and policy.allows_another(len(waits) + 1):
        attempt = len(waits) + 1
        bounds = bounds_of(policy, attempt)
        least_elapsed += bounds.least
        if _is_past(policy, timeouts, least_elapsed):
            break
        wait = PolicyWait(
            after_attempt=attempt,
            least_seconds=bounds.least,
            expected_seconds=bounds.at(0.5),
            most_seconds=bounds.most,
        )
        waits.append(wait)
    return tuple(waits)


def _is_past(policy: RetryPolicy, timeouts: Timeouts, least_elapsed: float) -> bool:
    # Unlimited attempts end with the deadline, so waits behind it never happen.
    limited = policy.max_attempts != UNLIMITED or timeouts.deadline_seconds == 0
    return not limited and least_elapsed > timeouts.deadline_seconds
