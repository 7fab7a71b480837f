"""The entity `call_limiter` of one dependency: it grants the attempts that exceed the workers' shares.

Its state has a lease per attempt under way and the instant of the next start. A start that comes too early
has its turn reserved: a backlog of any length costs one timer each, and goes in the order of asking.

An attempt that finds no free slot has a place among those who wait, by how long it has waited since it was
first due, which counts more with a higher priority (`engine.base.names`), and asks again when a slot
should be free for it. A free slot is kept for the first of them, until it is late: it may have started in a
worker's share, or have been cancelled. The instant comes with each request, so that an attempt without a
place, or one that lost it, is in the same order.

Requests and returns may come twice, late, and in another order: `engine.base.asks`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Annotated, Final, Literal

from pydantic import Field

from durable_retry.engine.base.asks import Ask, is_repeated, with_ask
from durable_retry.engine.base.json_forms import JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.names import Priority, counted_wait
from durable_retry.engine.base.text import counted
from durable_retry.engine.circuit.messages import CircuitDocument
from durable_retry.engine.limits.settings import LimitSettings, LimitsSummary, NeedsSlot, limits_summary
from durable_retry.engine.pace import Pace

LEASE_MARGIN_SECONDS: Final = 60.0
"""Added to an attempt's time limit for its lease. Only a crash lets a lease expire; others are given back."""
LEAST_ASK_SECONDS: Final = 0.1
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
"""The same where something is: one that is late may have started within a worker's share."""
KEPT_PLACES: Final = 128
"""Places that a state remembers, those of the oldest: about 7 KB."""
HELD_WEIGHT: Final = 0.1
"""Weight of the latest attempt in the mean duration."""
WINDOW_SLACK: Final = timedelta(seconds=1)
_ASKED_BEFORE: Final = "this request was answered before"


@dataclass(frozen=True, slots=True)
class Slot(JsonShape):
    """The attempt may start."""

    lease_id: str | None = None  # to be given back after the attempt; None when there is nothing to give back
    # When the request asked; given back with the lease. None when there is nothing to give back.
    asked_at: MsInstant | None = None
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
    # Why the rate is lower than configured, and for how long; None while it is not.
    pace: Pace | None = None
    # When the orchestration asked, by its replay-safe time, which tells a new request from one that is
    # delivered again (`engine.base.asks`); without it none is taken for a repetition.
    asked_at: MsInstant | None = None
    # When the attempt was first due: the oldest goes first. None means when it asked.
    due_at: MsInstant | None = None
    priority: Priority | None = None  # None is `normal`


@dataclass(frozen=True, slots=True)
class Place(JsonRow):
    """The place of an attempt that waits for a slot."""

    due_at: MsInstant  # when the attempt was first due
    lease_id: str
    asks_at: MsInstant  # when it asks again
    priority: Priority | None = None  # None is `normal`

    def order(self, now: datetime) -> tuple[timedelta, datetime, str]:
        """Return what places are sorted by, the first to go first."""
        return -counted_wait(self.due_at, self.priority, now), self.due_at, self.lease_id


@dataclass(frozen=True, slots=True)
class SlotLease(JsonRow):
    """One attempt under way."""

    lease_id: str
    began_at: MsInstant
    expires_at: MsInstant  # then the slot is free again
    # The instant of the latest request for it; None where that did not say.
    asked_at: MsInstant | None = None


