"""Weighted fair shares over limit keys: who of those that wait goes first, for the entity `call_limiter`.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). A dependency has a virtual time V, and a key with
the weight w the virtual finish F of what it was granted:

    the n-th place of a key    has the start max(F, V - C) + (n - 1) / w; the lowest start goes first
    a grant of that start      sets F to it + 1 / w, and V to it where that is later

C is the credit: a key that used less of its share than others goes before them, for so many attempts at most.
So a burst of one customer waits as if the backlog of another were not there, and over a longer time each has
its share. A key whose F is not after V - C has all of its credit, and is forgotten. Attempts without a key
are one key more, of weight 1. Within a key places go by their own order, so one key alone has the order of
places.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

from durable_retry.engine.base.json_forms import JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.names import Priority, counted_wait

KEPT_KEYS: Final = 128
"""Keys that a state remembers, those that wait before others: about 5 KB. Another goes as if it were new."""
PLACES_WITH_KEYS: Final = 32
"""Places that a state remembers where limit keys are in use. Those behind ask one after the other, in their
turn, so more places would only ask more often."""
CREDIT: Final = 32.0
"""In virtual time: attempts of a key of weight 1. Each other key with a backlog waits for so many at most."""
LONGEST_TAIL_SECONDS: Final = 300.0
"""The longest wait of those without a place until they ask again: 10,000 of them ask 33 times a second."""
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
class Wait:
    """Why an attempt waits, and when it asks again."""

    seconds: float
    reason: str  # the limit that is reached, in a few words
    turn_seconds: float  # from one grant of that limit to the next, on average
    is_shared: bool = True  # whether other keys have grants of it, too


@dataclass(frozen=True, slots=True)
class KeyShare(JsonRow):
    """What a key was granted, and until when its attempts without a place wait."""

    finish: float  # its virtual finish
    limit_key: str | None = None  # None: that of the attempts without one
    next_start_at: MsInstant | None = None  # by the rate of each key; None means at once
    tail_at: MsInstant | None = None  # when the last of them asks again; None without any

    def is_needed(self, least: float, now: datetime) -> bool:
        """Whether it says more than that the key has all of its credit, by the least virtual start."""
        return self.finish > least or any(
            at is not None and at > now for at in (self.next_start_at, self.tail_at)
        )


@dataclass(frozen=True, slots=True)
class FairShares(JsonShape):
    """What the keys of a dependency were granted."""

    virtual: float = 0.0
    shares: tuple[KeyShare, ...] = ()

    @property
    def least(self) -> float:
        """The virtual start of a key that has all of its credit."""
        return self.virtual - CREDIT

    def share_of(self, limit_key: str | None) -> KeyShare:
        """Return what a key was granted; nothing, where it is not remembered."""
        kept = (share for share in self.shares if share.limit_key == limit_key)
        return next(kept, KeyShare(self.least, limit_key))

    def in_order(self, places: Iterable[Place], now: datetime) -> list[Place]:
        """Return the places in the order in which they go."""
        starts, by_age = dict[str | None, float](), []
        for place in sorted(places, key=lambda place: place.order(now)):
            key = place.limit_key
            start = starts.get(key)
            if start is None:
                start = max(self.share_of(key).finish, self.least)
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
        share = self.share_of(place.limit_key)
        start = max(share.finish, self.least)
        finish = round(start + 1 / (place.weight or 1.0), _DIGITS)
        granted = replace(share, finish=finish, next_start_at=next_start_at)
        return self._with(granted, max(self.virtual, start), waiting, now)

    def behind(
        self, place: Place, waiting: Collection[Place], now: datetime, wait: Wait
    ) -> tuple[Self | None, float]:
        """Return in how many seconds an attempt for which no place is kept asks again, and the shares then.

        One after the other, not all of a backlog at once.

        Args:
            waiting: All places, its own among them.
            wait: What it waits for.
        """
        weights = {each.limit_key: each.weight or 1.0 for each in waiting}
        part = weights[place.limit_key] / sum(weights.values()) if wait.is_shared else 1.0
        share = self.share_of(place.limit_key)
        tail_at = max(share.tail_at or now, now) + timedelta(seconds=wait.turn_seconds / part)
        tail_at = min(tail_at, now + timedelta(seconds=LONGEST_TAIL_SECONDS))
        shares = self._with(replace(share, tail_at=tail_at), self.virtual, waiting, now)
        return shares, (tail_at - now).total_seconds()

    def _with(
        self, changed: KeyShare, virtual: float, waiting: Iterable[Place], now: datetime
    ) -> Self | None:
        counts = Counter(place.limit_key for place in waiting)
        others = (share for share in self.shares if share.limit_key != changed.limit_key)
        needed = [share for share in (*others, changed) if share.is_needed(virtual - CREDIT, now)]
        if all(key is None for key in (*counts, *(share.limit_key for share in needed))):
            return None
        needed.sort(key=lambda share: (share.limit_key in counts, share.finish))
        return type(self)(virtual, tuple(needed[-KEPT_KEYS:]))


NO_SHARES: Final = FairShares()
