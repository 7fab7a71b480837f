"""What a retry policy would do: the answer of `POST /api/policies/preview`."""

from typing import Final

from pydantic import Field

from durable_retry.base.answers import Answer
from durable_retry.rules.config.dependency import Bounds
from durable_retry.rules.retry.backoff import bounds_of
from durable_retry.rules.retry.policy import UNLIMITED, RetryPolicy, Timeouts, policy_warnings

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

    at_once: int | None = Field(description="Attempts at once, fleet-wide.")
    starts_per_second: float | None = Field(description="Starts per second, fleet-wide.")
    slowest_per_second: float | None = Field(
        description="Attempts a second when each takes its whole timeout."
    )


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
    limits: PolicyLimits | None = Field(description="null without a dependency")


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


def limits_shown(limits: Bounds, attempt_seconds: float) -> PolicyLimits:
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
