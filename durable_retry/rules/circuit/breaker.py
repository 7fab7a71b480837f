"""The shared circuit of one dependency: its state, the moves between states, and the audit of manual control.

Time is an argument: the instant at which a message arrived, by the clock of the machine that runs the entity.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from durable_retry.base.asks import Ask, with_ask
from durable_retry.base.json_forms import JsonRow, JsonShape, MsInstant, from_ms, to_ms
from durable_retry.base.text import failing_text, time_text
from durable_retry.rules.circuit.calls import SlidingWindow
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.key_changes import NO_KEY_CHANGES, KeyChange, KeyChanges, latest_keys
from durable_retry.rules.circuit.reporters import Reporters
from durable_retry.rules.circuit.retry_budget import Budget
from durable_retry.rules.circuit.snapshot import RELEASE
from durable_retry.rules.circuit.states import CircuitMove, CircuitSettings, CircuitState, target_of

KEPT_ENTRIES = 50
KEPT_PROBES: Final = 8
"""Probes that are remembered when they are over; few, since workers read the state every second."""
KEPT_BYTES = 3_000
"""The trail is part of a state that workers read every second; long reasons leave room for fewer entries."""
OVERTAKEN_WITHIN: Final = timedelta(minutes=2)
"""A message that a dead host had fetched comes back after a minute and some seconds."""
REASON_CHARACTERS = 200
IDLE_AFTER: Final = timedelta(hours=1)
"""The circuit of a limit key is forgotten when no message came for so long. Its budget is full by then."""
BY_CHARACTERS = 64


class ManualControl(StrEnum):
    """What a person can do to a circuit."""

    OPEN = "open"
    CLOSE = "close"
    DISABLE = "disable"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class AuditEntry(JsonRow):
    """One use of manual control.

    Attributes:
        at: When, by the clock of who did it, aware UTC.
        by: Who, cut to 64 characters.
        reason: Why, cut to 200 characters.
        until: When it ends by itself; None means never.
    """

    at: MsInstant
    control: Annotated[ManualControl, Field(alias="action")]
    by: str
    reason: str
    until: MsInstant | None = None


@dataclass(frozen=True, slots=True)
class AuditTrail(JsonShape):
    """The latest entries in the order of their arrival: at most 50, and at most 3,000 bytes of JSON."""

    entries: tuple[AuditEntry, ...] = ()

    def has(self, entry: AuditEntry) -> bool:
        """Return whether the same message was recorded before."""
        # Its end counts from its arrival, and a repeated message arrives later.
        return any(replace(other, until=entry.until) == entry for other in self.entries)

    def overtakes(self, entry: AuditEntry, now: datetime) -> bool:
        """Whether a later action arrived before this one; one from a clock that is ahead does not count."""
        return any(entry.at < other.at <= min(now, entry.at + OVERTAKEN_WITHIN) for other in self.entries)

    def with_entry(self, entry: AuditEntry) -> "AuditTrail":
        """Return the trail with one more entry; the oldest are dropped to keep the limits."""
        kept = [*self.entries, entry][-KEPT_ENTRIES:]
        while len(kept) > 1 and _audit_chars(kept) > KEPT_BYTES:
            del kept[0]
        return AuditTrail(tuple(kept))


def _audit_chars(entries: list[AuditEntry]) -> int:
    return len(json.dumps([entry.to_json() for entry in entries]))


AUTOMATIC: Final = "circuit"
"""`changed_by` of moves that nobody made by hand."""
FREE = frozenset({CircuitState.CLOSED, CircuitState.DISABLED})
"""States that let every call through."""
_IDLE_STATES: Final = frozenset({CircuitState.CLOSED, CircuitState.HALF_OPEN})
_NO_CALLS = SlidingWindow.over(CircuitSettings().window_seconds)
_NO_TRAIL = AuditTrail()
_NO_REPORTERS = Reporters()
_NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Lease(JsonRow):
    """The right to one probe, until its result arrives or it expires."""

    lease_id: str
    expires_at: MsInstant  # then another may probe
    asked_at: MsInstant | None = None  # the instant of the latest request for it


@dataclass(frozen=True, slots=True)
class Breaker(JsonShape):
    """The shared state of one dependency."""

    state: CircuitState = CircuitState.CLOSED
    # Goes up by one with each change of state. A result of an older epoch changes nothing.
    epoch: int = 1
    # When the last message arrived; time does not run backwards. None before the first message.
    clock: MsInstant | None = None
    window: SlidingWindow = _NO_CALLS  # calls that ended lately, in this closed or disabled epoch
    # The window that opened the circuit the last time; empty when it never opened.
    tripped_by: SlidingWindow = _NO_CALLS
    # As reported; successes that a worker has not reported yet do not interrupt it.
    failures_in_a_row: int = 0
    # Refusals of its own credential without a success between, counted as those; None for none.
    unauthorized_in_a_row: int | None = None
    # The answer that refuses its credential, such as `401`, while that keeps it open; None otherwise.
    unauthorized_by: str | None = None
    # Start of the latest break or forced break; None while calls are let through.
    opened_at: MsInstant | None = None
    # End of the break; None while not open, or when forced open without an end.
    retry_at: MsInstant | None = None
    reopenings: int = 0  # failed probe rounds since the circuit was last closed; each doubled the break
    leases: tuple[Lease, ...] = ()  # probes in flight
    probe_successes: int = 0  # the probes of this half-open round that succeeded
    throttled_until: MsInstant | None = None  # end of the last throttling pause; kept when it is over
    throttled_by: str | None = None  # what asked for it
    throttled_since: MsInstant | None = None  # when that pause began
    # Operations that began to wait, less those that left; below 0 while one that left is not yet reported.
    waiting: int = 0
    # The instant from which the release times of waiting operations count; None while they wait, or when
    # there was no wait.
    reopened_at: MsInstant | None = None
    # When the release really began; later than `reopened_at` by the duration of the probes.
    draining_since: MsInstant | None = None
    expires_at: MsInstant | None = None  # end of the manual control; None without an end
    reason: str = "new"  # why it is in this state
    changed_by: str = AUTOMATIC  # who or what moved it there
    audit: AuditTrail = _NO_TRAIL  # the latest uses of manual control
    reporters: Reporters = _NO_REPORTERS  # the reports that were counted
    budget: Budget = _NO_BUDGET  # level of the retry budget
    probed: tuple[Ask, ...] = ()  # requests whose probes are over; one that is delivered again gets no lease
    # Start of the first break since it last let calls through; None while it does.
    first_opened_at: MsInstant | None = None
    opened_because: str | None = None  # why that break began, for a person; None as above
    # For a person: of the latest call that counts as failed; None when none did since it was last closed.
    last_error: str | None = None
    failing_since: MsInstant | None = None  # when `last_error` became one of another kind; None before that
    # Whether deadlines stop while it is held open by hand, see `ManualAction`; kept when that is over.
    stops_deadline: bool | None = None
    limit_key: str | None = None  # whose circuit it is; None of the dependency itself
    # Limit keys whose own circuits were not free, see `is_free`: the latest, in the order of their changes.
    # None while no limit key is known to have a circuit.
    keys: tuple[str, ...] | None = None
    key_changes: KeyChanges | None = None  # of their circuits; None while none has changed
    freeze: Freeze | None = None  # holds every dependency; kept for a moment when it is over
    version: Literal[1] = 1  # of the stored form: an engine that cannot read a later one refuses it

    @property
    def holds_deadlines(self) -> bool:
        """Whether the deadlines of operations that wait for it stop now."""
        return self.state is CircuitState.FORCED_OPEN and self.stops_deadline is True

    @property
    def closed_to_calls_since(self) -> datetime | None:
        """When it first opened since it last let every call through; None while it does."""
        return self.first_opened_at or self.opened_at

    def without_leases(self, ended: Iterable[Lease]) -> "Breaker":
        """Return the circuit when probes are over."""
        probed, ids = self.probed, set()
        for lease in ended:
            ids.add(lease.lease_id)
            probed = with_ask(probed, lease.lease_id, lease.asked_at, KEPT_PROBES)
        remaining = tuple(lease for lease in self.leases if lease.lease_id not in ids)
        return replace(self, leases=remaining, probed=probed)

    @property
    def failing(self) -> str | None:
        """How the dependency fails and since when, to stand behind its name; None while not known."""
        since = self.closed_to_calls_since
        if self.last_error is None or since is None:
            return None
        since = max(since, self.failing_since or since)
        failing = f"{failing_text(self.last_error)}, since {time_text(since)}"
        return failing if self.limit_key is None else f"for {self.limit_key} {failing}"

    @property
    def reason_of_wait(self) -> str:
        """Why it is in this state, for the status of an operation that waits for it."""
        return self.reason if self.limit_key is None else f"{self.reason} (limit key {self.limit_key})"

    def with_key(self, change: KeyChange) -> "Breaker":
        """Return the dependency's circuit after a change of the circuit of one of its limit keys."""
        keys = [key for key in self.keys or () if key != change.limit_key]
        keys += [] if change.is_free else [change.limit_key]
        changes = (self.key_changes or NO_KEY_CHANGES).with_key(change.limit_key)
        return replace(self, keys=latest_keys(keys), key_changes=changes)

    def with_freeze(self, freeze: Freeze, received_at: datetime) -> "Breaker":
        """Return the circuit after the signal `freeze`. One that is older than the latest is ignored."""
        current = advanced(self, received_at)
        if current.freeze is not None and not current.freeze.is_before(freeze):
            return current
        # Operations that were released before it no longer count as waiting.
        waiting = current.remaining_waiting(received_at)
        return advanced(replace(current, waiting=waiting, freeze=freeze), received_at)

    def is_frozen(self, now: datetime) -> bool:
        """Whether every dependency is held."""
        return self.freeze is not None and self.freeze.ended_at(now) is None

    def is_idle(self, now: datetime) -> bool:
        """Whether no operation uses it: one that waits for it would have asked again."""
        current = advanced(self, now)
        is_quiet = self.clock is None or self.clock < now - IDLE_AFTER
        return is_quiet and current.state in _IDLE_STATES and not current.is_throttled(now)

    def is_free(self, now: datetime) -> bool:
        """Whether neither the circuit nor a pause holds calls up."""
        return self.state is CircuitState.CLOSED and not self.is_throttled(now)

    def is_throttled(self, now: datetime) -> bool:
        return self.throttled_until is not None and now < self.throttled_until

    def remaining_waiting(self, now: datetime) -> int:
        """Return how many still wait: all until calls are possible, then fewer at the rate of release."""
        drained_from = [t for t in (self.draining_since, self.throttled_until) if t is not None]
        if self.state not in FREE or not drained_from or self.is_frozen(now):
            return max(0, self.waiting)
        elapsed_seconds = max(0.0, (now - max(drained_from)).total_seconds())
        return max(0, self.waiting - int(elapsed_seconds * RELEASE.per_second))


