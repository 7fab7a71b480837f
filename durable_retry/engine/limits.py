"""Limits of one dependency, kept by the whole fleet: attempts under way at once, and starts per second.

Half of a limit, rounded down, is shared out evenly among the workers: an attempt within its worker's share
starts without asking. The rest is granted by the entity `call_limiter`, which the operation's orchestration
calls: that costs one entity call for each attempt beyond the shares. A limit too small to share is kept by
the entity alone.

    attempt ── within the worker's share ──> starts
            └─ NeedsSlot ──> entity ──> Slot ──> starts, then gives it back
                                    └─> SlotPostponed ──> waits ──> asks again, or starts in its turn

The entity keeps a lease per attempt under way and the instant of the next start. A start that comes too early
has its turn reserved: a backlog of any length costs one timer each, and goes in the order of asking. An
attempt that finds no free slot asks again when one should be free, by the mean duration of those before.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Annotated, Any, Final

from durable_retry.engine.adaptive import AdaptiveSettings
from durable_retry.engine.base.json_forms import Form, JsonRecord, from_ms, to_ms
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.snapshot import CLOCK_LEAD
from durable_retry.engine.pace import Pace, Quota, newest, pace_of

LEASE_MARGIN_SECONDS: Final = 60.0
"""Added to an attempt's time limit for its lease. Only a crash lets a lease expire; others are given back."""
SHORTEST_ASK_SECONDS: Final = 0.5
LONGEST_ASK_SECONDS: Final = 60.0
"""Bounds of the wait for a free slot before the operation asks again."""
HELD_WEIGHT: Final = 0.1
"""Weight of the latest attempt in the mean duration."""
SHARE_WINDOW: Final = timedelta(seconds=1)
WINDOW_SLACK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class LimitSettings(JsonRecord):
    """`[dependencies.<name>.limits]`.

    Attributes:
        max_concurrency: Attempts under way at once, fleet-wide; 0 means no limit.
        rate_per_second: Attempts started per second, fleet-wide; 0 means no limit.
        adaptive: Whether fewer attempts run at once while the dependency shows overload.
        min_concurrency: An adaptive limit falls no lower.
        latency_seconds: With an adaptive limit, an attempt that takes longer shows overload; 0 means that
            none does.
    """

    max_concurrency: int = 0
    rate_per_second: float = 0.0
    adaptive: bool = False
    min_concurrency: int = 1
    latency_seconds: float = 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.max_concurrency > 0 or self.rate_per_second > 0

    @property
    def adaptive_settings(self) -> AdaptiveSettings | None:
        """Bounds of the adaptive limit; None when it does not adapt."""
        if not self.adaptive:
            return None
        return AdaptiveSettings(self.min_concurrency, self.max_concurrency, self.latency_seconds)

    @property
    def shared_concurrency(self) -> int:
        """How many attempts at once are shared out among the workers."""
        return self.max_concurrency // 2

    @property
    def shared_rate(self) -> int:
        """How many starts per second are shared out among the workers."""
        return int(self.rate_per_second) // 2


@dataclass(frozen=True, slots=True)
class Slot(JsonRecord):
    """The attempt may start.

    Attributes:
        lease_id: To be given back after the attempt; None when there is nothing to give back.
    """

    lease_id: str | None = None


@dataclass(frozen=True, slots=True)
class SlotPostponed(JsonRecord):
    """The attempt waits.

    Attributes:
        seconds: How long.
        reserved: True: its start is counted now, and it need not wait for the rate again.
        reason: Which limit is reached, a few words.
    """

    seconds: float
    reserved: bool
    reason: str


def slot_answer_to_json(answer: Slot | SlotPostponed) -> dict[str, Any]:
    """Return the JSON form of the answer of `acquire`."""
    return {"granted": isinstance(answer, Slot), **answer.to_json()}


def slot_answer_from_json(document: Mapping[str, Any]) -> Slot | SlotPostponed:
    """Read what `slot_answer_to_json` wrote."""
    return Slot.from_json(document) if document["granted"] else SlotPostponed.from_json(document)


@dataclass(frozen=True, slots=True)
class NeedsSlot:
    """The worker's share is used up; only the entity grants more. What it needs goes with the request.

    Attributes:
        settings: The limits of this moment: a pace lowers the rate.
        pace: While the dependency's own rate limit is low; None otherwise.
    """

    settings: LimitSettings
    pace: Pace | None = None


