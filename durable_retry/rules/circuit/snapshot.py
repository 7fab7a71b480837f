"""A worker's copy of the shared circuit, and whether it permits a call.

Also when each of many waiting operations is released, so that they do not return all at once.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Literal, assert_never

from durable_retry.base.json_forms import NOT_STORED, JsonShape, MsInstant
from durable_retry.base.text import deterministic_fraction
from durable_retry.rules.circuit.calls import NO_CALLS, Counts
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.key_changes import NO_KEY_CHANGES, KeyChanges
from durable_retry.rules.circuit.retry_budget import BudgetSnapshot
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """How fast waiting operations are released."""

    per_second: float = 50.0  # mean rate of release, above 0
    minimum_spread_seconds: float = 1.0  # even a few operations are released over this long


RELEASE = ReleaseSettings()
"""The engine's own rate. A constant, since it protects every dependency and no file names it."""


def release_seconds(waiting: int, settings: ReleaseSettings = RELEASE) -> float:
    """Return the length of the release of `waiting` operations: waiting / rate, at least the minimum."""
    return max(settings.minimum_spread_seconds, waiting / settings.per_second)


def release_at(
    operation_id: str,
    reopened_at: datetime,
    waiting: int,
    settings: ReleaseSettings = RELEASE,
) -> datetime:
    """Return when a waiting operation may go; the same on every machine and in every replay.

    N waiting operations are released over S = max(minimum, N / R) seconds, each at S * u, where u in [0, 1)
    is a hash of the operation's id and of the instant of reopening. The u are independent and uniform, so the
    number released in any one second is binomial with mean N / S <= R and a standard deviation below sqrt(R).
    At R = 50 that is 50 and 7: a second with 80 or more comes once in 15,000, one with 100 or more once in a
    billion. N = 10,000 take S = 200 s.

    S has no upper limit, since that would limit the protection; the caller moves an operation forward whose
    deadline comes first. The instant of reopening is part of the hash, so that the operation that was last
    after one break is not last after every break. The release begins at `reopened_at`, the end of the break
    or the closing. Too small a number of `waiting` makes the rate higher.
    """
    fraction = deterministic_fraction("release", operation_id, reopened_at.isoformat())
    return reopened_at + timedelta(seconds=fraction * release_seconds(waiting, settings))


VALID = timedelta(seconds=1)
"""An older snapshot is not acted on."""
RECHECK = timedelta(seconds=2)
"""While probes are under way, other operations ask again after this and their share of the release."""
CLOCKS_APART = timedelta(seconds=2)
"""The clocks of one fleet differ by no more than this, which is assumed and not measured."""

