import time
from datetime import datetime

import pytest

from retryctl import clock


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which nothing takes time but pauses."""
    instant = datetime.fromisoformat("2026-11-21T09:00:00Z")
    seconds = [0.0]
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(clock, "now", lambda: instant)
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: seconds[0])
    monkeypatch.setattr(clock, "pause", lambda pause: seconds.__setitem__(0, seconds[0] + pause))