def limits_at(
    now: datetime, limits: LimitSettings, quota: Quota | None, concurrency: int | None = None
) -> NeedsSlot:
    """Return the limits of this moment, as an attempt needs them that asks for a slot.

    Args:
        now: By the worker's clock.
        limits: As configured.
        quota: What is left of the dependency's own rate limit, its window not over; None when not known.
        concurrency: The adaptive limit while it is lowered; None otherwise.
    """
    if limits.adaptive and concurrency is not None:
        limits = replace(limits, max_concurrency=min(concurrency, limits.max_concurrency))
    if quota is None or not quota.is_low:
        return NeedsSlot(limits)
    per_second = float(f"{quota.per_second:.3g}")
    has_rate = limits.rate_per_second > 0
    if has_rate and limits.rate_per_second <= per_second:
        return NeedsSlot(limits)
    paced = replace(limits, rate_per_second=per_second)
    return NeedsSlot(paced, pace_of(quota, now, may_be_passed=not has_rate))


def shared_limits_at(now: datetime, limits: LimitSettings, breaker: Breaker) -> NeedsSlot:
    """Return the limits of this moment by what workers reported to the circuit; `now` by its clock."""
    return limits_at(now, limits, newest(now, breaker.quota), breaker.concurrency)


@dataclass(frozen=True, slots=True)
class SlotRequest(JsonRecord):
    """Call `acquire` of the entity `call_limiter`.

    Attributes:
        lease_id: One per attempt; a repeated request for it gets the same lease.
        lease_seconds: After that the slot is free again, whatever became of the attempt.
        settings: Of the dependency.
        reserved: Its start was counted when it was postponed.
        waited: It found no free slot before.
        latest_seconds: A start later than this is of no use: none is reserved. None means any.
        pace: Why the rate is lower than configured, and for how long; None while it is not.
    """

    lease_id: str
    lease_seconds: float
    settings: Annotated[LimitSettings, Form(name="limits")]
    reserved: bool = False
    waited: bool = False
    latest_seconds: float | None = None
    pace: Annotated[Pace | None, Form(omits_none=True)] = None


@dataclass(frozen=True, slots=True)
class SlotLease:
    """One attempt under way.

    Attributes:
        lease_id: Its name.
        began_at: When it was granted.
        expires_at: Then the slot is free again.
    """

    lease_id: str
    began_at: datetime
    expires_at: datetime

    def to_json(self) -> list[Any]:
        """Return the stored row."""
        return [self.lease_id, to_ms(self.began_at), to_ms(self.expires_at)]

    @classmethod
    def from_json(cls, row: list[Any]) -> "SlotLease":
        """Read the stored row."""
        return cls(row[0], from_ms(row[1]), from_ms(row[2]))


@dataclass(frozen=True, slots=True)
class Limiter(JsonRecord):
    """State of the entity `call_limiter`.

    Attributes:
        clock: The latest instant of a message; time does not run backwards.
        leases: Attempts under way that it granted.
        next_start_at: The next start, by the rate; None means at once.
        next_ask_at: When the next operation without a slot asks again; None when none waits.
        held_seconds: Mean duration of the attempts that gave their slot back.
    """

    clock: datetime | None = None
    leases: tuple[SlotLease, ...] = ()
    next_start_at: datetime | None = None
    next_ask_at: datetime | None = None
    held_seconds: float = 1.0

    def at(self, received_at: datetime) -> "tuple[Limiter, datetime]":
        """Return the state at an instant, without expired leases, and that instant.

        Time never runs backwards. A clock that was far ahead, on another machine, is corrected: what was
        reserved by it is dropped.
        """
        if self.clock is not None and self.clock - received_at > CLOCK_LEAD:
            ahead = self.clock - received_at
            moved = tuple(
                replace(lease, began_at=lease.began_at - ahead, expires_at=lease.expires_at - ahead)
                for lease in self.leases
            )
            return Limiter(received_at, moved, held_seconds=self.held_seconds), received_at
        now = received_at if self.clock is None else max(self.clock, received_at)
        leases = tuple(lease for lease in self.leases if lease.expires_at > now)
        return replace(self, clock=now, leases=leases), now


def acquire(
    limiter: Limiter, request: SlotRequest, received_at: datetime
) -> tuple[Limiter, Slot | SlotPostponed]:
    """Grant a slot, or return when to ask again.

    Args:
        limiter: The state before.
        request: Of an operation.
        received_at: The present by the entity's clock, aware UTC.
    """
    limiter, now = limiter.at(received_at)
    if any(lease.lease_id == request.lease_id for lease in limiter.leases):
        return limiter, Slot(request.lease_id)
    pool = request.settings.max_concurrency - request.settings.shared_concurrency
    others_wait = limiter.next_ask_at is not None and limiter.next_ask_at > now
    if pool > 0 and (len(limiter.leases) >= pool or (others_wait and not request.waited)):
        return _queued(limiter, request, now, pool)
    if not request.reserved:
        limiter, postponed = _start(limiter, request, now)
        if postponed is not None:
            return limiter, postponed
    if pool <= 0:
        return limiter, Slot()
    lease = SlotLease(request.lease_id, now, now + timedelta(seconds=request.lease_seconds))
    return replace(limiter, leases=(*limiter.leases, lease)), Slot(request.lease_id)


