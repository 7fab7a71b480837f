"""The only reader of time."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Return this instant, aware and in UTC."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Let seconds pass."""
    time.sleep(seconds)


def monotonic_seconds() -> float:
    """Return seconds that only grow, for measuring how long something takes."""
    return time.monotonic()
