"""The shared circuit of one dependency: its state and what happens to it. Time comes in with the news."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from engine.budget import Budget
from engine.circuit.audit import AuditTrail
from engine.circuit.release import RELEASE
from engine.circuit.reporters import Reporters
from engine.circuit.settings import CircuitSettings
from engine.circuit.snapshot import CLOCK_LEAD
from engine.circuit.states import CircuitState, Move, target_of
from engine.sliding_window import SlidingWindow, from_ms, to_ms

AUTOMATIC = "circuit"
"""Who changed it when nobody did."""
FREE = frozenset({CircuitState.CLOSED, CircuitState.DISABLED})
"""States that let every call through."""
_NO_CALLS = SlidingWindow.over(CircuitSettings().window_seconds)
_NO_TRAIL = AuditTrail()
_NO_REPORTERS = Reporters()
_NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to one probe, until it ends or expires."""

    lease_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Breaker:
    """Everything that is shared about one dependency.

    Attributes:
        state: one of five.
        epoch: goes up by one with each change of state. A result of an older epoch changes nothing.
        clock: latest instant heard of; time does not run backwards. None = nothing was heard yet.
        window: calls that ended lately, in this closed or disabled epoch.
        tripped_by: the window that opened it the last time; empty = it never did.
        failures_in_a_row: as heard; a success that a worker holds back is not heard.
        opened_at: start of the break or of the hold; None = not open.
        retry_at: end of the break; None = not open, or held open without an end.
        reopenings: failed probe rounds since the circuit was last closed; each doubled the break.
        leases: probes in flight.
        probe_successes: of this half-open round.
        throttled_until: end of the last throttling pause, kept when it is over.
        waiting: operations that began to wait since calls were last possible, or before.
        reopened_at: from when the places of the waiting ones count; None = they still wait, or never did.
        draining_since: from when they really went; later than `reopened_at` by the time the probes took.
        expires_at: end of what was done by hand; None = no end.
        reason: why it is in this state.
        changed_by: who or what put it there.
        audit: what was done by hand.
        reporters: whose reports were counted.
        budget: the retry budget's level.
    """

    state: CircuitState = CircuitState.CLOSED
    epoch: int = 1
    clock: datetime | None = None
    window: SlidingWindow = _NO_CALLS
    tripped_by: SlidingWindow = _NO_CALLS
    failures_in_a_row: int = 0
    opened_at: datetime | None = None
    retry_at: datetime | None = None
    reopenings: int = 0
    leases: tuple[Lease, ...] = ()
    probe_successes: int = 0
    throttled_until: datetime | None = None
    waiting: int = 0
    reopened_at: datetime | None = None
    draining_since: datetime | None = None
    expires_at: datetime | None = None
    reason: str = "new"
    changed_by: str = AUTOMATIC
    audit: AuditTrail = _NO_TRAIL
    reporters: Reporters = _NO_REPORTERS
    budget: Budget = _NO_BUDGET

    def is_throttled(self, now: datetime) -> bool:
        """Whether a throttling pause is on."""
        return self.throttled_until is not None and now < self.throttled_until

    def remaining_waiting(self, now: datetime) -> int:
        """How many still wait: all of them until calls are possible, then fewer at the rate of release."""
        drained_from = [t for t in (self.draining_since, self.throttled_until) if t is not None]
        if self.state not in FREE or not drained_from:
            return self.waiting
        elapsed_seconds = max(0.0, (now - max(drained_from)).total_seconds())
        return max(0, self.waiting - int(elapsed_seconds * RELEASE.per_second))


def moved(breaker: Breaker, move: Move, now: datetime, *, reason: str, by: str = AUTOMATIC) -> Breaker:
    """Change the state and begin a new epoch, in which nothing of the old one counts.

    Raises:
        IllegalMoveError: if the state does not have this move.
    """
    return replace(
        breaker,
        state=target_of(breaker.state, move),
        epoch=breaker.epoch + 1,
        waiting=breaker.remaining_waiting(now),
        window=replace(breaker.window, buckets=()),
        failures_in_a_row=0,
        leases=(),
        probe_successes=0,
        expires_at=None,
        reason=reason,
        changed_by=by,
    )