def _start(limiter: Limiter, request: SlotRequest, now: datetime) -> tuple[Limiter, SlotPostponed | None]:
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
    rate = f"{request.settings.rate_per_second:g} attempts per second"
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


def _queued(
    limiter: Limiter, request: SlotRequest, now: datetime, pool: int
) -> tuple[Limiter, SlotPostponed]:
    """Let an operation ask again when a slot should be free: the others who wait ask before it."""
    last = now if limiter.next_ask_at is None else max(now, limiter.next_ask_at)
    seconds = (last - now).total_seconds() + limiter.held_seconds / pool
    seconds = min(max(seconds, SHORTEST_ASK_SECONDS), LONGEST_ASK_SECONDS)
    busy = f"{request.settings.max_concurrency} attempts at once"
    postponed = SlotPostponed(round(seconds, 3), reserved=request.reserved, reason=busy)
    return replace(limiter, next_ask_at=now + timedelta(seconds=seconds)), postponed


def limits_summary(limits: LimitSettings, needed: NeedsSlot) -> dict[str, Any]:
    """Return what people see of the limits of this moment without their use.

    Args:
        limits: As configured.
        needed: As `limits_at` returned it.
    """
    settings = needed.settings
    return {
        "max_concurrency": limits.max_concurrency,
        "current_concurrency": settings.max_concurrency,
        "rate_per_second": limits.rate_per_second,
        "current_rate_per_second": settings.rate_per_second,
        "shared_concurrency": settings.shared_concurrency,
        "pace": None if needed.pace is None else needed.pace.reason,
    }


def limits_view(limits: LimitSettings, needed: NeedsSlot, limiter: Limiter, at: datetime) -> dict[str, Any]:
    """Return what people see of the limits of this moment.

    Args:
        limits: As configured.
        needed: As `limits_at` returned it.
        limiter: Of the dependency; an empty one where nothing is limited.
        at: By the limiter's clock.
    """
    limiter, now = limiter.at(at)
    settings = needed.settings
    turns = [_seconds_until(limiter.next_start_at, now) * (settings.rate_per_second - settings.shared_rate)]
    pool = settings.max_concurrency - settings.shared_concurrency
    turns.append(_seconds_until(limiter.next_ask_at, now) * pool / max(limiter.held_seconds, 0.001))
    return {
        **limits_summary(limits, needed),
        "lent": len(limiter.leases),
        "waiting": ceil(max(turns)),
    }


def _seconds_until(instant: datetime | None, now: datetime) -> float:
    return 0.0 if instant is None else max(0.0, (instant - now).total_seconds())


def give_back(limiter: Limiter, lease_id: str, received_at: datetime) -> Limiter:
    """Free a slot; one that expired, or was given back before, changes nothing."""
    limiter, now = limiter.at(received_at)
    for lease in limiter.leases:
        if lease.lease_id == lease_id:
            held_seconds = (now - lease.began_at).total_seconds()
            mean = limiter.held_seconds + HELD_WEIGHT * (held_seconds - limiter.held_seconds)
            left = tuple(other for other in limiter.leases if other is not lease)
            return replace(limiter, leases=left, held_seconds=round(mean, 3))
    return limiter


@dataclass(slots=True)
class WorkerShare:
    """What one worker may start without asking the entity. No I/O, no clock, no lock.

    Attributes:
        settings: Of the dependency.
        running: Attempts under way within the share.
    """

    settings: LimitSettings
    running: int = 0
    _starts: deque[datetime] = field(default_factory=deque)

    def take(self, now: datetime, workers: int, *, reserved: bool) -> bool:
        """Start an attempt within the share, if it leaves room.

        Args:
            now: By the worker's clock.
            workers: That share, this one among them, at least 1.
            reserved: Its start was counted by the entity, so it is not counted here.
        """
        concurrency, rate = self.settings.max_concurrency, self.settings.rate_per_second
        if concurrency > 0 and self.running >= self.settings.shared_concurrency // workers:
            return False
        if rate > 0 and not reserved:
            while self._starts and now - self._starts[0] >= SHARE_WINDOW:
                self._starts.popleft()
            if len(self._starts) >= self.settings.shared_rate // workers:
                return False
            self._starts.append(now)
        self.running += 1
        return True

    def ended(self) -> None:
        """Note the end of an attempt that `take` let start."""
        self.running -= 1