def moved(breaker: Breaker, move: CircuitMove, now: datetime, *, reason: str, by: str = AUTOMATIC) -> Breaker:
    """Change the state and begin a new epoch, with empty counts; IllegalMoveError as in `target_of`."""
    return replace(
        breaker.without_leases(breaker.leases),
        state=target_of(breaker.state, move),
        epoch=breaker.epoch + 1,
        waiting=breaker.remaining_waiting(now),
        # Results of the old epoch must neither trip nor close the circuit in the new one.
        window=replace(breaker.window, buckets=()),
        failures_in_a_row=0,
        unauthorized_in_a_row=None,
        probe_successes=0,
        expires_at=None,
        reason=reason,
        changed_by=by,
    )


def opened(
    breaker: Breaker,
    move: CircuitMove,
    now: datetime,
    settings: CircuitSettings,
    *,
    reason: str,
    unauthorized_by: str | None = None,
) -> Breaker:
    """Begin a break: the first one, or a longer one after a failed probe.

    A refused credential takes the place of any other reason.
    """
    if unauthorized_by is not None:
        reason = f"the credential is refused ({unauthorized_by})"
    # A trip begins with the shortest break; only failed probes lengthen it.
    reopenings = breaker.reopenings + 1 if move is CircuitMove.PROBE_FAILED else 0
    pause = timedelta(seconds=settings.break_seconds_after(reopenings))
    return replace(
        moved(breaker, move, now, reason=reason),
        # Kept for the API, since the window itself is empty from now on.
        tripped_by=breaker.window.trimmed(now) if move is CircuitMove.TRIP else breaker.tripped_by,
        opened_at=now,
        first_opened_at=breaker.closed_to_calls_since or now,
        opened_because=breaker.opened_because or reason,
        retry_at=now + pause,
        reopenings=reopenings,
        unauthorized_by=unauthorized_by,
        reopened_at=None,
        draining_since=None,
    )


