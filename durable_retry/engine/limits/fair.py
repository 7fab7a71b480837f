"""Weighted fair shares over limit keys: who of those that wait goes first, for the entity `call_limiter`.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). A dependency has a virtual time V, and a key with
the weight w the virtual finish F of what it was granted:

    the n-th place of a key    has the start max(F, V) + (n - 1) / w; the lowest start goes first
    a grant of that start      sets V to it, and F to it + 1 / w

A key whose F is not after V has had no more than its share, and is forgotten. Attempts without a key are one
key more, of weight 1. Within a key places go by their own order, so one key alone has the order of places.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from durable_retry.engine.base.json_forms import JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.names import Priority, counted_wait

KEPT_KEYS: Final = 128
"""Keys that a state remembers, those that wait before others: about 5 KB. Another goes as if it were new."""
_DIGITS: Final = 6
"""A virtual time has so many, so that states stay short; a weight is 1,000 at most."""


@dataclass(frozen=True, slots=True)
class Place(JsonRow):
    """The place of an attempt that waits for a slot or a turn."""

    due_at: MsInstant  # when the attempt was first due
    lease_id: str
    asks_at: MsInstant  # when it asks again
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None  # None without one
    weight: float | None = None  # of its key; None is 1

    def order(self, now: datetime) -> tuple[timedelta, datetime, str]:
        """Return what places of one key are sorted by, the first to go first."""
        return -counted_wait(self.due_at, self.priority, now), self.due_at, self.lease_id


@dataclass(frozen=True, slots=True)
class KeyShare(JsonRow):
    """What a key was granted."""

    finish: float  # its virtual finish
    limit_key: str | None = None  # None: that of the attempts without one
    next_start_at: MsInstant | None = None  # by the rate of each key; None means at once


@dataclass(frozen=True, slots=True)
class FairShares(JsonShape):
    """What the keys of a dependency were granted."""

    virtual: float = 0.0
    shares: tuple[KeyShare, ...] = ()

    def share_of(self, limit_key: str | None) -> KeyShare:
        """Return what a key was granted; nothing, where it is not remembered."""
        kept = (share for share in self.shares if share.limit_key == limit_key)
        return next(kept, KeyShare(self.virtual, limit_key))

    def in_order(self, places: Iterable[Place], now: datetime) -> list[Place]:
        """Return the places in the order in which they go."""
        starts, by_age = dict[str | None, float](), []
        for place in sorted(places, key=lambda place: place.order(now)):
            key = place.limit_key
            start = starts.get(key)
            if start is None:
                start = max(self.share_of(key).finish, self.virtual)
            starts[key] = start + 1 / (place.weight or 1.0)
            by_age.append((start, place))
        by_age.sort(key=lambda started: started[0])  # stable: equal starts stay in the order of places
        return [place for _, place in by_age]

    def charged(
        self, place: Place, waiting: Iterable[Place], now: datetime, next_start_at: datetime | None
    ) -> Self | None:
        """Return the shares after a grant; None when no key but that of attempts without one is left.

        Args:
            waiting: The places of the others.
            next_start_at: When its key may start again; None means at once.
        """
        start = max(self.share_of(place.limit_key).finish, self.virtual)
        finish = round(start + 1 / (place.weight or 1.0), _DIGITS)
        others = (share for share in self.shares if share.limit_key != place.limit_key)
        shares = (*others, KeyShare(finish, place.limit_key, next_start_at))
        return self._kept(start, shares, waiting, now)

    def _kept(
        self, virtual: float, shares: Iterable[KeyShare], waiting: Iterable[Place], now: datetime
    ) -> Self | None:
        counts = Counter(place.limit_key for place in waiting)
        needed = [
            share
            for share in shares
            if share.finish > virtual or (share.next_start_at is not None and share.next_start_at > now)
        ]
        if all(key is None for key in (*counts, *(share.limit_key for share in needed))):
            return None
        needed.sort(key=lambda share: (share.limit_key in counts, share.finish))
        return type(self)(virtual, tuple(needed[-KEPT_KEYS:]))
