"""What the entity `call_limiter` of one dependency remembers."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.json_forms import JsonShape, to_ms
from durable_retry.features.limits.rules.fair import KEPT_PLACES, NO_SHARES, FairShares, Place
from durable_retry.features.limits.rules.leases import NO_LEASES, Lease, Leases, mark_of, with_answered
from durable_retry.features.limits.rules.settings import KeyLimits, ReadLimits
from durable_retry.features.limits.rules.told import Told
from durable_retry.rules.retry.slots import DOOR_SECONDS

LATE: Final = timedelta(seconds=3)
"""An attempt keeps its place while it is at most so late: timers of Azure Storage are up to two seconds late.
Slow messages add to this: `Limiter.delay`."""
RESERVED_SECONDS: Final = 2.5
"""A turn of a rate is reserved at most so far ahead, further only where messages are slow. Late timers need
about as much."""
UNUSED: Final = timedelta(seconds=2)
"""A slot or start that none took for so long goes to the next attempt that asks. Slow messages add to this:
`Limiter.patience`."""
LAGS: Final = 3.0
"""So many messages pass, one after the other, until an attempt that was told of a slot, or is due, asks."""
MOST_LAG_SECONDS: Final = 5.0
USUAL_LAG_SECONDS: Final = 0.25
"""On Azure Storage a message comes within this, unless the host is busy or its queue is another host's."""
LAG_WEIGHT: Final = 0.1
"""Weight of a message in the lag, if it came sooner than those before it."""
CAME_WEIGHT: Final = 0.1
"""Weight of one attempt that was told of a slot in `Limiter.came`."""
LEAST_PART: Final = 0.05
"""The least `Limiter.came`, which thirty in a row that do not come lead to. Then all that wait are told, and
forgotten until they ask."""
ALL_CAME: Final = 0.99
"""From this on `Limiter.came` counts as all: each that comes brings it nearer to 1, but never to it."""
HANDOVER: Final = timedelta(seconds=1)
"""Once attempts have waited for the rate for so long, no worker starts any within its share."""
CROWDED_FOR: Final = timedelta(seconds=3)
"""For so long after the last attempt that had to wait, no worker starts any within its share. Workers
themselves wait longer, see `WorkerShare`."""
LASTED_WEIGHT: Final = 0.1
"""Weight of the latest attempt in the mean duration."""
SHORT_WEIGHT: Final = 0.5
"""The same, if it took less than half of the mean: the dependency is no longer slow."""