def freed(breaker: Breaker, move: CircuitMove, now: datetime, *, reason: str, by: str = AUTOMATIC) -> Breaker:
    """Let every call through again.

    The release times of waiting operations count from the end of the break, because that is the instant that
    the operations were given. Counting from the end of the probe would give each of them a second time.
    """
    was_blocked = breaker.state not in FREE
    after_probe = breaker.retry_at if move is CircuitMove.PROBES_SUCCEEDED else None
    return replace(
        moved(breaker, move, now, reason=reason, by=by),
        opened_at=None,
        first_opened_at=None,
        opened_because=None,
        last_error=None,
        failing_since=None,
        unauthorized_by=None,
        retry_at=None,
        reopenings=0,
        reopened_at=(after_probe or now) if was_blocked else breaker.reopened_at,
        draining_since=now if was_blocked else breaker.draining_since,
    )


def advanced(breaker: Breaker, at: datetime) -> Breaker:
    """Return the circuit at an instant, with everything that the passing of time alone changes.

    A break ends, a manual control expires, a lease expires. Readers and writers both call this, so no circuit
    needs a timer to leave a state. An instant before the clock counts as the clock: the
    entity may move to a machine whose clock is behind.
    """
    # The stored form has milliseconds: the state must be the same before and after it was stored.
    now = from_ms(to_ms(at))
    if breaker.clock is not None:
        now = max(now, breaker.clock)
    breaker = replace(breaker, clock=now, window=breaker.window.trimmed(now))
    match breaker.state:
        case CircuitState.OPEN if breaker.retry_at is not None and breaker.retry_at <= now:
            breaker = moved(breaker, CircuitMove.BREAK_OVER, now, reason="the break is over")
        case CircuitState.FORCED_OPEN if breaker.expires_at is not None and breaker.expires_at <= now:
            held_until, reason = breaker.expires_at, "the hold by hand is over"
            # The waiting operations were given this instant, so their release times count from it.
            if breaker.keys is None:
                breaker = replace(moved(breaker, CircuitMove.EXPIRE, now, reason=reason), retry_at=held_until)
            else:
                # Operations with a limit key probe the circuit of their key, so this one may get no probe.
                free = freed(breaker, CircuitMove.CLOSE, now, reason=reason)
                breaker = replace(free, reopened_at=held_until)
        case CircuitState.DISABLED if breaker.expires_at is not None and breaker.expires_at <= now:
            breaker = freed(breaker, CircuitMove.EXPIRE, now, reason="disabling by hand is over")
        case _:
            pass
    if breaker.freeze is not None:
        breaker = _thawed(breaker, breaker.freeze, now)
    # The probe of a worker that died would otherwise block the half-open round for ever.
    return breaker.without_leases(lease for lease in breaker.leases if lease.expires_at <= now)


def _thawed(breaker: Breaker, freeze: Freeze, now: datetime) -> Breaker:
    """Release what waits after a freeze, and forget it once no late message can bring it back."""
    ended_at = freeze.ended_at(now)
    if ended_at is None:
        return breaker
    if breaker.state in FREE and (breaker.draining_since is None or breaker.draining_since < ended_at):
        # The last wave of a thaw has released all.
        waiting = 0 if freeze.share == 1 else breaker.waiting
        breaker = replace(breaker, waiting=waiting, reopened_at=ended_at, draining_since=ended_at)
    return replace(breaker, freeze=None) if ended_at < now - IDLE_AFTER else breaker
