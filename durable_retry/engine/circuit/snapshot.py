"""A worker's copy of the shared circuit, and what it may do by it.

Also when each of many waiting operations is released, so that they do not return all at once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, assert_never

from durable_retry.engine.base.json_forms import Form, JsonRecord, MsInstant
from durable_retry.engine.base.text import deterministic_fraction
from durable_retry.engine.circuit.retry_budget import BudgetSnapshot
from durable_retry.engine.circuit.states import CircuitSettings, CircuitState


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """How fast waiting operations are released.

    Attributes:
        per_second: Mean rate of release, above 0.
        minimum_spread_seconds: Even a few operations are released over this long.
    """

    per_second: float = 50.0
    minimum_spread_seconds: float = 1.0


RELEASE = ReleaseSettings()
"""The engine's own rate. A constant, since it protects every dependency and no file names it."""


def spread_seconds(waiting: int, settings: ReleaseSettings = RELEASE) -> float:
    """Return the length of the release of `waiting` operations: waiting / rate, at least the minimum."""
    return max(settings.minimum_spread_seconds, waiting / settings.per_second)


def release_at(
    operation_id: str, reopened_at: datetime, waiting: int, settings: ReleaseSettings = RELEASE
) -> datetime:
    """Return when a waiting operation may go; the same on every machine and in every replay.

    N waiting operations are released over S = max(minimum, N / R) seconds, each at S * u, where u in [0, 1)
    is a hash of the operation's id and of the instant of reopening. The u are independent and uniform, so the
    number released in any one second is binomial with mean N / S <= R and a standard deviation below sqrt(R).
    At R = 50 that is 50 and 7: a second with 80 or more comes once in 15,000, one with 100 or more once in a
    billion. N = 10,000 take S = 200 s.

    S has no upper limit, since that would limit the protection; the caller moves an operation forward whose
    deadline comes first. The instant of reopening is part of the hash, so that the operation that was last
    after one break is not last after every break.

    Args:
        operation_id: Of the waiting operation.
        reopened_at: When calls become possible: the end of the break, or the closing.
        waiting: How many wait for this circuit, as far as known; too small a number makes the rate higher.
        settings: Rate and minimum.
    """
    fraction = deterministic_fraction("release", operation_id, reopened_at.isoformat())
    return reopened_at + timedelta(seconds=fraction * spread_seconds(waiting, settings))


VALID = timedelta(seconds=1)
"""An older snapshot is not acted on."""
RECHECK = timedelta(seconds=2)
"""While probes are under way, other operations ask again after this and their share of the release."""
CLOCK_LEAD = timedelta(seconds=60)
"""The clocks of one fleet differ by less than this; an instant further ahead comes from a wrong clock."""

THROTTLED = "the dependency asked to be left alone"
ALL_PROBES_UNDER_WAY = "the circuit is half-open and its probes are under way"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The circuit as read at one instant.

    Attributes:
        taken_at: When it was read, aware UTC.
        state: At that instant; an open circuit whose break is over reads as half-open.
        epoch: Goes up with each change of state; 0 when it was never read.
        retry_at: End of the break or of the forced break; None when not open, or without an end.
        throttled_until: End of the throttling pause; None when there is none.
        probes_free: Probes that may still start in this half-open round.
        waiting: Operations that wait, as far as reported.
        reopened_at: When calls became possible again after the last wait; None when there was none.
        troubled: The window holds failures, so workers hold no results back.
        reason: Why it is in this state, for a person.
        budget: Level of the retry budget; None when it was never read.
    """

    taken_at: datetime
    state: CircuitState
    epoch: int
    retry_at: datetime | None = None
    throttled_until: datetime | None = None
    probes_free: int = 0
    waiting: int = 0
    reopened_at: datetime | None = None
    troubled: bool = False
    reason: str = ""
    budget: BudgetSnapshot | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is recent enough to act on: read at most a second ago."""
        return now - self.taken_at <= VALID


@dataclass(frozen=True, slots=True)
class TakenHere:
    """What this worker did since its last snapshot, which therefore does not contain it."""

    retries: int = 0
    asked: int = 0
    refused: int = 0

    def plus(self, *, retries: int = 0, asked: int = 0, refused: int = 0) -> "TakenHere":
        """Return the counts with these added."""
        return TakenHere(self.retries + retries, self.asked + asked, self.refused + refused)


@dataclass(frozen=True, slots=True)
class Permitted(JsonRecord):
    """The call may go.

    Attributes:
        epoch: To be reported with the result.
        lease_id: Of the probe; None when it is none.
        lease_expires_at: A probe's result counts until then.
        fail_open: The circuit could not be read, so the call goes without its protection; logged and counted.
    """

    epoch: int
    lease_id: str | None = None
    lease_expires_at: MsInstant | None = None
    fail_open: Annotated[bool, Form(is_stored=False)] = False