def opened(breaker: Breaker, move: Move, now: datetime, settings: CircuitSettings, *, reason: str) -> Breaker:
    """Begin a break: the first one, or a longer one after a failed probe."""
    reopenings = breaker.reopenings + 1 if move is Move.PROBE_FAILED else 0
    pause = timedelta(seconds=settings.break_seconds_after(reopenings))
    return replace(
        moved(breaker, move, now, reason=reason),
        tripped_by=breaker.window.trimmed(now) if move is Move.TRIP else breaker.tripped_by,
        opened_at=now,
        retry_at=now + pause,
        reopenings=reopenings,
        reopened_at=None,
        draining_since=None,
    )


def freed(breaker: Breaker, move: Move, now: datetime, *, reason: str, by: str = AUTOMATIC) -> Breaker:
    """Let every call through again.

    The places of the waiting operations count from the end of the break, where they were told to come back,
    and not from the end of the probe; else each would be told twice.
    """
    was_blocked = breaker.state not in FREE
    after_probe = breaker.retry_at if move is Move.PROBES_SUCCEEDED else None
    return replace(
        moved(breaker, move, now, reason=reason, by=by),
        opened_at=None,
        retry_at=None,
        reopenings=0,
        reopened_at=(after_probe or now) if was_blocked else breaker.reopened_at,
        draining_since=now if was_blocked else breaker.draining_since,
    )


def advanced(breaker: Breaker, at: datetime) -> Breaker:
    """What the circuit is at an instant, whether or not anybody wrote it down.

    Everything that time alone does happens here, for readers and writers alike, so that no circuit needs a
    timer to leave a state: a break ends, a hold expires, a lease runs out. An instant before the last one
    counts as the last one: reports travel, and clocks differ a little.
    """
    now = from_ms(to_ms(at))
    if breaker.clock is not None:
        now = max(now, breaker.clock)
    breaker = replace(breaker, clock=now, window=breaker.window.trimmed(now))
    match breaker.state:
        case CircuitState.OPEN if breaker.retry_at is not None and breaker.retry_at <= now:
            breaker = moved(breaker, Move.BREAK_OVER, now, reason="the break is over")
        case CircuitState.FORCED_OPEN if breaker.expires_at is not None and breaker.expires_at <= now:
            held_until = breaker.expires_at
            breaker = moved(breaker, Move.EXPIRE, now, reason="the hold by hand is over")
            breaker = replace(breaker, retry_at=held_until)
        case CircuitState.DISABLED if breaker.expires_at is not None and breaker.expires_at <= now:
            breaker = freed(breaker, Move.EXPIRE, now, reason="disabling by hand is over")
        case _:
            pass
    alive = tuple(lease for lease in breaker.leases if lease.expires_at > now)
    return replace(breaker, leases=alive)


def corrected(breaker: Breaker, at: datetime) -> Breaker:
    """Undo a clock that ran ahead, when somebody who waits for the answer says that it is earlier.

    One machine whose clock is an hour fast would hold the circuit open for an hour: its instants are
    ahead of everyone's. A report may be old when it arrives and proves nothing; a request
    for a probe or a hand is not.
    Instants are moved back by the difference, the window is forgotten.
    """
    if breaker.clock is None or breaker.clock - at <= CLOCK_LEAD:
        return breaker
    ahead = breaker.clock - at
    return replace(
        breaker,
        clock=at,
        window=replace(breaker.window, buckets=()),
        budget=_NO_BUDGET,
        opened_at=_moved_back(breaker.opened_at, at, ahead),
        retry_at=_moved_back(breaker.retry_at, at, ahead),
        reopened_at=_moved_back(breaker.reopened_at, at, ahead),
        draining_since=_moved_back(breaker.draining_since, at, ahead),
        throttled_until=_moved_back(breaker.throttled_until, at, ahead),
        leases=tuple(Lease(lease.lease_id, max(at, lease.expires_at - ahead)) for lease in breaker.leases),
    )


def _moved_back(instant: datetime | None, at: datetime, ahead: timedelta) -> datetime | None:
    return instant if instant is None or instant <= at else instant - ahead
