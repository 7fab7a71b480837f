"""The wait after a failed attempt: strategy, cap and jitter; and all the waits that a policy can lead to.

The formulas of jitter are those of Brooker, "Exponential Backoff And Jitter" (AWS, 2015). The draw is always
made inside the cap. Cutting a draw at the cap instead would let every caller at the cap return at the same
time.
"""

from dataclasses import dataclass
from math import inf, log
from typing import Any, Final, assert_never

from durable_retry.engine.base.json_forms import JsonRecord
from durable_retry.engine.base.text import deterministic_fraction, seconds_text
from durable_retry.engine.retry.policy import UNLIMITED, RetryPolicy, Timeouts, policy_warnings


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


def backoff(
    policy: RetryPolicy,
    operation_id: str,
    attempt: int,
    previous_delay_seconds: float | None = None,
) -> Backoff:
    """Return the wait after a failed attempt.

    Args:
        policy: Strategy, cap and jitter.
        operation_id: Of the operation; the draw depends on it and on the attempt alone.
        attempt: Number of the attempt that failed, from 1; any size.
        previous_delay_seconds: The wait before that attempt, for `decorrelated`; None before the first wait.
    """
    bounds = bounds_of(policy, attempt, previous_delay_seconds)
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
    """Return the bounds of the wait after an attempt."""
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
    """Limit the exponent before the power: 2.0 ** 1024 overflows a float, and 10 ** 9 never ends."""
    if policy.initial_seconds == 0 or policy.max_seconds == 0:
        return 0.0
    if policy.initial_seconds >= policy.max_seconds:
        return policy.max_seconds
    # Compared as logarithms: the power itself is computed below the cap only.
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
    """From the initial wait to three times the previous one, at most the cap that the strategy can reach.

    A growing strategy is replaced by the growth of the waits themselves; of the others the wait is the cap.
    """
    grows = policy.strategy in {"exponential", "linear"}
    cap = policy.max_seconds if grows else ceiling
    previous = policy.initial_seconds if previous_delay_seconds is None else previous_delay_seconds
    most = min(cap, max(policy.initial_seconds, 3 * previous))
    return Bounds(min(policy.initial_seconds, most), most)


MAX_WAITS: Final = 100
"""How many waits are listed; a policy may have a billion."""


@dataclass(frozen=True, slots=True)
class WaitBounds(JsonRecord):
    """The wait after one attempt, in seconds.

    Attributes:
        after_attempt: From 1.
        least_seconds: The shortest.
        expected_seconds: The mean; with `decorrelated` jitter, after waits of mean length.
        most_seconds: The longest, unless the dependency asks for more.
    """

    after_attempt: int
    least_seconds: float
    expected_seconds: float
    most_seconds: float


@dataclass(frozen=True, slots=True)
class Preview:
    """The waits of a policy.

    Attributes:
        waits: The first `MAX_WAITS` of them; with unlimited attempts, those before the deadline.
        is_complete: Whether these are all.
        is_unlimited: Whether attempts continue until the deadline, so that they fit by themselves.
        attempt_seconds: Duration of all listed attempts when each takes its whole timeout.
        deadline_seconds: 0 means none.
        warnings: What is allowed and may not be meant, each a sentence that begins with its key.
    """

    waits: tuple[WaitBounds, ...]
    is_complete: bool
    is_unlimited: bool
    attempt_seconds: float
    deadline_seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> Bounds:
        """The shortest and the longest total of all listed waits."""
        return Bounds(
            sum(wait.least_seconds for wait in self.waits), sum(wait.most_seconds for wait in self.waits)
        )

    @property
    def expected_seconds(self) -> float:
        """The mean total of all listed waits."""
        return sum(wait.expected_seconds for wait in self.waits)

    @property
    def fits_deadline(self) -> bool:
        """Whether the longest waits and the longest attempts together end before the deadline."""
        if self.deadline_seconds == 0 or self.is_unlimited:
            return True
        return self.is_complete and self.total.most + self.attempt_seconds <= self.deadline_seconds

    def to_json(self) -> dict[str, Any]:
        """Return the answer of `POST /api/policies/preview`."""
        return {
            "waits": [wait.to_json() for wait in self.waits],
            "waits_complete": self.is_complete,
            "total": {
                "least_seconds": self.total.least,
                "expected_seconds": self.expected_seconds,
                "most_seconds": self.total.most,
                "attempts_at_most_seconds": self.attempt_seconds,
            },
            "deadline_seconds": self.deadline_seconds,
            "fits_deadline": self.fits_deadline,
            "warnings": list(self.warnings),
        }


def preview(policy: RetryPolicy, timeouts: Timeouts) -> Preview:
    """List the waits of a policy when every attempt fails and the dependency asks for nothing."""
    waits: list[WaitBounds] = []
    previous: WaitBounds | None = None
    least_elapsed = 0.0
    while len(waits) < MAX_WAITS and policy.allows_another(len(waits) + 1):
        previous = _wait(policy, len(waits) + 1, previous)
        least_elapsed += previous.least_seconds
        if _is_past(policy, timeouts, least_elapsed):
            break
        waits.append(previous)
    return Preview(
        waits=tuple(waits),
        is_complete=len(waits) < MAX_WAITS or not policy.allows_another(len(waits) + 1),
        is_unlimited=policy.max_attempts == UNLIMITED,
        attempt_seconds=timeouts.attempt_seconds * (len(waits) + 1),
        deadline_seconds=timeouts.deadline_seconds,
        warnings=tuple(
            f"{key}: {detail}" for key, detail in policy_warnings(policy, timeouts.deadline_seconds)
        ),
    )


def _is_past(policy: RetryPolicy, timeouts: Timeouts, least_elapsed: float) -> bool:
    # Unlimited attempts end with the deadline, so waits behind it never happen.
    limited = policy.max_attempts != UNLIMITED or timeouts.deadline_seconds == 0
    return not limited and least_elapsed > timeouts.deadline_seconds


def _wait(policy: RetryPolicy, attempt: int, previous: WaitBounds | None) -> WaitBounds:
    """Return one wait; only `decorrelated` jitter depends on the one before."""
    if previous is None:
        bounds = bounds_of(policy, attempt)
        return WaitBounds(attempt, bounds.least, bounds.at(0.5), bounds.most)
    least = bounds_of(policy, attempt, previous.least_seconds).least
    expected = bounds_of(policy, attempt, previous.expected_seconds).at(0.5)
    most = bounds_of(policy, attempt, previous.most_seconds).most
    return WaitBounds(attempt, least, expected, most)