@dataclass(frozen=True, slots=True)
class Refused(JsonRecord):
    """The call may not go. No attempt is counted.

    Attributes:
        base: When calls may become possible again, for every operation.
        waiting: How many operations wait for that, as far as known.
        until: When this operation asks again: its release time after `base`.
        reason: For the operation's status.
    """

    base: MsInstant
    waiting: int
    until: MsInstant
    reason: str


def refused(operation_id: str, base: datetime, waiting: int, reason: str) -> Refused:
    """Return the refusal of an operation until its release time."""
    return Refused(base=base, waiting=waiting, until=release_at(operation_id, base, waiting), reason=reason)


@dataclass(frozen=True, slots=True)
class AskForProbe:
    """The circuit is half-open, and only its entity grants probes. `epoch` is what the worker saw."""

    epoch: int


type Permit = Permitted | Refused | AskForProbe

NOTHING_TAKEN = TakenHere()


def permit(
    snapshot: Snapshot | None,
    now: datetime,
    *,
    settings: CircuitSettings,
    operation_id: str,
    waiting: bool = False,
    here: TakenHere = NOTHING_TAKEN,
) -> Permit:
    """Return whether a call may go, by the worker's copy alone.

    Args:
        snapshot: None or an old one means that the circuit could not be read, and the call goes (fail open).
        now: Aware UTC.
        settings: Of the dependency's circuit.
        operation_id: Of the operation, for its release time.
        waiting: True when it was refused before in this wait, so it goes at its release time.
        here: What this worker did since the snapshot.
    """
    # A circuit that cannot be read must not stop calls to a dependency that may be healthy.
    if snapshot is None or not snapshot.is_valid(now):
        return Permitted(epoch=0 if snapshot is None else snapshot.epoch, fail_open=True)
    seen = _Seen(snapshot, now, settings, operation_id, here)
    match snapshot.state:
        case CircuitState.FORCED_OPEN:
            return seen.forced_open()
        case CircuitState.OPEN:
            return seen.broken()
        case CircuitState.HALF_OPEN:
            return seen.throttled() or seen.probing()
        case CircuitState.CLOSED | CircuitState.DISABLED:
            return seen.throttled() or seen.released(waiting=waiting)
        case _ as never:
            assert_never(never)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One operation's view of one snapshot."""

    snapshot: Snapshot
    now: datetime
    settings: CircuitSettings
    operation_id: str
    here: TakenHere

    def forced_open(self) -> Permit:
        longest = timedelta(seconds=self.settings.max_break_seconds)
        until = self.snapshot.retry_at or self.now + longest
        if until <= self.now:
            return self.probing(even_if_none_free=True)
        # The operation asks again now and then even if the end is far: a person may close the circuit early.
        return self._refuse(
            min(until, self.now + longest), f"the circuit is held open: {self.snapshot.reason}"
        )

    def broken(self) -> Permit:
        retry_at = self.snapshot.retry_at or self.now
        longest = timedelta(seconds=max(self.settings.break_seconds, self.settings.max_break_seconds))
        # No break lasts that long: a wrong clock wrote it, and the entity corrects it when asked.
        if retry_at <= self.now or retry_at - self.now > longest + CLOCK_LEAD:
            return self.probing(even_if_none_free=True)
        return self._refuse(retry_at, f"the circuit is open: {self.snapshot.reason}")

    def throttled(self) -> Refused | None:
        until = self.snapshot.throttled_until
        if until is None or until <= self.now:
            return None
        return self._refuse(until, THROTTLED)

    def probing(self, *, even_if_none_free: bool = False) -> Permit:
        free = self.settings.half_open_calls if even_if_none_free else self.snapshot.probes_free
        if self.here.asked < free:
            return AskForProbe(self.snapshot.epoch)
        return self._refuse(self.now + RECHECK, ALL_PROBES_UNDER_WAY)

    def released(self, *, waiting: bool) -> Permit:
        permitted = Permitted(self.snapshot.epoch)
        if not waiting or self.snapshot.reopened_at is None:
            return permitted
        place = release_at(self.operation_id, self.snapshot.reopened_at, self.snapshot.waiting)
        if place <= self.now:
            return permitted
        detail = f"released in turn, one of {self.snapshot.waiting} that waited"
        return Refused(base=place, waiting=0, until=place, reason=detail)

    def _refuse(self, base: datetime, reason: str) -> Refused:
        reporters = self.snapshot.budget.reporters if self.snapshot.budget is not None else 1
        # The snapshot does not contain what was refused since; other workers refuse about as many as this
        # one.
        waiting = self.snapshot.waiting + self.here.refused * reporters
        return refused(self.operation_id, base, waiting, reason)