@dataclass(frozen=True, slots=True)
class Limiter(JsonShape):
    """State of the entity `call_limiter`."""

    clock: datetime | None = None  # the latest instant of a message; time does not run backwards
    leases: Leases = NO_LEASES  # attempts under way that it granted
    last_start_at: datetime | None = None  # the latest start that was granted, by the rate
    # When a slot was last given back, or lent to an attempt that was expected.
    moved_at: datetime | None = None
    lasted_seconds: float | None = None  # mean duration of the attempts that gave their slot back
    answered: str = ""  # records of requests that were answered and hold no lease, or no longer
    places: tuple[Place, ...] = ()  # the places of the attempts that go first, in their order
    line: tuple[str, ...] = ()  # the instances without a place that are told; first those that had one
    tail_at: datetime | None = None  # when the last attempt without a place asks again; None without any
    settings: ReadLimits | None = None  # of the latest request
    lag_seconds: float | None = None  # how long a request takes to come; None for no time
    looks_at: datetime | None = None  # when the entity looks who has come, see `calls`; None for not
    came: float | None = None  # which part of the attempts that were told of a slot came; None for all
    # Since when, and until when, attempts have to wait for the rate; None when none has.
    crowded_since: datetime | None = None
    crowded_until: datetime | None = None
    fair: FairShares | None = None  # what limit keys were granted; None while none is in use
    told: tuple[Told, ...] | None = None  # answers to requests that were signalled; None without any

    def at(self, received_at: datetime) -> "tuple[Limiter, datetime]":
        """Return the state at an instant, without expired leases, and that instant: time never runs back."""
        now = received_at if self.clock is None else max(self.clock, received_at)
        current = replace(self, clock=now)
        if not current.is_crowded(now):
            current = replace(current, crowded_since=None, crowded_until=None)
        for lease in self.leases.expired(now):
            current = current.without(lease)
        return current, now

    def without(self, lease: Lease, told_at: datetime | None = None) -> "Limiter":
        """Return the state when a lease has ended; its request is not granted again.

        Args:
            told_at: When the attempts that it calls are told of its slot; None if none tells them.
        """
        answered = with_answered(self.answered, lease.name, lease.asked_at, lease.asked_at)
        until = None if told_at is None else told_at + self.patience
        places = tuple(place.told(until) if place.told_by == lease.name else place for place in self.places)
        return replace(self, leases=self.leases.without(lease.name), answered=answered, places=places)

    def with_lasted(self, seconds: float | None, held_seconds: float) -> "Limiter":
        """Return the state after an attempt that took so long; None if none was made.

        The time of the messages around the attempt counts as well, but not the time in a full queue: that
        queue may be over, and attempts would be asked to come back only in a minute.

        Args:
            held_seconds: How long it had its slot.
        """
        if seconds is None:
            return self
        seconds = max(seconds, min(held_seconds, seconds + self.patience.total_seconds()))
        before = seconds if self.lasted_seconds is None else self.lasted_seconds
        weight = SHORT_WEIGHT if seconds < before / 2 else LASTED_WEIGHT
        return replace(self, lasted_seconds=round(before + weight * (seconds - before), 3))

    def without_waiter(self, waiter: str | None) -> "Limiter":
        """Return the state without an instance in the line; None changes nothing."""
        line = (other for other in self.line if other != waiter)
        return self if waiter is None else replace(self, line=tuple(line))

    def seen(self, *, came: int = 0, gone: int = 0) -> "Limiter":
        """Return the state after so many attempts that were told of a slot came, or did not come."""
        part = (self.came or 1.0) * (1 - CAME_WEIGHT) ** gone
        part = max(round(1 - (1 - part) * (1 - CAME_WEIGHT) ** came, 3), LEAST_PART)
        return replace(self, came=part if part < ALL_CAME else None)

    @property
    def sure_part(self) -> float:
        """The part that comes at least of the attempts that are told of a slot: a few may all be gone."""
        return 1.0 if self.came is None else self.came / (2 - self.came)

    def heard(self, asked_at: datetime, now: datetime) -> "Limiter":
        """Return the state after a request that was made at an instant has come."""
        lag = min(max((now - asked_at).total_seconds(), 0.0), MOST_LAG_SECONDS)
        before = self.lag_seconds or 0.0
        lag = lag if lag >= before else before + LAG_WEIGHT * (lag - before)
        return replace(self, lag_seconds=round(lag, 3) or None)

    @property
    def patience(self) -> timedelta:
        """How long a free slot is kept for the attempts that were told of it."""
        return UNUSED + timedelta(seconds=LAGS * (self.lag_seconds or 0.0))

    @property
    def delay(self) -> timedelta:
        """What slow messages add to `LATE` and the like, which allow for late timers and usual messages."""
        return timedelta(seconds=LAGS * max((self.lag_seconds or 0.0) - USUAL_LAG_SECONDS, 0.0))

    def is_unused(self, latest: datetime | None, now: datetime) -> bool:
        """Whether what is free since an instant is free for so long that none comes; None is since ever."""
        return latest is None or latest + self.patience <= now

    @property
    def pool(self) -> int:
        """How many slots the entity lends; 0 if only limit keys have bounds."""
        return (
            0 if self.settings is None else self.settings.max_concurrency - self.settings.shared_concurrency
        )

    @property
    def free_slots(self) -> int:
        """How many slots the entity could lend now, apart from the bounds of limit keys."""
        return self.pool - len(self.leases) if self.pool > 0 else KEPT_PLACES

    @property
    def free(self) -> int:
        """How many attempts the entity could let start, apart from the bounds of limit keys.

        By the rate it is those whose turns could be reserved when they come, if they are told now.
        """
        if self.settings is None or self.clock is None or not self.settings.tells_turns:
            return self.free_slots
        reach_seconds = RESERVED_SECONDS + UNUSED.total_seconds() if self.turns else DOOR_SECONDS
        until = self.clock + timedelta(seconds=reach_seconds + LAGS * (self.lag_seconds or 0.0))
        seconds = (until - self.next_start(self.clock)).total_seconds()
        turns = int(seconds * self.settings.rate_per_second) + 1 if seconds >= 0 else 0
        return turns if self.turns else min(self.free_slots, turns)

    @property
    def tells_somebody(self) -> bool:
        """Whether an attempt waits that can be told."""
        return bool(self.line) or any(place.waiter is not None for place in self.places)

    @property
    def turns(self) -> ReadLimits | None:
        """The limits where a rate alone bounds attempts; None elsewhere."""
        return self.settings if self.settings is not None and self.settings.is_rate_alone else None

    @property
    def least_called(self) -> int:
        """How many are told at a time, unless fewer wait: for turns those of a second, not each alone."""
        return 1 if self.turns is None else int(self.turns.rate_per_second)

    @property
    def taken_at(self) -> datetime | None:
        """When a slot was last given back, or lent to an attempt that was expected; or the latest turn."""
        return self.moved_at if self.turns is None else self.last_start_at

    @property
    def lent_by_key(self) -> Counter[str]:
        """How many slots each limit key has, by its mark; empty if keys have no bounds."""
        is_bound = self.settings is not None and self.settings.per_key is not None
        return self.leases.by_mark() if is_bound else Counter()

    @property
    def called(self) -> Counter[str | None]:
        """How many attempts of each limit key were told of a slot, or will be when one is given back."""
        return Counter(place.limit_key for place in self.places if place.is_called)

    def live_places(self, now: datetime) -> tuple[Place, ...]:
        """Return the places without those that are too late; `calls.look` removes those that were told."""
        late_ms = to_ms(now - LATE - self.delay)
        return tuple(place for place in self.places if place.is_told or place.asks_ms >= late_ms)

    def is_crowded(self, now: datetime) -> bool:
        """Whether attempts wait for the rate: some had to, and since then starts have followed each other.

        Those that had to wait may have left, and workers see none of them any more.
        """
        last, until = self.last_start_at, self.crowded_until
        return last is not None and until is not None and now <= min(until, last + CROWDED_FOR)

    def next_start(self, now: datetime) -> datetime:
        """Return when the rate of all allows the next start; at once without a rate."""
        settings = self.settings
        if self.last_start_at is None or settings is None or settings.rate_per_second <= 0:
            return now
        since = self.crowded_since
        # While attempts wait, the entity grants the whole rate; otherwise workers start their shares of it.
        is_all = since is not None and self.is_crowded(now) and since + HANDOVER <= self.last_start_at
        rate = settings.rate_per_second - (0 if is_all else settings.shared_rate)
        return max(now, self.last_start_at + timedelta(seconds=1 / rate))

    def crowded(self, seconds: float, now: datetime) -> "Limiter":
        """Return the state after an attempt got to wait for the rate for so long."""
        until = now + timedelta(seconds=seconds) + CROWDED_FOR
        return replace(
            self,
            crowded_since=self.crowded_since or now,
            crowded_until=max(until, self.crowded_until or until),
        )

    def start_of(self, limit_key: str, now: datetime) -> datetime:
        """Return when `KeyLimits.rate_per_second` allows the next attempt of a key."""
        return max(now, (self.fair or NO_SHARES).share_of(limit_key).next_start_at or now)

    def charged(self, own: Place, per_key: KeyLimits | None, at: datetime, now: datetime) -> "Limiter":
        """Return the state after a start was granted; it is the same unless limit keys are in use."""
        if self.in_use is None and own.limit_key is None:
            return self
        rate = 0.0 if own.limit_key is None or per_key is None else per_key.rate_per_second
        following = None if rate <= 0 else at + timedelta(seconds=1 / rate)
        return replace(self, fair=(self.fair or NO_SHARES).charged(own, self.places, now, following))

    def room_of(self, limit_key: str | None, lent_by_key: Counter[str], now: datetime) -> int:
        """Return how many attempts of a key its own bounds allow to start now.

        Args:
            lent_by_key: By the marks of limit keys.
        """
        room, per_key = KEPT_PLACES, None if self.settings is None else self.settings.per_key
        if limit_key is None or per_key is None:
            return room
        if per_key.max_concurrency > 0:
            room = per_key.max_concurrency - lent_by_key[mark_of(limit_key)]
        if per_key.rate_per_second > 0:
            room = min(room, int(self.start_of(limit_key, now) <= self.next_start(now)))
        return max(room, 0)

    @property
    def in_use(self) -> FairShares | None:
        """The shares; None if limit keys are not in use."""
        has_keys = self.fair is not None or any(place.limit_key is not None for place in self.places)
        return (self.fair or NO_SHARES) if has_keys else None