THROTTLED = "the dependency asked for a pause"
ALL_PROBES_UNDER_WAY = "the circuit is half-open and its probes are under way"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The circuit as read at one instant."""

    taken_at: datetime  # when it was read, aware UTC
    state: CircuitState  # at that instant; an open circuit whose break is over reads as half-open
    epoch: int  # goes up with each change of state; 0 when it was never read
    # End of the break or of the forced break; None when not open, or without an end.
    retry_at: datetime | None = None
    throttled_until: datetime | None = None  # end of the throttling pause; None when there is none
    probes_free: int = 0  # probes that may still start in this half-open round
    waiting: int = 0  # operations that wait, as far as reported
    # When calls became possible again after the last wait; None when there was none.
    reopened_at: datetime | None = None
    # Whether that was the end of a throttling pause.
    reopened_by_pause: bool = False
    counts: Counts = NO_CALLS  # calls in the window, as far as reported
    failures_in_a_row: int = 0  # as far as reported
    near_trip: bool = False  # half of what opens it is reached, so workers hold no results back
    reason: str = ""  # why it is in this state, for a person
    # How the dependency fails and since when, while calls are not let through; None when that is not known.
    failure: str | None = None
    throttled_by: str | None = None  # what asked for the throttling pause
    holds_deadlines: bool = False  # whether the deadlines of operations that wait for it stop now
    budget: BudgetSnapshot | None = None  # level of the retry budget; None when it was never read
    key_changes: KeyChanges = NO_KEY_CHANGES  # of the circuits of the dependency's limit keys
    frozen: "Frozen | None" = None  # the circuit itself, while everything is held; None while it is not

    @property
    def is_calm(self) -> bool:
        """Whether every call is let through, and few have failed lately."""
        return self.state is CircuitState.CLOSED and self.throttled_until is None and not self.near_trip

    def is_valid(self, now: datetime) -> bool:
        """Whether it is recent enough to act on: read at most a second ago."""
        return now - self.taken_at <= VALID


@dataclass(frozen=True, slots=True)
class Frozen:
    """A freeze, and the circuit as it is without that."""

    freeze: Freeze
    below: Snapshot


def frozen(snapshot: Snapshot, freeze: Freeze) -> Snapshot:
    """Return the copy of a circuit that a freeze holds open; calls that it lets through are decided below."""
    below = snapshot
    if freeze.share is not None:
        waiting, reopened_at = freeze.part_of(snapshot.waiting), latest(snapshot.reopened_at, freeze.at)
        below = replace(snapshot, waiting=waiting, reopened_at=reopened_at, reopened_by_pause=False)
    return replace(
        snapshot,
        state=CircuitState.FORCED_OPEN,
        retry_at=freeze.until,
        reason=freeze.why,
        holds_deadlines=freeze.stops_deadline is True,
        frozen=Frozen(freeze, below),
    )


@dataclass(slots=True)
class TakenHere:
    """What this worker did since its last snapshot, which therefore does not contain it: it counts on."""

    retries: int = 0  # tokens of the retry budget that it took
    first_attempts: int = 0  # by which it earned more
    asking_again: int = 0  # retries that must ask the budget again
    asked: int = 0  # operations that it sent to ask for a probe
    refused: int = 0  # operations that it refused
    # End of a pause that the dependency asked this worker for, by its own clock; None when there was none.
    throttled_until: datetime | None = None
    throttled_by: str | None = None  # what asked for it


def latest(*instants: datetime | None) -> datetime | None:
    """Return the latest of those instants that are not None; None when all are."""
    return max((instant for instant in instants if instant is not None), default=None)


@dataclass(frozen=True, slots=True)
class Permitted(JsonShape):
    """The call may go."""

    epoch: int  # to be reported with the result
    lease_id: str | None = None  # the id of the probe; None when it is none
    lease_expires_at: MsInstant | None = None  # a probe's result counts until then
    # The circuit could not be read, so the call goes without its protection; logged and counted.
    fail_open: Annotated[bool, NOT_STORED] = False
    # It counts within the worker's share of the dependency's limits until it ends.
    in_share: Annotated[bool, NOT_STORED] = False
    gave_slot_back: Annotated[bool, NOT_STORED] = False  # as in `AttemptOutcome`
    kind: Literal["permitted"] = "permitted"


@dataclass(frozen=True, slots=True)
class Refused(JsonShape):
    """The call may not go. No attempt is counted."""

    base: MsInstant  # when calls may become possible again, for every operation
    waiting: int  # how many operations wait for that, as far as known
    until: MsInstant  # when this operation asks again: its release time after `base`
    reason: str  # for the operation's status
    # Whether the operation's deadline stops until then; None means that it goes on.
    stops_deadline: bool | None = None
    # Whether the dependency asked for a pause; None means that the circuit refuses.
    throttled: bool | None = None
    # Whether everything is held; None means that the dependency's own circuit refuses.
    frozen: bool | None = None
    # How the dependency fails and since when, to stand behind its name; of a pause, what asked for it. None
    # when that is not known.
    failure: str | None = None
    limit_key: str | None = None  # whose circuit refuses; None for that of the dependency
    kind: Literal["refused"] = "refused"


def refused(
    operation_id: str, base: datetime, waiting: int, reason: str, failure: str | None = None
) -> Refused:
    """Return the refusal of an operation until its release time."""
    until = release_at(operation_id, base, waiting)
    return Refused(base=base, waiting=waiting, until=until, reason=reason, failure=failure)


def throttled(operation_id: str, base: datetime, waiting: int, by: str | None) -> Refused:
    """Return the refusal of an operation until its release time after a throttling pause."""
    return replace(refused(operation_id, base, waiting, THROTTLED, by), throttled=True)


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
    """Return whether a call may go, by the worker's copy and by the pauses that it learnt of itself.

    Without a snapshot, or with an old one, the circuit could not be read: the call goes (fail open), unless
    the old one shows a hold that has not ended. An operation that is `waiting` was refused before in this
    wait, so it goes at its release time.
    """
    learnt = _learnt_pause(snapshot, now, operation_id, here)
    if learnt is not None:
        return learnt
    if snapshot is None:
        return Permitted(epoch=0, fail_open=True)
    view = _View.of(snapshot, now, settings, operation_id, here)
    if snapshot.is_valid(now):
        return view.answer(waiting=waiting)
    # A circuit that cannot be read must not stop calls to a dependency that may be healthy.
    return view.hold() or Permitted(epoch=snapshot.epoch, fail_open=True)


def paused(
    snapshot: Snapshot | None, now: datetime, *, operation_id: str, here: TakenHere = NOTHING_TAKEN
) -> Refused | None:
    """Return the refusal by a pause that the dependency asked for; it holds in every state of the circuit."""
    learnt = _learnt_pause(snapshot, now, operation_id, here)
    if learnt is not None or snapshot is None or snapshot.throttled_until is None:
        return learnt
    until, waiting = snapshot.throttled_until, snapshot.waiting
    return throttled(operation_id, until, waiting, snapshot.throttled_by) if now < until else None


def _learnt_pause(
    snapshot: Snapshot | None, now: datetime, operation_id: str, here: TakenHere
) -> Refused | None:
    until = here.throttled_until
    if until is None or until <= now:
        return None
    # The report of this pause is under way and not in the snapshot yet; calls must wait for its end.
    others = here.refused + (0 if snapshot is None else snapshot.waiting)
    return throttled(operation_id, until, others, here.throttled_by)


def held_by_hand(
    snapshot: Snapshot | None,
    now: datetime,
    *,
    settings: CircuitSettings,
    operation_id: str,
    waiting: bool,
    here: TakenHere = NOTHING_TAKEN,
) -> Refused | None:
    """Return the refusal by a dependency's circuit of an operation that has the circuit of its limit key.

    A hold by hand, and the release after it, counts for all keys; None without one.
    """
    if snapshot is None:
        return None
    view = _View.of(snapshot, now, settings, operation_id, here)
    state = view.snapshot.state
    if state is CircuitState.FORCED_OPEN:
        return view.forced_open()
    is_free = state in {CircuitState.CLOSED, CircuitState.DISABLED} and snapshot.is_valid(now)
    answer = view.released(waiting=waiting) if is_free else None
    return answer if isinstance(answer, Refused) else None


def held_by_freeze(
    snapshot: Snapshot | None,
    now: datetime,
    *,
    settings: CircuitSettings,
    operation_id: str,
    here: TakenHere = NOTHING_TAKEN,
) -> Refused | None:
    """Return the refusal while everything is held, whatever the circuit says; None where it is not."""
    if snapshot is None or snapshot.frozen is None:
        return None
    view = _View.of(snapshot, now, settings, operation_id, here)
    return view.forced_open() if view.snapshot.frozen is not None else None


@dataclass(frozen=True, slots=True)
class _View:
    """One operation's view of one snapshot."""

    snapshot: Snapshot
    now: datetime
    settings: CircuitSettings
    operation_id: str
    here: TakenHere

    @classmethod
    def of(
        cls, snapshot: Snapshot, now: datetime, settings: CircuitSettings, operation_id: str, here: TakenHere
    ) -> "_View":
        """Return the view; where a freeze lets the operation through, of the circuit without that."""
        frozen = snapshot.frozen
        if frozen is not None and frozen.freeze.lets_through(operation_id, now):
            snapshot = frozen.below
        return cls(snapshot, now, settings, operation_id, here)

    def answer(self, *, waiting: bool) -> Permit:
        """Return what a valid snapshot says."""
        refusal = self.hold()
        if refusal is not None:
            return refusal
        match self.snapshot.state:
            case CircuitState.CLOSED | CircuitState.DISABLED:
                return self.released(waiting=waiting)
            case CircuitState.HALF_OPEN:
                return self.probing(self.snapshot.probes_free)
            case CircuitState.OPEN | CircuitState.FORCED_OPEN:
                # Its end has passed since the snapshot, which shows no free probe yet.
                return self.probing(self.settings.half_open_calls)
            case _ as never:
                assert_never(never)

    def hold(self) -> Refused | None:
        """Return the refusal of a break, a hold by hand or a pause that has not ended; None without one."""
        if self.snapshot.state is CircuitState.FORCED_OPEN:
            return self.forced_open()
        if self.snapshot.state is CircuitState.OPEN:
            return self.broken()
        return self.throttled()

    def forced_open(self) -> Refused | None:
        longest = timedelta(seconds=self.settings.max_break_seconds)
        until = self.snapshot.retry_at or self.now + longest
        if until <= self.now:
            return None
        # The operation asks again now and then even if the end is far: a person may close the circuit early.
        is_frozen, reason = self.snapshot.frozen is not None, self.snapshot.reason
        refusal = self._refuse_until(
            min(until, self.now + longest), reason if is_frozen else f"the circuit is held open: {reason}"
        )
        refusal = replace(refusal, frozen=True) if is_frozen else refusal
        return replace(refusal, stops_deadline=True) if self.snapshot.holds_deadlines else refusal

    def broken(self) -> Refused | None:
        retry_at = self.snapshot.retry_at or self.now
        if retry_at <= self.now:
            return None
        reason = f"the circuit is open: {self.snapshot.reason}"
        return self._refuse_until(retry_at, reason, self.snapshot.failure)

    def throttled(self) -> Refused | None:
        until = self.snapshot.throttled_until
        if until is None or until <= self.now:
            return None
        return throttled(self.operation_id, until, self._waiting(), self.snapshot.throttled_by)

    def probing(self, free: int) -> Permit:
        if self.here.asked < free:
            return AskForProbe(self.snapshot.epoch)
        return self._refuse_until(self.now + RECHECK, ALL_PROBES_UNDER_WAY, self.snapshot.failure)

    def released(self, *, waiting: bool) -> Permit:
        permitted = Permitted(self.snapshot.epoch)
        if not waiting or self.snapshot.reopened_at is None:
            return permitted
        reopened_at, waited = self.snapshot.reopened_at, self.snapshot.waiting
        place = release_at(self.operation_id, reopened_at, waited)
        if place <= self.now:
            return permitted
        detail = f"released in turn, one of {self.snapshot.waiting} that waited"
        by_pause = self.snapshot.reopened_by_pause or None
        return Refused(base=place, waiting=0, until=place, reason=detail, throttled=by_pause)

    def _refuse_until(self, base: datetime, reason: str, failure: str | None = None) -> Refused:
        return refused(self.operation_id, base, self._waiting(), reason, failure)

    def _waiting(self) -> int:
        reporters = self.snapshot.budget.workers if self.snapshot.budget is not None else 1
        # The snapshot does not contain what was refused since; other workers refuse about as many as this
        # one.
        return self.snapshot.waiting + self.here.refused * reporters
