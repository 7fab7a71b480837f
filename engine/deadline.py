"""What still fits before a deadline.

Two rules. An attempt that is due now may start while any time is left. A wait is only worth it when the
attempt after it has at least the time to connect: so a wait ends by `latest_start` or is not begun.
"""

from datetime import datetime, timedelta

from engine.policy import Timeouts


def deadline_of(created_at: datetime, deadline_seconds: float) -> datetime | None:
    """Give the instant after which nothing is tried; 0 seconds means none."""
    return None if deadline_seconds == 0 else created_at + timedelta(seconds=deadline_seconds)


def is_over(deadline_at: datetime | None, now: datetime) -> bool:
    """Tell whether no time is left; never, without a deadline."""
    return deadline_at is not None and now >= deadline_at


def latest_start(deadline_at: datetime, timeouts: Timeouts) -> datetime:
    """Give the last instant to which waiting makes sense: the time to connect must fit behind it."""
    return deadline_at - timedelta(seconds=min(timeouts.connect_seconds, timeouts.attempt_seconds))


def seconds_left(deadline_at: datetime | None, now: datetime) -> float | None:
    """Give the seconds until the deadline, 0 when it is over; None without one."""
    return None if deadline_at is None else max(0.0, (deadline_at - now).total_seconds())


def attempt_seconds(timeouts: Timeouts, deadline_at: datetime | None, now: datetime) -> float:
    """Give the time that one attempt has, all of it: its own timeout, cut by the deadline."""
    left = seconds_left(deadline_at, now)
    return timeouts.attempt_seconds if left is None else min(timeouts.attempt_seconds, left)
