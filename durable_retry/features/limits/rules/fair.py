"""Weighted fair shares over limit keys: which of the waiting attempts goes first, for `call_limiter`.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). A dependency has a virtual time V, and a key with
the weight w the virtual finish F of what it was granted:

    the n-th place of a key    has the start max(F, V - C) + (n - 1) / w; the lowest start goes first
    a grant of that start      sets F to it + 1 / w, and V to it where that is later

C is the credit: a key that used less than its share goes before others, for at most so many attempts. So a
burst of one customer does not wait for the backlog of another, and over a longer time each has its share. A
key whose F is not after V - C has all of its credit, and is forgotten. Attempts without a key count as one
more key, with the weight 1. The places of one key go by `Place.order`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

from durable_retry.base.json_forms import JsonRow, JsonShape, MsInstant, to_ms
from durable_retry.base.names import Priority

KEPT_KEYS: Final = 128
"""Keys that a state remembers, first those with waiting attempts. Another key counts as new."""
KEPT_PLACES: Final = 128
"""Places that a state remembers, of those that go first: about 6 KB. Attempts behind them have no place."""
KEPT_BYTES: Final = 5_000
"""The most that the limit keys of places may take, and keys as well: with long keys fewer are remembered."""
_PLACE_BYTES: Final = 60
CREDIT: Final = 32.0
"""In virtual time, which is attempts of a key of weight 1: a key goes before a backlog by so many at most."""
LONGEST_TAIL_SECONDS: Final = 300.0
"""An attempt without a place asks again after at most so long: 10,000 of them ask 33 times a second."""
_DIGITS: Final = 6
"""Decimal places of a virtual time: few, so that states stay short. Enough, as a weight is at most 1,000."""


WEIGHTS: Final[Mapping[Priority, float]] = {Priority.HIGH: 4.0, Priority.NORMAL: 1.0, Priority.LOW: 0.25}
"""How much a second of waiting counts."""


def counted_wait_ms(due_ms: int, priority: Priority | None, now_ms: int) -> float:
    """Return how long something has waited, times the weight of its priority; None is `normal`."""
    return max(now_ms - due_ms, 0) * WEIGHTS[priority or Priority.NORMAL]


@dataclass(frozen=True, slots=True)
class Place(JsonRow):
    """The place of an attempt that waits for a slot or a turn."""

    due_ms: int  # when the attempt was first due, in milliseconds since 1970, as they are quick to read
    name: str  # of its lease, see `leases.name_of`; "" if it was called from the line
    asks_ms: int  # when it asks again
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None  # None without one
    weight: float | None = None  # of its key; None is 1
    waiter: str | None = None  # the instance that is told when a slot is free; None for nobody
    # The lease whose end tells it that a slot is free; "" if it was told; None if it is not called.
    told_by: str | None = None

    @property
    def is_called(self) -> bool:
        """Whether it is told of a free slot, or will be."""
        return self.told_by is not None

    @property
    def is_told(self) -> bool:
        """Whether it is told of a free slot, and is to ask until `asks_ms`."""
        return self.told_by == ""

    def told(self, until: datetime | None) -> "Place":
        """Return the place after it was told of a slot, to ask until an instant; None if none tells it."""
        return (
            replace(self, told_by=None) if until is None else replace(self, told_by="", asks_ms=to_ms(until))
        )

    def is_of(self, name: str, waiter: str | None) -> bool:
        """Whether an attempt has it."""
        return self.name == name or (self.waiter is not None and self.waiter == waiter)

    def counts_less_than(self, other: "Place") -> bool:
        """Whether a second of waiting counts less for it."""
        return WEIGHTS[self.priority or Priority.NORMAL] < WEIGHTS[other.priority or Priority.NORMAL]

    def passes(self, other: "Place", then_ms: int) -> bool:
        """Whether at an instant it goes before another place of the same key."""
        return self.limit_key == other.limit_key and self.order(then_ms) < other.order(then_ms)

    def order(self, now_ms: int) -> tuple[float, int, str]:
        """Return the sort key among the places of one limit key: the lowest goes first."""
        return -counted_wait_ms(self.due_ms, self.priority, now_ms), self.due_ms, self.name


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an attempt waits, and when it asks again."""

    seconds: float
    reason: str  # the limit that is reached, in a few words
    tail_seconds: float  # between two attempts without a place that ask again one after the other
    longest_seconds: float  # the longest wait of an attempt that has a place
    first_seconds: float  # the longest wait of a new attempt
    is_shared: bool = True  # whether the limit holds for other keys, too
    is_for_slot: bool = False  # whether it ends when a slot is given back
    told_from: float = 0.0  # seconds; an attempt with a place asks by itself if its wait is shorter


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
        """Return what a key was granted; a new share if the key is not remembered."""
        kept = (share for share in self.shares if share.limit_key == limit_key)
        return next(kept, KeyShare(self.least, limit_key))

    def in_order(self, places: Iterable[Place], now: datetime) -> list[Place]:
        """Return the places in the order in which they go."""
        now_ms = to_ms(now)
        starts, by_age = dict[str | None, float](), []
        for place in sorted(places, key=lambda place: place.order(now_ms)):
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
        """Return the shares after a grant; None if only attempts without a key are left.

        Args:
            waiting: The places of the others.
            next_start_at: When its key may start again; None means at once.
        """
        share = self.share_of(place.limit_key)
        start = max(share.finish, self.least)
        finish = round(start + 1 / (place.weight or 1.0), _DIGITS)
        granted = replace(share, finish=finish, next_start_at=next_start_at)
        return self._with(granted, max(self.virtual, start), waiting, now)

    def behind(self, place: Place, now: datetime, seconds: float, spacing: timedelta) -> tuple[Self, float]:
        """Return the shares with an attempt that gets no place, and in how many seconds it asks again.

        Args:
            seconds: Its wait if no other attempt of its key were without a place.
            spacing: The time between two attempts of its key.
        """
        share = self.share_of(place.limit_key)
        tail_at = after_tail(share.tail_at, now, seconds, spacing)
        others = (other for other in self.shares if other.limit_key != share.limit_key)
        shares = kept_within(KEPT_KEYS, (replace(share, tail_at=tail_at), *others), _key_bytes)
        return type(self)(self.virtual, tuple(shares)), (tail_at - now).total_seconds()

    def _with(
        self, changed: KeyShare, virtual: float, waiting: Iterable[Place], now: datetime
    ) -> Self | None:
        counts = Counter(place.limit_key for place in waiting)
        others = (share for share in self.shares if share.limit_key != changed.limit_key)
        needed = [share for share in (*others, changed) if share.is_needed(virtual - CREDIT, now)]
        if all(key is None for key in (*counts, *(share.limit_key for share in needed))):
            return None
        needed.sort(key=lambda share: (share.limit_key in counts, share.finish), reverse=True)
        return type(self)(virtual, tuple(kept_within(KEPT_KEYS, needed, _key_bytes)))


def after_tail(tail_at: datetime | None, now: datetime, seconds: float, spacing: timedelta) -> datetime:
    """Return when one more attempt without a place asks again: they ask one after the other.

    Args:
        tail_at: When the last of them asks; None without any.
        seconds: Its wait if it had the last place.
    """
    at = max(tail_at or now, now + timedelta(seconds=seconds)) + spacing
    return min(at, now + timedelta(seconds=LONGEST_TAIL_SECONDS))


def kept_within[T](most: int, rows: Iterable[T], bytes_of: Callable[[T], int]) -> list[T]:
    """Return the first rows, as many as have room in a state."""
    kept, left = list[T](), KEPT_BYTES
    for row in rows:
        left -= bytes_of(row)
        if left < 0 or len(kept) == most:
            break
        kept.append(row)
    return kept


def place_bytes(place: Place) -> int:
    """Return about how much room a place takes beyond one without a limit key."""
    return 0 if place.limit_key is None else _PLACE_BYTES // 2 + len(place.limit_key)


def _key_bytes(share: KeyShare) -> int:
    return _PLACE_BYTES + len(share.limit_key or "")


NO_SHARES: Final = FairShares()
