"""The entity `call_limiter` of one dependency: it grants the attempts that exceed the workers' shares.

Its state has a lease per attempt under way and the instant of the next start. A start that comes too early
has its turn reserved: a backlog of any length costs one timer each, and goes in the order of asking.

An attempt that finds no free slot has a place among those who wait, by how long it has waited since it was
first due, which counts more with a higher priority (`engine.base.names`), and asks again when a slot should
be free for it. A free slot is kept for the first of them, until it is late or says that it has started in a
worker's share. The instant comes with each request, so that one that lost its place is in the same order.

Where attempts have limit keys, places go by fair shares of the keys (`engine.limits.fair`), and those that
wait for the rate have places, too: only the turns of the next two seconds are reserved.

Requests and returns may come twice, late, and in another order: `engine.base.asks`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Final, Literal

from durable_retry.engine.base.asks import Ask, is_repeated, with_ask
from durable_retry.engine.base.json_forms import NOT_STORED, JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.names import Priority
from durable_retry.engine.base.text import counted
from durable_retry.engine.limits.fair import NO_SHARES, PLACES_WITH_KEYS, FairShares, Place, Wait
from durable_retry.engine.limits.settings import KeyLimits, LimitSettings

LEASE_MARGIN_SECONDS: Final = 60.0
"""Added to an attempt's time limit for its lease. Only a crash lets a lease expire; others are given back."""
LEAST_ASK_SECONDS: Final = 0.05
"""Where attempts take less than a second: half of the mean then, since a free slot waits for the oldest."""
SHORTEST_ASK_SECONDS: Final = 0.5
LONGEST_ASK_SECONDS: Final = 60.0
"""Bounds of the wait for a free slot before the operation asks again."""
OVERDUE_PART: Final = 0.25
"""An attempt that lasts longer than the mean is looked at again after this part of its time so far."""
LEAST_GRACE_SECONDS: Final = 1.0
MOST_GRACE_SECONDS: Final = 10.0
"""Bounds of how late an attempt may be and keep its place, where nothing is shared out among the workers: it
is the mean duration of attempts."""
SHARED_GRACE_SECONDS: Final = 0.5
"""The same where something is: one that is late may have started within a worker's share, unheard."""
KEPT_PLACES: Final = 128
"""Places that a state remembers, those that go first: about 7 KB."""
RESERVED_SECONDS: Final = 2.0
"""Where limit keys are in use, no turn of the rate is reserved further ahead: long enough for late timers."""
HELD_WEIGHT: Final = 0.1
"""Weight of the latest attempt in the mean duration."""


@dataclass(frozen=True, slots=True)
class Slot(JsonShape):
    """The attempt may start."""

    lease_id: str | None = None  # to be given back after the attempt; None when there is nothing to give back
    # When the request asked; given back with the lease. None when there is nothing to give back.
    asked_at: MsInstant | None = None
    # The limiter did not answer, so the attempt goes without it.
    fail_open: Annotated[bool, NOT_STORED] = False
    kind: Literal["slot"] = "slot"


@dataclass(frozen=True, slots=True)
class SlotPostponed(JsonShape):
    """The attempt waits."""

    seconds: float
    reserved: bool  # true: its start is counted now, and it need not wait for the rate again
    reason: str  # the limit that is reached, in a few words
    # How many attempts that wait for a slot are older; None when it does not wait for a slot.
    ahead: int | None = None
    kind: Literal["postponed"] = "postponed"


type SlotAnswer = Slot | SlotPostponed
"""The answer of `acquire`."""


