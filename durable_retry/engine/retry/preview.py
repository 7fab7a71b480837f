"""The waits that a policy can lead to, and whether they fit the deadline."""

from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.json_record import JsonRecord
from durable_retry.engine.retry.backoff import Bounds, bounds_of
from durable_retry.engine.retry.policy import UNLIMITED, RetryPolicy, Timeouts

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
    """

    waits: tuple[WaitBounds, ...]
    is_complete: bool
    is_unlimited: bool
    attempt_seconds: float
    deadline_seconds: float

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