@dataclass(frozen=True, slots=True)
class Limiter(JsonShape):
    """State of the entity `call_limiter`."""

    clock: datetime | None = None  # the latest instant of a message; time does not run backwards
    leases: tuple[SlotLease, ...] = ()  # attempts under way that it granted
    next_start_at: datetime | None = None  # the next start, by the rate; None means at once
    held_seconds: float = 1.0  # mean duration of the attempts that gave their slot back
    answered: tuple[Ask, ...] = ()  # requests that were answered and hold no lease, or no longer
    places: tuple[Place, ...] = ()  # the places of the oldest attempts that wait for a slot, in their order

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
        is_shared = request.settings.shared_concurrency > 0
        grace = timedelta(seconds=SHARED_GRACE_SECONDS if is_shared else self.grace_seconds)
        own = next((place for place in self.places if place.lease_id == request.lease_id), None)
        places = (waiting for waiting in self.places if waiting is not own and waiting.asks_at + grace >= now)
        due_at = request.due_at or (request.asked_at or now if own is None else own.due_at)
        return replace(self, places=tuple(places)), due_at

    @property
    def grace_seconds(self) -> float:
        """How late an attempt may be and keep its place."""
        return min(max(self.held_seconds, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS)

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


def acquire(
    limiter: Limiter, request: SlotRequest, received_at: datetime
) -> tuple[Limiter, Slot | SlotPostponed]:
    """Grant a slot, or return when to ask again."""
    limiter, now = limiter.at(received_at)
    if (lease := limiter.lease_of(request.lease_id)) is not None:
        return limiter.asked_again(lease, request)
    if is_repeated(limiter.answered, request.lease_id, request.asked_at):
        # Nobody waits for the answer, unless the clock of the one who asks went back: then it asks again.
        return limiter, SlotPostponed(SHORTEST_ASK_SECONDS, reserved=request.reserved, reason=_ASKED_BEFORE)
    limiter, answer = _answer_to_request(limiter, request, now)
    if isinstance(answer, Slot) and answer.lease_id is not None:
        return limiter, answer
    answered = with_ask(limiter.answered, request.lease_id, request.asked_at)
    return replace(limiter, answered=answered), answer


def _answer_to_request(
    limiter: Limiter, request: SlotRequest, now: datetime
) -> tuple[Limiter, Slot | SlotPostponed]:
    pool = request.settings.max_concurrency - request.settings.shared_concurrency
    limiter, due_at = limiter.in_order(request, now)
    own = Place(due_at, request.lease_id, now, request.priority)
    ahead = sum(place.order(now) < own.order(now) for place in limiter.places)
    if pool > 0 and len(limiter.leases) + ahead >= pool:
        return _ask_again_later(limiter, request, own, now, ahead=ahead)
    if not request.reserved:
        limiter, postponed = _count_start(limiter, request, now)
        if postponed is not None:
            return limiter, postponed
    if pool <= 0:
        return limiter, Slot()
    expires_at = now + timedelta(seconds=request.lease_seconds)
    lease = SlotLease(request.lease_id, now, expires_at, request.asked_at)
    return replace(limiter, leases=(*limiter.leases, lease)), Slot(request.lease_id, request.asked_at)


def _count_start(
    limiter: Limiter, request: SlotRequest, now: datetime
) -> tuple[Limiter, SlotPostponed | None]:
    """Count a start now or later; one that would be too late is not counted."""
    rate, pace = request.settings.rate_per_second, request.pace
    if rate <= 0:
        return limiter, None
    at = now if limiter.next_start_at is None else max(now, limiter.next_start_at)
    wait_seconds = (at - now).total_seconds()
    following = at + timedelta(seconds=1.0 / (rate - request.settings.shared_rate))
    if pace is not None:
        if not pace.reserves(wait_seconds):
            return limiter, _asks_again(pace, request)
        # Turns are reserved up to the end of the window and a little beyond it: workers' clocks differ, and
        # without the slack one that is late would grant many turns at once when the window ends.
        following = max(at, min(following, now + timedelta(seconds=pace.seconds) + WINDOW_SLACK))
    if not _is_of_use(wait_seconds, request):
        is_passed = pace is not None and pace.may_be_passed
        return limiter, None if is_passed else _too_early(wait_seconds, request, reserved=False)
    counted = replace(limiter, next_start_at=following)
    return counted, _too_early(wait_seconds, request, reserved=True) if wait_seconds > 0 else None


def _too_early(wait_seconds: float, request: SlotRequest, *, reserved: bool) -> SlotPostponed:
    rate = f"{counted(request.settings.rate_per_second, 'attempt')} per second"
    reason = rate if request.pace is None else f"{rate}, {request.pace.reason}"
    return SlotPostponed(wait_seconds, reserved=reserved, reason=reason)


def _asks_again(pace: Pace, request: SlotRequest) -> SlotPostponed | None:
    """Let an attempt ask again when the quota is renewed; None when it goes at once, for its deadline."""
    seconds = max(pace.ask_again_seconds(request.lease_id), SHORTEST_ASK_SECONDS)
    if pace.may_be_passed and not _is_of_use(seconds, request):
        return None
    return SlotPostponed(seconds, reserved=False, reason=pace.reason)


def _is_of_use(wait_seconds: float, request: SlotRequest) -> bool:
    return request.latest_seconds is None or wait_seconds <= request.latest_seconds


def _ask_again_later(
    limiter: Limiter, request: SlotRequest, own: Place, now: datetime, *, ahead: int
) -> tuple[Limiter, SlotPostponed]:
    """Give an attempt its place, and let it ask again when a slot should be free behind those ahead of it."""
    pool = request.settings.max_concurrency - request.settings.shared_concurrency
    seconds = _seconds_until_free(limiter, now, pool, ahead)
    shortest = min(max(limiter.held_seconds / 2, LEAST_ASK_SECONDS), SHORTEST_ASK_SECONDS)
    seconds = round(min(max(seconds, shortest), LONGEST_ASK_SECONDS), 3)
    place = replace(own, asks_at=now + timedelta(seconds=seconds))
    places = sorted((*limiter.places, place), key=lambda other: other.order(now))[:KEPT_PLACES]
    busy = f"{counted(request.settings.max_concurrency, 'attempt')} at once"
    postponed = SlotPostponed(seconds, reserved=request.reserved, reason=busy, ahead=ahead)
    return replace(limiter, places=tuple(places)), postponed


def _seconds_until_free(limiter: Limiter, now: datetime, pool: int, ahead: int) -> float:
    """Return when a slot should be free behind so many others, by the mean duration of attempts."""
    held = timedelta(seconds=limiter.held_seconds)
    ends = [
        max(lease.began_at + held, now + (now - lease.began_at) * OVERDUE_PART) for lease in limiter.leases
    ]
    # Those ahead take the free slots when they ask.
    ends = sorted([*ends, *[now + held] * (pool - len(ends))])
    rounds, place = divmod(ahead + len(limiter.leases) - pool, len(ends))
    return (ends[place] - now + rounds * held).total_seconds()


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


class LimitsDocument(LimitsSummary):
    """The limits of a dependency at this moment, and their use."""

    lent: Annotated[int, Field(description="Attempts under way beyond the workers' shares.")]
    waiting: Annotated[int, Field(description="About how many attempts wait for their turn.")]
    waiting_by_priority: Annotated[
        dict[Priority, int], Field(description="Of these, those that wait for a free slot, by priority.")
    ]


class ListedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits without their use."""

    limits: LimitsSummary


class LimitedCircuit(CircuitDocument):
    """The shared breaker of one dependency, and its limits."""

    limits: LimitsDocument


def limits_view(limits: LimitSettings, needed: NeedsSlot, limiter: Limiter, at: datetime) -> LimitsDocument:
    """Return what people see of the limits of this moment, by the limiter's clock."""
    limiter, now = limiter.at(at)
    settings = needed.settings
    turns = _seconds_until(limiter.next_start_at, now) * (settings.rate_per_second - settings.shared_rate)
    waiting = Counter(place.priority or Priority.NORMAL for place in limiter.places if place.asks_at >= now)
    return LimitsDocument(
        **dict(limits_summary(limits, needed)),
        lent=len(limiter.leases),
        waiting=waiting.total() + ceil(turns),
        waiting_by_priority={priority: waiting[priority] for priority in Priority if priority in waiting},
    )


def _seconds_until(instant: datetime | None, now: datetime) -> float:
    return 0.0 if instant is None else max(0.0, (instant - now).total_seconds())