@dataclass(frozen=True, slots=True)
class SlotRequest(JsonShape):
    """Call `acquire` of the entity `call_limiter`."""

    lease_id: str  # one per attempt; while it is lent, a request for it gets the same lease
    lease_seconds: float  # after that the slot is free again, whatever became of the attempt
    settings: LimitSettings
    reserved: bool = False  # its start was counted when it was postponed
    # A start later than this is of no use: none is reserved. None means any.
    latest_seconds: float | None = None
    # When the orchestration asked, by its replay-safe time, which tells a new request from one that is
    # delivered again (`engine.base.asks`); without it none is taken for a repetition.
    asked_at: MsInstant | None = None
    # When the attempt was first due: the oldest goes first. None means when it asked.
    due_at: MsInstant | None = None
    priority: Priority | None = None  # None is `normal`
    limit_key: str | None = None  # whose share it uses; None without one


@dataclass(frozen=True, slots=True)
class SlotLease(JsonRow):
    """One attempt under way."""

    lease_id: str
    began_at: MsInstant
    expires_at: MsInstant  # then the slot is free again
    # The instant of the latest request for it; None where that did not say.
    asked_at: MsInstant | None = None
    limit_key: str | None = None  # None without one


@dataclass(frozen=True, slots=True)
class Limiter(JsonShape):
    """State of the entity `call_limiter`."""

    clock: datetime | None = None  # the latest instant of a message; time does not run backwards
    leases: tuple[SlotLease, ...] = ()  # attempts under way that it granted
    next_start_at: datetime | None = None  # the next start, by the rate; None means at once
    held_seconds: float = 1.0  # mean duration of the attempts that gave their slot back
    answered: tuple[Ask, ...] = ()  # requests that were answered and hold no lease, or no longer
    places: tuple[Place, ...] = ()  # the places of those who wait and go first, in their order
    fair: FairShares | None = None  # what limit keys were granted; None while none is in use

    def at(self, received_at: datetime) -> "tuple[Limiter, datetime]":
        """Return the state at an instant, without expired leases, and that instant: time never runs back."""
        now = received_at if self.clock is None else max(self.clock, received_at)
        current = replace(self, clock=now)
        for lease in self.leases:
            if lease.expires_at <= now:
                current = current.without(lease)
        return current, now

    def without(self, lease: SlotLease) -> "Limiter":
        """Return the state when a lease has ended; its request is not granted again."""
        left = tuple(other for other in self.leases if other is not lease)
        return replace(self, leases=left, answered=with_ask(self.answered, lease.lease_id, lease.asked_at))

    def in_order(self, request: SlotRequest, now: datetime) -> "tuple[Limiter, datetime]":
        """Return the state without late places and without the request's own, and since when that is due."""
        alone = min(max(self.held_seconds, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS)
        is_shared = request.settings.shared_concurrency > 0
        grace = timedelta(seconds=SHARED_GRACE_SECONDS if is_shared else alone)
        own = next((place for place in self.places if place.lease_id == request.lease_id), None)
        places = [waiting for waiting in self.places if waiting is not own and waiting.asks_at + grace >= now]
        due_at = request.due_at or (request.asked_at or now if own is None else own.due_at)
        return replace(self, places=tuple(places)), due_at

    def line_of(self, own: Place, per_key: KeyLimits | None, now: datetime) -> "Line":
        """Return those who wait, as an attempt among them sees them."""
        ordered = (self.fair or NO_SHARES).in_order((*self.places, own), now)
        before = ordered[: ordered.index(own)]
        by_key = Counter(place.limit_key for place in before)
        # A key at its bound keeps no slot from the others.
        ahead = sum(min(number, self._room_of(key, per_key, now)) for key, number in by_key.items())
        return Line(ordered, own, ahead, by_key[own.limit_key])

    def leases_of(self, limit_key: str) -> tuple[SlotLease, ...]:
        """Return the attempts of a key that are under way."""
        return tuple(lease for lease in self.leases if lease.limit_key == limit_key)

    def start_of(self, limit_key: str, now: datetime) -> datetime:
        """Return when the next attempt of a key may start, by the rate of each key."""
        return max(now, (self.fair or NO_SHARES).share_of(limit_key).next_start_at or now)

    def _room_of(self, limit_key: str | None, per_key: KeyLimits | None, now: datetime) -> int:
        """Return how many attempts of a key may start now by its own bounds."""
        room = KEPT_PLACES
        if limit_key is None or per_key is None:
            return room
        if per_key.max_concurrency > 0:
            room = per_key.max_concurrency - len(self.leases_of(limit_key))
        if per_key.rate_per_second > 0:
            room = min(room, int(self.start_of(limit_key, now) <= now))
        return max(room, 0)

    def charged(self, own: Place, per_key: KeyLimits | None, at: datetime, now: datetime) -> "Limiter":
        """Return the state after a start at an instant was granted, if limit keys are in use."""
        if self.in_use is None and own.limit_key is None:
            return self
        rate = 0.0 if own.limit_key is None or per_key is None else per_key.rate_per_second
        following = None if rate <= 0 else at + timedelta(seconds=1 / rate)
        return replace(self, fair=(self.fair or NO_SHARES).charged(own, self.places, now, following))

    @property
    def in_use(self) -> FairShares | None:
        """The shares; None where limit keys are not in use."""
        has_keys = self.fair is not None or any(place.limit_key is not None for place in self.places)
        return (self.fair or NO_SHARES) if has_keys else None

    def lease_of(self, lease_id: str) -> SlotLease | None:
        """Return the lease of this name that is lent; None when there is none."""
        return next((lease for lease in self.leases if lease.lease_id == lease_id), None)

    def asked_again(self, lease: SlotLease, request: SlotRequest) -> "tuple[Limiter, Slot]":
        """Return the state in which the latest of two requests holds a lease, and what gives it back.

        When a turn's history is not stored, the turn may ask again by a clock that is behind the first one's.
        """
        if request.asked_at is None:
            return self, Slot(lease.lease_id)
        held = replace(lease, asked_at=max(request.asked_at, lease.asked_at or request.asked_at))
        leases = tuple(held if other is lease else other for other in self.leases)
        return replace(self, leases=leases), Slot(lease.lease_id, held.asked_at)


def acquire(limiter: Limiter, request: SlotRequest, received_at: datetime) -> tuple[Limiter, SlotAnswer]:
    """Grant a slot, or return when to ask again."""
    limiter, now = limiter.at(received_at)
    if (lease := limiter.lease_of(request.lease_id)) is not None:
        return limiter.asked_again(lease, request)
    if is_repeated(limiter.answered, request.lease_id, request.asked_at):
        # Nobody waits for the answer, unless the clock of the one who asks went back: then it asks again.
        reason = "this request was answered before"
        return limiter, SlotPostponed(SHORTEST_ASK_SECONDS, reserved=request.reserved, reason=reason)
    limiter, answer = _answer_to_request(limiter, request, now)
    if isinstance(answer, Slot) and answer.lease_id is not None:
        return limiter, answer
    answered = with_ask(limiter.answered, request.lease_id, request.asked_at)
    return replace(limiter, answered=answered), answer


@dataclass(frozen=True, slots=True)
class Line:
    """Those who wait, in their order, and one who asks among them."""

    places: list[Place]
    own: Place
    ahead: int  # how many before it may start now
    ahead_of_key: int  # how many of its key are before it

    def waits(
        self, limiter: Limiter, request: SlotRequest, now: datetime, wait: Wait
    ) -> tuple[Limiter, SlotPostponed]:
        """Give the attempt a place, and let it ask again."""
        seconds, shares = min(wait.seconds, LONGEST_ASK_SECONDS), limiter.in_use
        most = KEPT_PLACES if shares is None else PLACES_WITH_KEYS
        if shares is not None and self.own not in self.places[:most]:
            fair, behind = shares.behind(self.own, self.places, now, wait)
            limiter = replace(limiter, fair=fair)
            latest = behind if request.latest_seconds is None else request.latest_seconds
            seconds = max(seconds, min(behind, latest))  # its deadline may come first
        seconds = round(seconds, 3)
        place = replace(self.own, asks_at=now + timedelta(seconds=seconds))
        places = (place if other is self.own else other for other in self.places)
        kept = tuple(islice(places, most))
        postponed = SlotPostponed(seconds, reserved=request.reserved, reason=wait.reason, ahead=self.ahead)
        return replace(limiter, places=kept), postponed


def _answer_to_request(limiter: Limiter, request: SlotRequest, now: datetime) -> tuple[Limiter, SlotAnswer]:
    settings, key = request.settings, request.limit_key
    pool = settings.max_concurrency - settings.shared_concurrency
    limiter, due_at = limiter.in_order(request, now)
    own = Place(due_at, request.lease_id, now, request.priority, key, settings.weight_of(key))
    line = limiter.line_of(own, settings.per_key, now)
    reached = (_wait_for_key(limiter, request, line, now), _wait_for_slot(limiter, request, line, now))
    if waits := [wait for wait in reached if wait is not None]:
        longest = max(wait.seconds for wait in waits)
        return line.waits(limiter, request, now, replace(waits[0], seconds=longest))
    if not request.reserved:
        limiter, postponed = _count_start(limiter, request, line, now)
        if postponed is not None:
            return limiter, postponed
    is_bound = key is not None and settings.per_key is not None and settings.per_key.max_concurrency > 0
    if pool <= 0 and not is_bound:
        return limiter, Slot()
    expires_at = now + timedelta(seconds=request.lease_seconds)
    lease = SlotLease(request.lease_id, now, expires_at, request.asked_at, key)
    return replace(limiter, leases=(*limiter.leases, lease)), Slot(request.lease_id, request.asked_at)


def _wait_for_slot(limiter: Limiter, request: SlotRequest, line: Line, now: datetime) -> Wait | None:
    """Return the wait of an attempt for which there is no free slot."""
    most = request.settings.max_concurrency
    pool = most - request.settings.shared_concurrency
    if pool <= 0 or len(limiter.leases) + line.ahead < pool:
        return None
    busy = f"{counted(most, 'attempt')} at once"
    # Those who wait start within the workers' shares, too.
    seconds = _seconds_until_free(limiter, limiter.leases, now, pool, line.ahead) * pool / most
    return Wait(seconds, busy, limiter.held_seconds / most)


def _wait_for_key(limiter: Limiter, request: SlotRequest, line: Line, now: datetime) -> Wait | None:
    """Return the wait of an attempt whose limit key is at its own bound."""
    key, per_key = request.limit_key, request.settings.per_key
    if key is None or per_key is None:
        return None
    leases, most, rate = limiter.leases_of(key), per_key.max_concurrency, per_key.rate_per_second
    if most > 0 and len(leases) + line.ahead_of_key >= most:
        are = "is" if most == 1 else "are"
        busy = f"{len(leases)} of {counted(most, 'attempt')} of {key} {are} under way"
        if len(leases) < most:
            busy = f"{counted(line.ahead_of_key, 'attempt')} of {key} before it"
        seconds = _seconds_until_free(limiter, leases, now, most, line.ahead_of_key)
        return Wait(seconds, busy, limiter.held_seconds / most, is_shared=False)
    wait_seconds = (limiter.start_of(key, now) - now).total_seconds()
    if rate > 0 and not request.reserved and (wait_seconds > 0 or line.ahead_of_key):
        early = f"{counted(rate, 'attempt')} per second of {key}"
        seconds = max(wait_seconds + line.ahead_of_key / rate, LEAST_ASK_SECONDS)
        return Wait(seconds, early, 1 / rate, is_shared=False)
    return None


def _count_start(
    limiter: Limiter, request: SlotRequest, line: Line, now: datetime
) -> tuple[Limiter, SlotPostponed | None]:
    """Count a start now or later; one that would be too late is not counted."""
    rate, per_key = request.settings.rate_per_second, request.settings.per_key
    if rate <= 0:
        return limiter.charged(line.own, per_key, now, now), None
    at = now if limiter.next_start_at is None else max(now, limiter.next_start_at)
    wait_seconds = (at - now).total_seconds()
    following = at + timedelta(seconds=1.0 / (rate - request.settings.shared_rate))
    if not _is_of_use(wait_seconds, request):
        return limiter, _too_early(wait_seconds, request, reserved=False)
    # No turn is reserved long ahead then, so that an attempt of another key goes soon.
    has_keys = request.limit_key is not None or limiter.in_use is not None
    if has_keys and (line.ahead or wait_seconds > RESERVED_SECONDS):
        return _ask_for_a_turn(limiter, request, line, now, wait_seconds)
    counted = replace(limiter, next_start_at=following).charged(line.own, per_key, at, now)
    return counted, _too_early(wait_seconds, request, reserved=True) if wait_seconds > 0 else None


def _ask_for_a_turn(
    limiter: Limiter, request: SlotRequest, line: Line, now: datetime, wait_seconds: float
) -> tuple[Limiter, SlotPostponed]:
    own_rate = request.settings.rate_per_second - request.settings.shared_rate
    least = SHORTEST_ASK_SECONDS if line.ahead else LEAST_ASK_SECONDS
    seconds = wait_seconds + line.ahead / own_rate - RESERVED_SECONDS
    reason = _too_early(wait_seconds, request, reserved=False).reason
    wait = Wait(max(seconds, least), reason, 1 / request.settings.rate_per_second)
    return line.waits(limiter, request, now, wait)


def _too_early(wait_seconds: float, request: SlotRequest, *, reserved: bool) -> SlotPostponed:
    rate = f"{counted(request.settings.rate_per_second, 'attempt')} per second"
    return SlotPostponed(wait_seconds, reserved=reserved, reason=rate)


def _is_of_use(wait_seconds: float, request: SlotRequest) -> bool:
    return request.latest_seconds is None or wait_seconds <= request.latest_seconds


def _seconds_until_free(
    limiter: Limiter, leases: tuple[SlotLease, ...], now: datetime, pool: int, ahead: int
) -> float:
    """Return when a slot should be free behind so many others, by the mean duration of attempts."""
    held = timedelta(seconds=limiter.held_seconds)
    ends = [max(lease.began_at + held, now + (now - lease.began_at) * OVERDUE_PART) for lease in leases]
    # Those ahead take the free slots when they ask.
    ends = sorted([*ends, *[now + held] * (pool - len(ends))])
    rounds, place = divmod(ahead + len(leases) - pool, len(ends))
    seconds = (ends[place] - now + rounds * held).total_seconds()
    return max(seconds, min(max(limiter.held_seconds / 2, LEAST_ASK_SECONDS), SHORTEST_ASK_SECONDS))


def give_back(limiter: Limiter, slot: Slot, received_at: datetime) -> Limiter:
    """Free a slot; one that expired, was given back before, or is held by a later request is left alone."""
    limiter, now = limiter.at(received_at)
    lease = None if slot.lease_id is None else limiter.lease_of(slot.lease_id)
    if lease is not None:
        if slot.asked_at is not None and lease.asked_at is not None and slot.asked_at < lease.asked_at:
            return limiter
        held_seconds = (now - lease.began_at).total_seconds()
        mean = limiter.held_seconds + HELD_WEIGHT * (held_seconds - limiter.held_seconds)
        limiter = replace(limiter.without(lease), held_seconds=round(mean, 3))
    # It may have overtaken a repetition of its request, which must not be granted any more: also where the
    # state after that request was not stored, and the lease is that of an earlier one.
    return replace(limiter, answered=with_ask(limiter.answered, slot.lease_id or "", slot.asked_at))


def leave(limiter: Limiter, lease_id: str, received_at: datetime) -> Limiter:
    """Take an attempt that has started within its worker's share from those who wait."""
    limiter, now = limiter.at(received_at)
    places = {place.lease_id: place for place in limiter.places}
    own = places.pop(lease_id, None)
    limiter = replace(limiter, places=tuple(places.values()))
    return limiter if own is None else limiter.charged(own, None, now, now)
