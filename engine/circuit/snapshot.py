"""What a worker knows of the shared circuit, and what it may do with it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from engine.budget import BudgetSnapshot
from engine.circuit.release import release_at
from engine.circuit.settings import CircuitSettings
from engine.circuit.states import CircuitState
from engine.decision import CircuitView

VALID = timedelta(seconds=1)
"""A snapshot older than this is not believed."""
RECHECK = timedelta(seconds=2)
"""While probes are under way, the others ask again after this (and their place in the spread)."""
CLOCK_LEAD = timedelta(seconds=60)
"""Clocks of one fleet differ by less than this; what lies further ahead was stamped by a wrong one."""

THROTTLED = "the dependency asked to be left alone"
ALL_PROBES_UNDER_WAY = "the circuit is half-open and its probes are under way"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The circuit as read at one instant.

    Attributes:
        taken_at: when it was read.
        state: as of then; an open circuit whose break is over reads as half-open.
        epoch: goes up with each change of state; 0 = never known.
        retry_at: end of the break, or of the hand's hold; None = not open, or held without an end.
        throttled_until: end of the throttling pause; None = there is none.
        probes_free: probes that may still start in this half-open round.
        waiting: operations that wait, as far as reported.
        reopened_at: when calls became possible again after the last wait; None = there was none.
        troubled: the window holds failures, so workers hold nothing back.
        reason: why it is in this state, for a person.
        budget: the retry budget's level; None = never known.
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
        """Whether it may still be believed: read at most a second ago."""
        return now - self.taken_at <= VALID


@dataclass(frozen=True, slots=True)
class TakenHere:
    """What this worker did since its last snapshot, which the snapshot cannot show."""

    retries: int = 0
    asked: int = 0
    refused: int = 0

    def plus(self, *, retries: int = 0, asked: int = 0, refused: int = 0) -> "TakenHere":
        """With so many more."""
        return TakenHere(self.retries + retries, self.asked + asked, self.refused + refused)


@dataclass(frozen=True, slots=True)
class Permitted:
    """The call may go.

    Attributes:
        epoch: goes into the result's report.
        lease_id: the lease of a probe; None = it is none.
        lease_expires_at: a probe's result counts until then.
        blind: True = the circuit could not be read, so nothing is known: fail open, log it and count it.
    """

    epoch: int
    lease_id: str | None = None
    lease_expires_at: datetime | None = None
    blind: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not go. No attempt is counted.

    Attributes:
        base: when calls may become possible again, for everyone.
        waiting: how many operations wait for that, as far as known.
        until: when this operation should ask again: its place among them after `base`.
        reason: for the operation's status.
    """

    base: datetime
    waiting: int
    until: datetime
    reason: str

    def to_view(self) -> CircuitView:
        """For `decide`, which spreads and weighs it against the other reasons to wait."""
        return CircuitView(refuses=True, retry_at=self.base, reason=self.reason, waiting=self.waiting)


def refused(operation_id: str, base: datetime, waiting: int, reason: str) -> Refused:
    """Refuse an operation until its place among the waiting ones."""
    return Refused(base=base, waiting=waiting, until=release_at(operation_id, base, waiting), reason=reason)


@dataclass(frozen=True, slots=True)
class AskForProbe:
    """The circuit is half-open: only the entity may say who probes. `epoch` is what the worker saw."""

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
    """Say whether a call may go, from the worker's copy alone.

    Args:
        snapshot: the copy; None or an old one = the circuit could not be read, and the call goes (fail open).
        now: present instant.
        settings: the dependency's circuit.
        operation_id: who asks, for its place in the spread.
        waiting: True = it was refused before in this wait, so it is released in its turn.
        here: what this worker did since the snapshot.
    """
    if snapshot is None or not snapshot.is_valid(now):
        return Permitted(epoch=0 if snapshot is None else snapshot.epoch, blind=True)
    seen = _Seen(snapshot, now, settings, operation_id, here)
    match snapshot.state:
        case CircuitState.FORCED_OPEN:
            return seen.held_by_hand()
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
    """One question to one snapshot."""

    snapshot: Snapshot
    now: datetime
    settings: CircuitSettings
    operation_id: str
    here: TakenHere

    def held_by_hand(self) -> Permit:
        longest = timedelta(seconds=self.settings.max_break_seconds)
        until = self.snapshot.retry_at or self.now + longest
        if until <= self.now:
            return self.probing(even_if_none_free=True)
        # Asked again now and then even if the hold is long: it may be lifted early.
        return self._refuse(
            min(until, self.now + longest), f"the circuit is held open: {self.snapshot.reason}"
        )

    def broken(self) -> Permit:
        retry_at = self.snapshot.retry_at or self.now
        longest = timedelta(seconds=max(self.settings.break_seconds, self.settings.max_break_seconds))
        # A break cannot end that late: a wrong clock stamped it, and the entity corrects it when asked.
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
        told = f"released in turn, one of {self.snapshot.waiting} that waited"
        return Refused(base=place, waiting=0, until=place, reason=told)

    def _refuse(self, base: datetime, reason: str) -> Refused:
        reporters = self.snapshot.budget.reporters if self.snapshot.budget is not None else 1
        waiting = self.snapshot.waiting + self.here.refused * reporters
        return refused(self.operation_id, base, waiting, reason)
