"""The clock of the command line, which a test puts its own in place of; times from it."""

import time
from datetime import UTC, datetime
from functools import partial

from retryctl.output import span

now = partial(datetime.now, UTC)
pause = time.sleep
monotonic_seconds = time.monotonic


def left(instant: str, digits: int | None = 1) -> str:
    """Return the time to an RFC 3339 instant, such as `1.3 s`; that to a past one is 0."""
    return span(round(max(0.0, (datetime.fromisoformat(instant) - now()).total_seconds()), digits))


def ago(instant: str) -> str:
    """Return the time since an RFC 3339 instant, such as `2 min ago`."""
    return f"{span(round(max(0.0, (now() - datetime.fromisoformat(instant)).total_seconds())))} ago"
