"""What one worker may start of its own accord, without asking the entity `call_limiter`."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from durable_retry.features.limits.rules.settings import LimitSettings

WINDOW: Final = timedelta(seconds=1)
CROWDED_FOR: Final = timedelta(seconds=5)
"""For so long after a worker has seen an attempt wait for the rate, it starts none within its share, as the
entity grants the whole rate meanwhile. This must be longer than `CROWDED_FOR` of the entity."""
KEPT_KEYS: Final = 1_000
"""Keys of which a worker remembers the latest start."""
BURST: Final = 1.125
"""A worker starts at most this many times the rate in a second, also where late turns come together."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker gets of a number that is shared out among the workers."""

    workers: int = 1
    rank: int = 0  # among them, from 0

    def of(self, shared: int) -> int:
        """Return its part of a number; the parts of all workers add up to that number."""
        return shared // self.workers + (self.rank < shared % self.workers)


ALONE: Final = Part()


@dataclass(slots=True)
class WorkerShare:
    """What one worker started, and may start. No I/O, no clock, no lock."""

    settings: LimitSettings
    running: int = 0  # attempts under way within the share
    waited_at: datetime | None = None  # when an attempt that waits for a limit was last here
    full_at: datetime | None = None  # when an attempt last found all slots of the share taken
    _own_starts: deque[datetime] = field(default_factory=deque)  # of the last second, within the share
    _starts: deque[datetime] = field(default_factory=deque)  # of the last second, all
    _started_at: datetime | None = None  # when the latest attempt here started, where there is a rate
    # When the latest attempt of each key started, where keys have rates.
    _key_starts: dict[str | None, datetime] = field(default_factory=dict)

    def seconds_until(self, turn_at: datetime | None, now: datetime, *, is_crowded: bool = False) -> float:
        """Return how long an attempt that has a turn waits here, at most a second; 0 to start at once.

        Args:
            is_crowded: Whether attempts wait for the rate elsewhere: then the entity grants all of it.
        """
        rate = self.settings.rate_per_second
        if turn_at is None or rate <= 0:
            return 0.0
        if is_crowded:
            self.waited_at = now
        start_at, most = turn_at, ceil(rate * BURST)
        _drop_old(self._starts, now)
        if len(self._starts) >= most:
            start_at = max(start_at, self._starts[-most] + WINDOW)
        return min(max((start_at - now).total_seconds(), 0.0), WINDOW.total_seconds())

    def take(self, now: datetime, part: Part, *, ahead: int | None = None) -> bool:
        """Start an attempt within the share, if there is room and it passes no other; return whether it did.

        If attempts wait for a slot, the oldest take what is left of the shares. While this worker has seen
        some wait, new attempts ask the entity, which has the order.

        Args:
            ahead: How many older attempts wait; None if it has not waited.
        """
        if not self.settings.is_shared:
            return False
        if ahead is not None:
            self.waited_at = now
        if not self._has_room(now, part, ahead) or not self._has_start(now, part):
            return False
        self.note_start(now)
        self.running += 1
        return True

    def may_start_late(self, now: datetime, part: Part, limit_key: str | None = None) -> bool:
        """Whether an attempt whose turn is over still starts: if the only worker starts less than the rate.

        Where messages are slow, all attempts come late, and each would ask for one turn after the other.
        Beside other workers it asks: they may start all of the rate, in turns that were reserved since.
        """
        rate = self.settings.rate_per_second
        if part.workers > 1 or rate <= 0:
            return False
        self.waited_at = now
        _drop_old(self._starts, now)
        if rate > 1 and len(self._starts) >= int(rate):
            return False
        spaced = [(self._started_at, rate)] if rate <= 1 else []
        spaced += [(self._key_starts.get(limit_key), self._key_rate)] if self._key_rate > 0 else []
        return all(at is None or now - at >= timedelta(seconds=1 / most) for at, most in spaced)

    def note_start(self, now: datetime, limit_key: str | None = None) -> None:
        """Count a start by the rate."""
        if self.settings.rate_per_second > 0:
            self._starts.append(now)
            self._started_at = now
        if self._key_rate > 0 and limit_key is not None:
            self._key_starts.pop(limit_key, None)
            self._key_starts[limit_key] = now
            if len(self._key_starts) > KEPT_KEYS:
                del self._key_starts[next(iter(self._key_starts))]

    @property
    def _key_rate(self) -> float:
        per_key = self.settings.per_key
        return 0.0 if per_key is None else per_key.rate_per_second

    def _has_room(self, now: datetime, part: Part, ahead: int | None) -> bool:
        shared = self.settings.shared_concurrency
        if self.settings.max_concurrency <= 0:
            return True
        if ahead is None and (self._is_recent(self.waited_at, now) or self._is_recent(self.full_at, now)):
            return False
        if self.running >= part.of(shared):
            self.full_at = now
            return False
        return ahead is None or ahead < shared

    def _is_recent(self, at: datetime | None, now: datetime, past: timedelta = WINDOW) -> bool:
        return at is not None and now - at < past

    def _has_start(self, now: datetime, part: Part) -> bool:
        rate = self.settings.rate_per_second
        if rate <= 0:
            return True
        # With many workers and few starts, each worker sees attempts that wait less often.
        if self._is_recent(self.waited_at, now, CROWDED_FOR * max(1.0, part.workers / rate)):
            return False
        _drop_old(self._own_starts, now)
        if len(self._own_starts) >= part.of(self.settings.shared_rate):
            return False
        self._own_starts.append(now)
        return True

    def holds_slots(self) -> bool:
        """Whether attempts are under way within its share of `max_concurrency`."""
        return self.running > 0 and self.settings.max_concurrency > 0

    def ended(self) -> None:
        """Note the end of an attempt that `take` let start."""
        self.running -= 1


def _drop_old(starts: deque[datetime], now: datetime) -> None:
    while starts and now - starts[0] >= WINDOW:
        starts.popleft()
