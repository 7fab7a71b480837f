"""When each of many waiting operations may go, so that they do not come back as one herd."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.spread import fraction_of


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """How fast waiting operations are let go.

    Attributes:
        per_second: mean rate of release, above 0.
        minimum_spread_seconds: even a few operations are spread over this long.
    """

    per_second: float = 50.0
    minimum_spread_seconds: float = 1.0


RELEASE = ReleaseSettings()
"""The engine's own rate. A constant, since it protects every dependency and no file names it."""


def spread_seconds(waiting: int, settings: ReleaseSettings = RELEASE) -> float:
    """Length of the window over which `waiting` operations are spread: waiting / rate, and the least one."""
    return max(settings.minimum_spread_seconds, waiting / settings.per_second)


def release_at(
    operation_id: str, reopened_at: datetime, waiting: int, settings: ReleaseSettings = RELEASE
) -> datetime:
    """The instant at which a waiting operation may go; the same on every machine and in every replay.

    Arithmetic: N waiting operations are spread over S = max(minimum_spread, N / R) seconds. Each takes the
    place S * u, where u in [0, 1) is a hash of the operation's id and of the instant of reopening. The u are
    independent and even, so the number released in any one second is binomial with mean N / S <= R and a
    standard deviation below sqrt(R). At R = 50 that is 50 and 7: a second with 80 or more comes once in
    15,000, one with 100 or more once in a billion. N = 10,000 take S = 200 s.

    There is no upper limit on S, since it would be a limit on the protection; an operation whose deadline
    comes before its place is the caller's to move forward.

    The instant of reopening is part of the hash, so that the operation that came last after one break is not
    last after every break.

    Args:
        operation_id: who waits.
        reopened_at: when calls become possible (the end of the break, or the closing).
        waiting: how many wait for this circuit, as far as known; too small a number makes the rate higher.
        settings: rate and least spread.
    """
    fraction = fraction_of("release", operation_id, reopened_at.isoformat())
    return reopened_at + timedelta(seconds=fraction * spread_seconds(waiting, settings))
